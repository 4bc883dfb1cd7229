"""Importing this makes a program for CUDA use the device npu.

torch.cuda's functions become torch.npu's, `.cuda()` becomes `.npu()`, and the
device "cuda" becomes "npu" wherever torch is given one. Not changed: what
`str(tensor.device)` says, and torch.device("cuda") itself, which turns into
npu when a tensor is made on it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._device import _device_constructors

from torch_npu import npu

_TENSOR_METHODS = (
    "to",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_tensor",
    "new_zeros",
)
_MODULE_METHODS = ("to", "to_empty")


def to_npu(device: Any) -> Any:
    """ "cuda" and "cuda:0" as devices of ours; anything else as it is."""
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "npu" + device[4:]
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("npu", device.index or 0)
    return device


def _mapped(fn: Callable[..., Any], skip: int = 0) -> Callable[..., Any]:
    """fn with devices mapped. skip: arguments before the one that may be a
    device by position; -1: none may."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if 0 <= skip < len(args):
            args = (*args[:skip], to_npu(args[skip]), *args[skip + 1 :])
        for name in ("device", "device_type", "map_location"):
            if name in kwargs:
                kwargs[name] = to_npu(kwargs[name])
        return fn(*args, **kwargs)

    return call


def _patch(owner: Any, name: str, skip: int = -1) -> None:
    if hasattr(owner, name):
        setattr(owner, name, _mapped(getattr(owner, name), skip))


def _patch_constructors() -> None:
    """torch.empty and all others that torch.set_default_device knows."""
    known = _device_constructors()
    for name, fn in list(vars(torch).items()):
        plain = types.BuiltinFunctionType | types.FunctionType
        if isinstance(fn, plain) and fn in known:
            setattr(torch, name, _mapped(fn, -1))


def _patch_cuda() -> None:
    for name in npu.__all__:
        if name not in ("amp", "memory", "random", "utils", "config"):
            try:
                found = getattr(npu, name)
            except (AttributeError, ImportError):
                continue
            setattr(torch.cuda, name, found)
    cuda: Any = torch.cuda
    cuda.CUDAGraph = npu.__getattr__("NPUGraph")
    # Torch compares it where there is Triton: none that has kernels for it.
    cuda.get_device_capability = lambda device=None: (0, 0)
    backends: Any = torch.backends
    backends.cuda.is_built = lambda: True


def _patch_methods() -> None:
    tensor: Any = torch.Tensor
    module: Any = torch.nn.Module
    tensor.cuda, module.cuda = tensor.npu, module.npu
    tensor.is_cuda = tensor.is_npu
    for name in _TENSOR_METHODS:
        _patch(torch.Tensor, name, 1 if name == "to" else -1)
    for name in _MODULE_METHODS:
        _patch(torch.nn.Module, name, 1 if name == "to" else -1)


def _install() -> None:
    _patch_constructors()
    for owner in (torch.amp.autocast, torch.amp.GradScaler):
        _patch(owner, "__init__", 1)
    _patch_methods()
    _patch_cuda()
    for name in ("load", "set_default_device"):
        _patch(torch, name, 0 if name == "set_default_device" else 1)
    generator: Any = torch.Generator
    make = generator.__new__

    def new(cls: Any, device: Any = "cpu") -> Any:
        return make(cls, to_npu(device))

    generator.__new__ = staticmethod(new)


_install()
