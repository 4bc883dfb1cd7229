"""Storages of the device: made, copied, saved, loaded.

torch makes storages with a device's C++ allocator. Ours has none (it would
need C++), so the few places that ask for one are given memory here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import _kernels

Storage = torch.UntypedStorage


def _on_npu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "npu"


def _install_new() -> None:
    """UntypedStorage(..., device="npu")."""
    make: Any = Storage.__new__

    def new(
        cls: type[Storage], *args: Any, device: Any = None, **kwargs: Any
    ) -> Any:
        if not _on_npu(device):
            return make(cls, *args, device=device, **kwargs)
        if len(args) == 1 and not isinstance(args[0], int):
            return _kernels.new_storage(len(args[0])).copy_(make(cls, args[0]))
        return _kernels.new_storage(*args or (0,))

    Storage.__new__ = staticmethod(new)  # type: ignore[method-assign, assignment]


def _resize(_storage: Storage, _size: int) -> Storage:
    raise NotImplementedError(
        "a storage of device npu cannot be resized in place: resize a tensor "
        "(Tensor.resize_), which then gets other memory"
    )


def _share(_storage: Storage) -> Storage:
    raise NotImplementedError(
        "memory of device npu is not shared between processes: send "
        "tensor.cpu(), or share a CPU tensor and move it in each process"
    )


def _for_npu(name: str, instead: Callable[..., Any]) -> None:
    """Storage.<name> is `instead` for storages of the device."""
    original = getattr(Storage, name)

    @functools.wraps(original)
    def method(self: Storage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "npu":
            return instead(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(Storage, name, method)


def _arrived(storage: Storage) -> Storage:
    return _kernels.new_storage(storage.nbytes()).copy_(storage)


def _reduce(storage: Storage) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What a worker of a DataLoader gives is its own no more: a copy arrives.
    It is sent by a thread whose exceptions nobody sees, so that a refusal
    would leave the loader waiting."""
    from torch.utils.data import get_worker_info

    if get_worker_info() is None:
        _share(storage)
    return _arrived, (storage.cpu(),)


def _refuse_sharing() -> None:
    """Sending a tensor of the device to another process says why not."""
    from multiprocessing import reduction

    from torch.multiprocessing import reductions

    original: Any = reductions.reduce_storage

    def reduce_storage(storage: Storage) -> Any:
        plain = not _on_npu(storage.device)
        return original(storage) if plain else _reduce(storage)

    reductions.reduce_storage = reduce_storage
    reduction.register(Storage, reduce_storage)


def _refuse_dlpack(name: str) -> None:
    """DLPack has no name for the device: Tensor.<name> says so."""
    tensors: Any = torch.Tensor
    original = getattr(tensors, name)

    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.device.type == "npu":
            raise BufferError(
                "DLPack has no device npu: export tensor.cpu(), and move what "
                "is imported with .npu()"
            )
        return original(self, *args, **kwargs)

    setattr(tensors, name, method)


def install() -> None:
    """Once a process, after the device has its name."""
    from torch.utils import backend_registration

    backend_registration._generate_storage_methods_for_privateuse1_backend(
        "npu"
    )
    _install_new()
    _for_npu("resize_", _resize)
    _for_npu("share_memory_", _share)
    _refuse_sharing()
    _refuse_dlpack("__dlpack__")
    _refuse_dlpack("__dlpack_device__")
