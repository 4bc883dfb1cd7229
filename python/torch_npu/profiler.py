"""torch_npu.profiler: torch.profiler for programs that profile an NPU.

What the device does is done by CPU kernels, so activity NPU adds nothing to
CPU; traces are torch's.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerAction as ProfilerAction
from torch.profiler import schedule as schedule


class ProfilerActivity(enum.Enum):
    CPU = "CPU"
    NPU = "NPU"


class ProfilerLevel(enum.Enum):
    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class _ExperimentalConfig:
    """Settings of the vendor's profiler; kept, of no effect here."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.profiler_level = settings.get(
            "profiler_level", ProfilerLevel.Level0
        )


def supported_activities() -> set[ProfilerActivity]:
    return set(ProfilerActivity)


def _on_host(activities: Iterable[Any] | None) -> list[Any]:
    cpu = torch.profiler.ProfilerActivity.CPU
    for activity in activities or ():
        if not isinstance(activity, ProfilerActivity) and activity is not cpu:
            raise TypeError(
                f"activities are ProfilerActivity.CPU or NPU, got {activity!r}"
            )
    return [cpu]


class profile(torch.profiler.profile):
    """torch.profiler.profile with the vendor's arguments."""

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: _ExperimentalConfig | None = None,
    ) -> None:
        if experimental_config is not None:
            warnings.warn(
                "experimental_config of torch_npu.profiler has no effect on "
                "this device",
                stacklevel=2,
            )
        super().__init__(
            activities=_on_host(activities),
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
        )


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
) -> Callable[..., Any]:
    """Writes a Chrome trace into a folder. There is nothing to analyse
    afterwards, and nothing that would take long."""
    make: Any = torch.profiler.tensorboard_trace_handler
    found: Callable[..., Any] = make(dir_name, worker_name)
    return found
