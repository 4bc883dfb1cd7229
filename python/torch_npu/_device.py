"""Gives PrivateUse1 the name `npu` and everything torch expects of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

from torchair import _native, compat, engine

from . import _autocast, _kernels, _layers, _storage, npu
from .npu.devices import device_index


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, _device: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


_keep: list[Any] = []  # torch holds hooks without a reference


def _name_is_free() -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise ImportError(
            f"torch_npu of torchair cannot register the device npu: this "
            f"process has a device {name!r} already, and torch has room for "
            "one. Do not import both."
        )


def register() -> None:
    """Once a process; ImportError where another device has the place."""
    from torch.utils import backend_registration

    _name_is_free()
    if not engine.started():  # without its settings: no compilation has asked
        libraries = compat.torch_cpu_library(), compat.gomp_library()
        _native.start(*libraries, None, None, False, False)
    hooks = _Hooks()
    _keep.append(hooks)
    backend_registration._setup_privateuseone_for_python_backend(
        "npu", backend_module=npu, hook=hooks
    )
    _kernels.install()
    _layers.install()
    _autocast.install()
    _storage.install()
    npu.random.install_generator()
    _install_accelerator()
    _install_record_stream()
    _accept_in_programs()
    _at_first_compile()


def _accept_in_programs() -> None:
    """The engine reads memory of the device as it reads the CPU's."""
    compat.HOST_DEVICES.add("npu")


# ---- torch.accelerator: what asks a C++ allocator or guard otherwise ----


def _capability(device: Any = None) -> dict[str, Any]:
    """Every dtype of torch: memory is the host's."""
    device_index(device)
    found = {t for t in vars(torch).values() if isinstance(t, torch.dtype)}
    return {"supported_dtypes": found}


_ACCELERATOR: dict[str, Callable[..., Any]] = {
    "empty_cache": npu.empty_cache,
    "empty_host_cache": npu.host_empty_cache,
    "get_device_capability": _capability,
    "get_memory_info": npu.mem_get_info,
    "max_memory_allocated": npu.max_memory_allocated,
    "max_memory_reserved": npu.max_memory_reserved,
    "memory_allocated": npu.memory_allocated,
    "memory_reserved": npu.memory_reserved,
    "memory_stats": npu.memory_stats,
    "reset_accumulated_memory_stats": npu.reset_accumulated_memory_stats,
    "reset_peak_memory_stats": npu.reset_peak_memory_stats,
    "set_device_idx": npu.set_device,
    "set_device_index": npu.set_device,
    "synchronize": npu.synchronize,
}


def _install_accelerator() -> None:
    for name, ours in _ACCELERATOR.items():
        original = getattr(torch.accelerator, name, None)
        if original is not None:
            setattr(
                torch.accelerator,
                name,
                functools.wraps(original)(_without_name(ours)),
            )
    setattr(torch.accelerator, "Graph", _Graph)  # noqa: B010


class _Graph:
    """torch.accelerator.Graph: imported when it is used."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from torchair.npu.accelerator import Graph

        return Graph(*args, **kwargs)


def _without_name(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


# ---- streams: those of torchair.npu, where torch expects its own ----


def _install_record_stream() -> None:
    """Streams run in order: memory is free when its tensor dies."""
    original: Any = torch.Tensor.record_stream

    @functools.wraps(original)
    def record_stream(self: torch.Tensor, stream: Any) -> None:
        if self.device.type != "npu" or isinstance(stream, torch.Stream):
            original(self, stream)
        elif not hasattr(stream, "wait_event"):
            raise TypeError(
                f"record_stream needs a torch.npu.Stream, got {stream!r}"
            )

    tensors: Any = torch.Tensor
    tensors.record_stream = record_stream


# ---- torch.compile: at its first call, since it imports Dynamo ----


def _at_first_compile() -> None:
    plain = torch.compile

    @functools.wraps(plain)
    def compile(*args: Any, **kwargs: Any) -> Any:
        torch.compile = plain
        from . import _compile

        _compile.install()
        return plain(*args, **kwargs)

    torch.compile = compile
    compiler: Any = torch.compiler
    compiler.npugraph_mark_step_begin = _mark_step_begin


def _mark_step_begin() -> None:
    """A new step begins: results of the last one are stale. They stay as they
    are while somebody holds them."""
    npugraphs = sys.modules.get("torchair.npugraphs")
    if npugraphs is not None:  # else no graph is compiled yet
        npugraphs.mark_step_begin()
