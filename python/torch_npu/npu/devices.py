"""Devices: there is one, npu:0, in host memory."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch


def device_index(device: Any = None, *, optional: bool = True) -> int:
    """None (where optional), 0, "npu", "npu:0" or a torch.device -> 0.

    RuntimeError: another device, or another index.
    """
    if device is None:
        if optional:
            return 0
        raise RuntimeError("a device is needed: 0 or 'npu:0'")
    if isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        asked = torch.device(device)
        if asked.type != "npu":
            raise RuntimeError(f"expected an npu device, got {asked}")
        index = asked.index or 0
    if index != 0:
        raise RuntimeError(
            f"invalid device npu:{index}: there is one, npu:0 (host memory)"
        )
    return index


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def init() -> None:
    """The device needs no start; kept for programs that call it."""


def _lazy_init() -> None:
    init()


def _is_in_bad_fork() -> bool:
    return False  # host memory and CPU kernels survive a fork


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    """RuntimeError where the device is not npu:0."""
    device_index(device, optional=False)


def synchronize(device: Any = None) -> None:
    """Waits for the streams of the device; eager operators are done when
    their call returns. RuntimeError where waiting could never end."""
    device_index(device)
    streams = sys.modules.get("torchair.npu")
    if streams is not None:  # else nobody has made one
        streams.synchronize()


class device:
    """Context manager: the current device. `with torch.npu.device(0): ...`"""

    def __init__(self, device: Any) -> None:
        negative = isinstance(device, int) and device < 0  # "leave it"
        self.idx = 0 if negative else device_index(device)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class device_of(device):
    """The device of a tensor, where it is an npu's."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "npu" else -1)


@dataclass(frozen=True)
class DeviceProperties:
    """total_memory: bytes of the host. Core numbers are those that
    torch.npu.set_device_limit counts with. major and minor: Triton's question
    to what torch.cuda is then (transfer_to_npu): it has no kernels for it."""

    name: str
    total_memory: int
    cube_core_num: int
    vector_core_num: int
    multi_processor_count: int
    major: int = 0
    minor: int = 0


def get_device_name(device: Any = None) -> str:
    device_index(device)
    return "TorchAir host device"


def get_device_properties(device: Any = None) -> DeviceProperties:
    import torchair.npu

    from .memory import mem_get_info

    limit = torchair.npu.get_device_limit(device_index(device))
    return DeviceProperties(
        get_device_name(device),
        mem_get_info(device)[1],
        limit["cube_core_num"],
        limit["vector_core_num"],
        os.cpu_count() or 1,
    )


def get_device_capability(device: Any = None) -> None:
    """None: capabilities are numbers of CUDA devices."""
    device_index(device)


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return device_index(device) == device_index(peer_device)


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]
