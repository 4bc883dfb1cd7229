"""Tensors that do not hold their memory."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import checks
from . import pools, streams
from .memory import Memory, to_device
from .record import Recorder


def weak_ref_tensor(t: torch.Tensor) -> torch.Tensor:
    """A tensor at the same place that lets a graph's pool have the memory.

    Of a tensor made in a capture: replays go on writing it after the last
    strong reference is gone, and the pool may give the same memory to graphs
    captured later. It reads what was replayed last. Any other tensor comes
    back as an alias that owns its memory.
    """
    checks.is_a(torch.Tensor, t, "weak_ref_tensor: the argument", "a tensor")
    storage = t.untyped_storage()
    found = pools.find_block(storage.data_ptr())
    if found is None:
        return t.detach()
    pool, block = found
    with _disable_current_modes():
        over = to_device(pools.over(block, storage.nbytes()), t.device)
        made = over.untyped_storage()
        alias = torch.empty(0, dtype=t.dtype, device=t.device)
        alias.set_(made, t.storage_offset(), t.shape, t.stride())
    recorder = _recorder(t)
    if recorder is not None:
        _share(recorder, recorder.memory(storage), made, pool)
    return alias


def _recorder(t: torch.Tensor) -> Recorder | None:
    """Of the capture that t was made in."""
    capture = streams.current_stream().state.capture
    owner = capture.owner() if capture is not None else None
    recorder: Recorder | None = owner._recorder if owner else None
    if recorder is None or recorder.window(t).memory.root is None:
        return None
    return recorder


def _share(
    recorder: Recorder,
    memory: Memory,
    storage: torch.UntypedStorage,
    pool: pools.Pool,
) -> None:
    """The capture knows both storages as one memory, and writes it to the end
    unless something else lies there by then."""

    def lost() -> torch.Tensor | None:
        taken = pool.block_at(memory.address) is not None
        assert memory.root is not None
        return None if taken else memory.root.on(storage)

    memory.lost = lost
    recorder.alias(storage, memory)
