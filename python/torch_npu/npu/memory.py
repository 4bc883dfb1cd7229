"""Memory of the device: host memory that its tensors hold.

Counted are bytes, from the moment a tensor of the device is made until the
last view of its memory dies. "Reserved" adds what the engine keeps for later
results; there are no other caches.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

from torchair import _native

from .devices import device_index

_most_reserved = 0


def memory_allocated(device: Any = None) -> int:
    device_index(device)
    return _native.npu_memory()["live"]


def max_memory_allocated(device: Any = None) -> int:
    device_index(device)
    return _native.npu_memory()["peak"]


def memory_reserved(device: Any = None) -> int:
    global _most_reserved
    kept = _native.pool_stats()["kept_bytes"]
    found = memory_allocated(device) + kept
    _most_reserved = max(_most_reserved, found)
    return found


def max_memory_reserved(device: Any = None) -> int:
    """The most that was seen when somebody asked, at least the most that was
    allocated."""
    memory_reserved(device)
    return max(_most_reserved, max_memory_allocated(device))


def reset_peak_memory_stats(device: Any = None) -> None:
    global _most_reserved
    device_index(device)
    _native.npu_memory_reset(False)
    _most_reserved = 0


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    device_index(device)
    _native.npu_memory_reset(True)


def empty_cache() -> None:
    """Gives back what the engine keeps for later results."""
    _native.trim()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the host."""
    device_index(device)
    page = os.sysconf("SC_PAGE_SIZE")
    total = os.sysconf("SC_PHYS_PAGES") * page
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024, total
    except OSError:
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * page, total


def memory_stats(device: Any = None) -> OrderedDict[str, int]:
    """Counters under the names torch uses for every device."""
    now = _native.npu_memory()
    reserved = memory_reserved(device)
    values = {
        "allocated_bytes.all.current": now["live"],
        "allocated_bytes.all.peak": now["peak"],
        "allocated_bytes.all.allocated": now["total"],
        "allocated_bytes.all.freed": now["total"] - now["live"],
        "allocation.all.current": now["blocks"],
        "active.all.current": now["blocks"],
        "active_bytes.all.current": now["live"],
        "active_bytes.all.peak": now["peak"],
        "reserved_bytes.all.current": reserved,
        "reserved_bytes.all.peak": max_memory_reserved(device),
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }
    return OrderedDict(sorted(values.items()))


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    rows = memory_stats(device).items()
    return "\n".join(f"{name:36} {value:>16}" for name, value in rows)


def memory_snapshot() -> list[dict[str, Any]]:
    """One segment for all memory of tensors: the host's allocator does not
    tell its blocks."""
    now = _native.npu_memory()
    return [
        {
            "device": 0,
            "address": 0,
            "total_size": now["live"],
            "allocated_size": now["live"],
            "active_size": now["live"],
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [],
        }
    ]


def set_per_process_memory_fraction(
    fraction: float, device: Any = None
) -> None:
    device_index(device)
    raise NotImplementedError(
        "memory of device npu is host memory: limit the process instead "
        "(ulimit -v, resource.setrlimit)"
    )
