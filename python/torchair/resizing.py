"""Upsampling stays upsampling: torch traces it as index operators, through
Python kernels of keys at which autograd and functionalisation would find those
of C++. Without them graphs have the operators (2.11 to 2.14). The overloads
that take lists are not open to sizes that are symbols in C++, so they call
those with numbers from here."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import compat

_KEYS = (
    torch._C.DispatchKey.Autograd,
    torch._C.DispatchKey.CompositeImplicitAutograd,
)
_NAMES = (
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)


_lock = threading.Lock()
_tracing = 0  # threads, and frames inside of frames
_hidden: list[tuple[Any, Any, Any]] = []  # operator, key, kernel


def _sizes(x: Any, output_size: Any, factors: Any) -> list[Any]:
    """Of the result, without batch and channels. Symbols stay symbols."""
    if output_size is not None and factors is None:
        return list(output_size)
    if output_size is not None or factors is None:
        raise ValueError("one of output_size and scale_factors, not both")
    return [
        torch.sym_int(n * f) for n, f in zip(x.shape[2:], factors, strict=True)
    ]


def _of_list(packet: Any) -> Callable[..., Any]:
    """`packet.vec` by `packet.default`."""

    def plain(input: Any, output_size: Any, scale_factors: Any) -> Any:
        size = _sizes(input, output_size, scale_factors)
        return packet.default(input, size, *(scale_factors or ()))

    def aligned(
        input: Any, output_size: Any, align_corners: bool, scale_factors: Any
    ) -> Any:
        size = _sizes(input, output_size, scale_factors)
        return packet.default(
            input, size, align_corners, *(scale_factors or ())
        )

    names = [a.name for a in packet.vec._schema.arguments]
    return aligned if "align_corners" in names else plain


@contextlib.contextmanager
def kept(inputs: Sequence[Any]) -> Iterator[None]:
    """While AOTAutograd traces: graphs of these inputs have the operators, and
    their gradients. On a GPU all stays as torch has it: the device has no
    kernel for upsampling, but for indices; so have gradients of sizes that are
    symbols, which torch's shape functions refuse for some of the operators."""
    if any(_is_apart(x) for x in inputs) or _has_symbolic_gradient(inputs):
        yield
        return
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _is_apart(x: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return False
    return x.device.type not in compat.HOST_DEVICES


def _has_symbolic_gradient(inputs: Sequence[Any]) -> bool:
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    return (
        torch.is_grad_enabled()
        and any(x.requires_grad for x in tensors)
        and any(
            isinstance(n, torch.SymInt)
            for x in inputs
            for n in (x.shape if isinstance(x, torch.Tensor) else (x,))
        )
    )


def _count(change: int) -> None:
    """Who comes first hides the kernels, who is last puts them back."""
    global _tracing
    with _lock:
        if _tracing == 0:
            _hide()
        _tracing += change
        if _tracing == 0:
            _show()


def _hide() -> None:
    for name in _NAMES:
        packet = getattr(torch.ops.aten, name)
        own = _of_list(packet)
        for key in _KEYS:
            _put(packet.default, key, None)
            _put(packet.vec, key, own)


def _put(op: Any, key: Any, kernel: Any) -> None:
    _hidden.append((op, key, op.py_kernels.pop(key, None)))
    if kernel is not None:
        op.py_kernels[key] = kernel
    op._dispatch_cache.clear()


def _show() -> None:
    for op, key, kernel in _hidden:
        op.py_kernels.pop(key, None)
        if kernel is not None:
            op.py_kernels[key] = kernel
        op._dispatch_cache.clear()
    _hidden.clear()
