"""Where tensors of a capture lie: storages, and strided pieces of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _native


def to_cpu(t: torch.Tensor) -> torch.Tensor:
    """The CPU tensor at the same place."""
    return t if t.device.type == "cpu" else _native.npu_alias(t, False)


def to_device(t: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A CPU tensor as one of the device, at the same place."""
    return t if device.type == "cpu" else _native.npu_alias(t, True)


class Memory:
    """One storage. kept: it was there before the capture, and the graph holds
    it; root: the window it was made with, inside the capture."""

    __slots__ = (
        "address",
        "device",
        "kept",
        "lost",
        "readable",
        "ref",
        "root",
    )

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.ref = StorageWeakRef(storage)  # keeps the key from being reused
        self.address, self.device = storage.data_ptr(), storage.device
        self.kept: torch.UntypedStorage | None = None
        self.root: Window | None = None
        self.readable = False  # holds a constant: the host may look
        self.lost: Callable[[], torch.Tensor | None] | None = None

    def tensor(self) -> torch.Tensor | None:
        """The root's tensor for a replay to write, None where nobody looks."""
        assert self.root is not None
        if self.ref.expired():
            return self.lost() if self.lost else None
        storage = torch.UntypedStorage._new_with_weak_ptr(self.ref.cdata)
        return None if storage is None else self.root.on(storage)


@dataclass(frozen=True, slots=True)
class Window:
    """A tensor's place: element counts from the start of the storage."""

    memory: Memory
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    conj: bool = False
    neg: bool = False

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """A tensor, itself no view, on this storage."""
        made = torch.empty(0, dtype=self.dtype, device=storage.device)
        made.set_(storage, self.offset, self.size, self.stride)
        return made

    def span(self) -> tuple[int, int]:
        """First byte, and the one behind the last."""
        item = self.dtype.itemsize
        if 0 in self.size:
            return self.offset * item, self.offset * item
        last = sum(
            (n - 1) * s for n, s in zip(self.size, self.stride, strict=True)
        )
        return self.offset * item, (self.offset + last + 1) * item

    def is_at(self, t: torch.Tensor, address: int) -> bool:
        """Is the tensor in this place of the memory at an address?"""
        return (
            t.data_ptr() == address + self.offset * self.dtype.itemsize
            and t.dtype == self.dtype
            and tuple(t.shape) == self.size
            and t.stride() == self.stride
        )

    def dense(self) -> bool:
        """Row-major without gaps."""
        expected = 1
        for n, s in zip(
            reversed(self.size), reversed(self.stride), strict=True
        ):
            if n != 1 and s != expected:
                return False
            expected *= n
        return True
