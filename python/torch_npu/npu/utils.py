"""torch.npu.utils."""

from __future__ import annotations

from .devices import (
    current_device,
    device,
    device_count,
    device_index,
    get_device_name,
    set_device,
    synchronize,
)

__all__ = [
    "current_device",
    "device",
    "device_count",
    "get_device_name",
    "set_device",
    "synchronize",
]
_get_device_index = device_index
