"""Operators of the device: torch's CPU kernels on the same memory.

Four kinds. Views are torch's own CPU kernels run on the tensor of the device
itself, so that storage, version and base are shared as everywhere. What makes
memory makes CPU memory and shows it as the device's. Copies and reads go
through a CPU view. Everything else comes to the boxed fallback, which does so
for any operator (python/native/py_npu.c).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from torchair import _native

KEY = "PrivateUse1"
aten = torch.ops.aten
_ON_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_libraries: list[Any] = []  # alive as long as the process


def library(namespace: str) -> Any:
    """A torch.library.Library that adds kernels to a namespace for good."""
    make: Any = torch.library.Library
    found = make(namespace, "IMPL")
    _libraries.append(found)
    return found


# Kernels that look at sizes and storage only, so that they take the device's.
_VIEWS = (
    aten.as_strided.default,
    aten.view.default,
    aten._reshape_alias.default,
    aten.unfold.default,
    aten.view_as_real.default,
    aten.view_as_complex.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
)


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """The CPU tensor on the memory of a tensor of the device."""
    alias: torch.Tensor = _native.npu_alias(tensor, False)
    return alias


def to_npu(tensor: torch.Tensor) -> torch.Tensor:
    """The device's tensor on the memory of a CPU tensor."""
    alias: torch.Tensor = _native.npu_alias(tensor, True)
    return alias


call = _native.npu_call  # call(op, *args, **kwargs), op's CPU kernel


def is_npu(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "npu"


def _on_cpu_kernel(op: Any) -> Callable[..., Any]:
    """op's CPU kernel for tensors of the device."""
    redispatch = op._handle.redispatch_boxed

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return redispatch(_ON_CPU, *args, **kwargs)

    return kernel


_set = _on_cpu_kernel(aten.set_.source_Storage_storage_offset)


# ---- what the native fallback calls back for ----


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor with the same sizes, strides and dtype."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype
    )


def adopt(tensor: torch.Tensor, cpu: torch.Tensor) -> torch.Tensor:
    """Makes a tensor what an operator has made of its CPU view."""
    if cpu.numel() and cpu.data_ptr() == tensor.data_ptr():
        storage, offset = tensor.untyped_storage(), tensor.storage_offset()
    else:
        storage, offset = to_npu(cpu).untyped_storage(), 0
    found: torch.Tensor = _set(tensor, storage, offset, cpu.shape, cpu.stride())
    return found


def lazy_bits(tensor: torch.Tensor, alias: torch.Tensor) -> torch.Tensor:
    """The alias, conjugated and negated as lazily as the tensor is."""
    if tensor.is_conj():
        alias = torch._conj(alias)
    if tensor.is_neg():
        alias = torch._neg_view(alias)
    return alias


def retry(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """op again, with memory of their own for what it writes to (out=)."""
    names = {a.name for a in op._schema.arguments if a.alias_info is not None}
    own = {k: v for k, v in (kwargs or {}).items() if k in names}
    temporary = {k: _empty_of(v) for k, v in own.items()}
    _native.npu_call(op, *args, **{**(kwargs or {}), **temporary})
    for name, out in own.items():
        _take(out, temporary[name])
    outs = [own[a.name] for a in op._schema.arguments if a.name in own]
    return outs[0] if len(op._schema.returns) == 1 else tuple(outs)


def number(op: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """op where a number stands for a tensor: by the overload for numbers."""
    return call(op.overloadpacket, *args, **(kwargs or {}))


def _empty_of(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return torch.empty(0, dtype=out.dtype, device=out.device)
    return [_empty_of(o) for o in out]


def _take(out: Any, made: Any) -> None:
    if isinstance(out, torch.Tensor):
        _set(out, made.untyped_storage(), 0, made.shape, made.stride())
        return
    for o, m in zip(out, made, strict=True):
        _take(o, m)


# ---- memory ----


def _check(device: torch.device | None, pin_memory: bool | None) -> None:
    if device is not None and device.index not in (None, 0):
        raise RuntimeError(
            f"invalid device {device}: there is one, npu:0 (host memory)"
        )
    if pin_memory:
        raise RuntimeError(
            "pin_memory=True has no meaning for device npu: its memory is "
            "host memory already; leave the argument out"
        )


def _empty(
    size: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    _check(device, pin_memory)
    return to_npu(
        torch.empty(
            size,
            dtype=dtype,
            layout=layout,
            device="cpu",
            memory_format=memory_format or torch.contiguous_format,
        )
    )


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    _check(device, pin_memory)
    return to_npu(
        torch.empty_strided(
            size, stride, dtype=dtype, layout=layout, device="cpu"
        )
    )


def _resize(
    tensor: torch.Tensor,
    size: Any,
    *,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """New memory where the old does not suffice; what is in it is kept."""
    like = torch.empty(
        size,
        dtype=tensor.dtype,
        device="meta",
        memory_format=memory_format or torch.contiguous_format,
    )
    storage, offset = tensor.untyped_storage(), tensor.storage_offset()
    needed = (math.prod(size) + offset) * tensor.element_size()
    if needed > storage.nbytes():
        storage = grown(storage, needed)
    found: torch.Tensor = _set(tensor, storage, offset, size, like.stride())
    return found


def storage_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor of the device, uint8, over all of a storage."""
    over = torch.empty(0, dtype=torch.uint8, device="npu")
    found: torch.Tensor = _set(over, storage, 0, (storage.nbytes(),), (1,))
    return found


def new_storage(nbytes: int) -> torch.UntypedStorage:
    made = torch.empty(nbytes, dtype=torch.uint8, device="npu")
    return made.untyped_storage()


def grown(storage: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
    """Other memory of nbytes that begins with what the storage holds."""
    found = new_storage(nbytes)
    old = min(storage.nbytes(), nbytes)
    storage_bytes(found)[:old].copy_(storage_bytes(storage)[:old])
    return found


# ---- copies and reads ----


def _host_view(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "npu":
        return tensor
    return lazy_bits(tensor, to_cpu(tensor))


def _copy_from(
    source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    _host_view(target).copy_(_host_view(source))
    return target


def _copy_from_and_resize(
    source: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    if target.shape != source.shape:
        target.resize_(source.shape)
    return _copy_from(source, target)


def _to_copy(
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """A copy, done when this returns: non_blocking would ask for pinned
    memory, of which there is none."""
    if device is None or device.type == "npu":
        _check(device, pin_memory)
        found: torch.Tensor = call(
            aten._to_copy.default,
            tensor,
            dtype=dtype,
            layout=layout,
            device=torch.device("cpu"),
            memory_format=memory_format,
        )
        return found
    moved: torch.Tensor = aten._to_copy.default(
        _host_view(tensor),
        dtype=dtype,
        layout=layout,
        device=device,
        memory_format=memory_format,
    )
    return moved


def _item(tensor: torch.Tensor) -> Any:
    return _host_view(tensor).item()


# ---- what has no meaning here ----


def _pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    raise RuntimeError(
        "a tensor of device npu cannot be pinned: its memory is host memory "
        "already, copies to it need no pinned buffer"
    )


def _pin_host_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    """Host memory is as near to the device as it can get: a plain copy."""
    return tensor.clone()


def _record_stream(tensor: torch.Tensor, stream: Any) -> None:
    """Streams run in order: memory is free when the tensor dies."""


def _prefer_cpu_kernels(ours: Any, done: set[str]) -> None:
    """An operator with a CPU kernel is run by it, not taken apart first.

    Torch has a general form of some 400 of them that comes before a fallback:
    slower, and for a few (layer_norm) with other rounding.
    """
    names = torch._C._dispatch_get_registrations_for_dispatch_key
    general = {
        *names("CompositeExplicitAutogradNonFunctional"),
        *names("CompositeExplicitAutograd"),
        *names("CompositeImplicitAutograd"),
    }
    for name in general.intersection(names("CPU")) - done:
        space, _, rest = name.partition("::")
        if space == "aten":
            packet, _, overload = rest.partition(".")
            op = getattr(getattr(aten, packet), overload or "default")
            ours.impl(op, functools.partial(call, op), KEY)


def install() -> None:
    """Registers all of it; once a process."""
    ours = library("aten")
    own: tuple[tuple[Any, Any], ...] = (
        *((op, _on_cpu_kernel(op)) for op in _VIEWS),
        (aten.empty.memory_format, _empty),
        (aten.empty_strided.default, _empty_strided),
        (aten.resize_.default, _resize),
        (aten._copy_from.default, _copy_from),
        (aten._copy_from_and_resize.default, _copy_from_and_resize),
        (aten._to_copy.default, _to_copy),
        (aten._local_scalar_dense.default, _item),
        (aten._pin_memory.default, _pin_memory),
        (aten.is_pinned.default, lambda tensor, device=None: False),
        (aten.record_stream.default, _record_stream),
    )
    for op, fn in own:
        ours.impl(op, fn, KEY)
    _prefer_cpu_kernels(ours, {op.name() for op, _ in own})
    ours.impl(aten._pin_memory.default, _pin_host_memory, "CPU")
    for key in ("Conjugate", "Negative"):  # copies read the bits themselves
        for op in (aten._copy_from.default, aten._copy_from_and_resize.default):
            ours.impl(op, torch.library.fallthrough_kernel, key)
    library("_").fallback(_native.npu_call, KEY)
    host = torch.device("cpu")
    _native.npu_enable(host, fresh, adopt, lazy_bits, retry, number)
