"""Limits of cores: numbers that are kept for each stream and given back. What
a compiled program runs takes at most so many threads; a graph captured under
other limits is captured again."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .streams import (
    Stream,
    current_stream,
    device_number,
    state_of,
    switched,
    target,
)

CUBE_CORES, VECTOR_CORES = 24, 48  # the emulated device; limits are <= these
_lock = threading.RLock()
_device_limits: dict[int, dict[str, int]] = {}


def _check_limit(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value != -1 and not 1 <= value <= most:
        raise ValueError(f"{name} is {value}; allowed are 1 to {most}, or -1")


def _changed(
    limit: dict[str, int], cube_num: int, vector_num: int
) -> dict[str, int]:
    _check_limit("cube_num", cube_num, CUBE_CORES)
    _check_limit("vector_num", vector_num, VECTOR_CORES)
    found = dict(limit)
    if cube_num != -1:
        found["cube_core_num"] = cube_num
    if vector_num != -1:
        found["vector_core_num"] = vector_num
    return found


def set_device_limit(
    device: Any, cube_num: int = -1, vector_num: int = -1
) -> None:
    """Upper bounds of cores; -1: as it was. ValueError out of range.
    RuntimeError: there is no such device."""
    index = device_number(device)
    count = max(1, torch.cuda.device_count())
    if not 0 <= index < count:
        raise RuntimeError(
            f"invalid device {device!r}; give a number below {count}"
        )
    with _lock:
        _device_limits[index] = _changed(
            get_device_limit(index), cube_num, vector_num
        )
    _tell_engine()


def get_device_limit(device: Any = None) -> dict[str, int]:
    found = _device_limits.get(device_number(device))
    return dict(
        found or {"cube_core_num": CUBE_CORES, "vector_core_num": VECTOR_CORES}
    )


def set_stream_limit(
    stream: Stream, cube_num: int = -1, vector_num: int = -1
) -> None:
    with _lock:
        target(stream).limit = _changed(
            get_stream_limit(stream), cube_num, vector_num
        )
    _tell_engine()


def get_stream_limit(stream: Stream) -> dict[str, int]:
    """The stream's, or else the device's."""
    limit = target(stream).limit
    return (
        get_device_limit(stream.device_index)
        if limit is None
        else (dict(limit))
    )


def reset_stream_limit(stream: Stream) -> None:
    target(stream).limit = None
    _tell_engine()


def limit_of(device: int, stream_id: int) -> tuple[int, int] | None:
    """Cube and vector cores of a stream, where it was given a limit."""
    limit = state_of(device, stream_id).limit
    if limit is None:
        return None
    return limit["cube_core_num"], limit["vector_core_num"]


def _tell_engine() -> None:
    """Programs that this thread runs take so many threads at most, and a graph
    captured under another limit of its stream is captured again; as it was at
    first is no limit. Dynamo, which traces a switch of
    streams, has nothing to tell: its graph's streams are lanes."""
    if torch.compiler.is_compiling():
        return
    from torchair import _native

    limit = get_stream_limit(current_stream())
    cube, vector = limit["cube_core_num"], limit["vector_core_num"]
    none = cube == CUBE_CORES and vector == VECTOR_CORES
    _native.set_core_limit(*((0, 0) if none else (cube, vector)))


switched.append(_tell_engine)
