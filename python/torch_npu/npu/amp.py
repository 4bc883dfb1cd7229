"""torch.npu.amp: torch.amp for the device."""

from __future__ import annotations

from typing import Any

import torch


class autocast(torch.amp.autocast):
    """torch.amp.autocast("npu", ...); dtype: float16 or bfloat16."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype = torch.float16,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(
            "npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled
        )


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler("npu", ...)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("npu", *args, **kwargs)


def custom_fwd(fwd: Any = None, **kwargs: Any) -> Any:
    return torch.amp.custom_fwd(fwd, device_type="npu", **kwargs)


def custom_bwd(bwd: Any = None) -> Any:
    return torch.amp.custom_bwd(bwd, device_type="npu")
