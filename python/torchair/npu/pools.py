"""Memory of captured graphs: pools of blocks, shared by handle.

A tensor made inside a capture lives in a block of the graph's pool. When the
tensor dies its block is free again, for the rest of this capture and for the
next ones on the pool. The pool lives as long as a graph refers to it; a block
as long as the pool or a tensor in it.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from typing import Any

import torch

from .. import _native, engine

Handle = tuple[int, int]

_ROUND = 64  # bytes: what the engine's kernels are aligned to
_SLACK = 4  # a block serves tensors of down to a quarter of its size
_own_ids = itertools.count(1)
_lock = threading.RLock()
_pools: weakref.WeakValueDictionary[Handle, Pool] = (
    weakref.WeakValueDictionary()
)


def graph_pool_handle() -> Handle:
    """A handle several graphs may be captured with: (0, n), n > 0."""
    engine.start_once()
    return _native.GraphPool().id  # the engine gives no id twice


def check_handle(handle: Any) -> Handle:
    """TypeError for what is not a pair of integers, one of them 0."""
    if (
        not isinstance(handle, tuple)
        or len(handle) != 2
        or not all(type(i) is int and i >= 0 for i in handle)
        or handle[0] * handle[1] != 0
    ):
        raise TypeError(
            f"Invalid graph pool handle type: {handle!r}; take one from "
            "graph_pool_handle() or NPUGraph.pool()"
        )
    return handle


def find(handle: Handle | None) -> Pool:
    """The pool of a handle, or a new one; whoever keeps it keeps its memory."""
    with _lock:
        if handle is None:
            handle = (next(_own_ids), 0)
        found = _pools.get(handle)
        if found is None:
            found = _pools[handle] = Pool(handle)
        return found


def find_block(
    address: int,
) -> tuple[Pool, torch.UntypedStorage] | None:
    """The pool and the block of a tensor whose storage begins there."""
    with _lock:
        for pool in list(_pools.values()):
            block = pool.block_at(address)
            if block is not None:
                return pool, block
    return None


def statistics() -> dict[Handle, dict[str, int]]:
    """For each pool that lives: bytes it holds for tensors, bytes of them in
    use, bytes that programs run in, graphs."""
    with _lock:
        return {h: p.statistics() for h, p in sorted(_pools.items())}


class Pool:
    def __init__(self, handle: Handle) -> None:
        engine.start_once()
        # The engine's part: memory that the graphs' programs run in.
        self.engine = _native.GraphPool(handle)
        self.handle = handle
        self.graphs = 0
        self._blocks: list[torch.UntypedStorage] = []
        self._free: list[torch.UntypedStorage] = []
        self._leased: dict[int, torch.UntypedStorage] = {}  # by address

    def empty(self, nbytes: int) -> torch.Tensor:
        """uint8[nbytes], uninitialised; its storage is the lease."""
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        with _lock:
            block = self._take(-(-nbytes // _ROUND) * _ROUND)
        address = block.data_ptr()
        memory: Any = (ctypes.c_char * nbytes).from_address(address)
        _at_death(memory, _give_back, weakref.ref(self), block)
        return torch.frombuffer(memory, dtype=torch.uint8)

    def _take(self, nbytes: int) -> torch.UntypedStorage:
        """The smallest free block that is large enough, not much larger."""
        fitting = [
            b for b in self._free if nbytes <= b.nbytes() <= _SLACK * nbytes
        ]
        if fitting:
            block = min(fitting, key=lambda b: b.nbytes())
            self._free = [b for b in self._free if b is not block]
        else:
            block = torch.UntypedStorage(nbytes)
            self._blocks.append(block)
        self._leased[block.data_ptr()] = block
        return block

    def block_at(self, address: int) -> torch.UntypedStorage | None:
        """The block in use at an address."""
        return self._leased.get(address)

    def statistics(self) -> dict[str, int]:
        return {
            "reserved_bytes": sum(b.nbytes() for b in self._blocks),
            "active_bytes": sum(b.nbytes() for b in self._leased.values()),
            "program_bytes": self.engine.stats()["mapped_bytes"],
            "graphs": self.graphs,
        }


def _at_death(memory: Any, call: Any, *args: Any) -> None:
    weakref.finalize(memory, call, *args).atexit = False


def _give_back(pool: weakref.ref[Pool], block: torch.UntypedStorage) -> None:
    found = pool()
    if found is not None:
        with _lock:
            del found._leased[block.data_ptr()]
            found._free.append(block)


def over(block: torch.UntypedStorage, nbytes: int) -> torch.Tensor:
    """uint8[nbytes] on a block, without taking it: the pool may give the
    block to another tensor. The memory itself stays valid."""
    memory: Any = (ctypes.c_char * nbytes).from_address(block.data_ptr())
    _at_death(memory, _hold, block)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _hold(_block: torch.UntypedStorage) -> None:
    """The finalizer's argument is what keeps the block."""
