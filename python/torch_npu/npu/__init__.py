"""torch.npu: the module of the device.

Streams, events, graphs and core limits are `torchair.npu`'s; they are looked
up there when they are asked for.
"""

from __future__ import annotations

import warnings
from typing import Any

from . import amp as amp
from . import memory as memory
from . import random as random
from . import utils as utils
from .devices import (
    DeviceProperties,
    _is_in_bad_fork,
    _lazy_init,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)
from .memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

_IN_TORCHAIR = (
    "Event",
    "ExternalEvent",
    "ExternalStream",
    "NPUGraph",
    "NpuGraphOpHandler",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_device_limit",
    "get_stream_limit",
    "graph",
    "graph_pool_handle",
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "register_npu_graph_handler",
    "reset_stream_limit",
    "set_device_limit",
    "set_stream",
    "set_stream_limit",
    "stream",
    "super_kernel_scope_begin",
    "super_kernel_scope_end",
)

__all__ = [
    "DeviceProperties",
    "_is_in_bad_fork",
    "_lazy_init",
    "amp",
    "can_device_access_peer",
    "config",
    "current_device",
    "default_generators",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "host_empty_cache",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_compile_mode",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
    "utils",
    *_IN_TORCHAIR,
]


class _Config:
    """torch.npu.config. allow_internal_format: whether weights may be kept in
    private layouts; this device has none, so the value changes nothing."""

    allow_internal_format = False


config = _Config()


def set_compile_mode(jit_compile: bool = False) -> None:
    """False: operators are compiled beforehand, as they always are here.

    True asks for compilation of each operator at its first call; a warning
    says that nothing changes.
    """
    if not isinstance(jit_compile, bool):
        raise TypeError(
            f"jit_compile must be a bool, got {type(jit_compile).__name__}"
        )
    if jit_compile:
        warnings.warn(
            "set_compile_mode(jit_compile=True) changes nothing: operators of "
            "this device are compiled beforehand",
            stacklevel=2,
        )


def host_empty_cache() -> None:
    """There is no cache of pinned host memory: nothing to give back."""


def __getattr__(name: str) -> Any:
    if name in _IN_TORCHAIR:
        import torchair.npu

        return getattr(torchair.npu, name)
    if name == "npugraph_ex":
        import torchair.npugraph_ex

        return torchair.npugraph_ex
    raise AttributeError(f"module 'torch.npu' has no attribute {name!r}")
