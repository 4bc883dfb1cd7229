"""HOST nodes: an operator of torch, called by the engine on its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import cuda_seeds
from .compat import HOST_DEVICES
from .schema import TOKENS
from .sizes import (
    Args,
    Source,
    arguments,
    evaluator,
    expression,
    is_symbolic,
)

Call = Callable[[Args, tuple[Any, ...]], tuple[Any, ...]]


class Operand(int):
    """The tensor at this position of the call's tensors."""


class Size:
    def __init__(self, value: Callable[[Args], Any]) -> None:
        self.value = value


class Arguments:
    """An FX node's arguments with the changing parts marked."""

    def __init__(
        self,
        sources: dict[Any, Source],
        constants: Mapping[Any, Any],
        where: torch.device | None = None,
    ) -> None:
        """where: the call's tensors are, whatever device the graph says. None:
        there."""
        self.sources = sources
        self.constants = constants
        self.where = where
        self.tensors: list[Any] = []  # FX nodes
        self.sizes: list[Size] = []

    def template(self, x: Any) -> Any:
        if isinstance(x, torch.fx.Node):
            return self._node(x)
        if is_symbolic(x):
            return self._size(x)
        if isinstance(x, (list, tuple)):
            # some higher-order operators tell the two apart
            parts = [self.template(y) for y in x]
            return tuple(parts) if isinstance(x, tuple) else parts
        if isinstance(x, dict):
            return {k: self.template(v) for k, v in x.items()}
        if isinstance(x, torch.device) and self.where is not None:
            return self.where if x.type in HOST_DEVICES else x
        return x

    def _node(self, node: Any) -> Any:
        value = node.meta.get("val")
        if node.target in TOKENS or self.constants.get(node, node) is None:
            return None
        if isinstance(value, torch.Tensor):
            if node not in self.tensors:
                self.tensors.append(node)
            return Operand(self.tensors.index(node))
        if value is not None and is_symbolic(value):
            return self._size(value)
        return self.constants.get(node, value)

    def _size(self, value: Any) -> Size:
        self.sizes.append(Size(evaluator(expression(value), self.sources)))
        return self.sizes[-1]

    def reads(self, ints: Mapping[int, int]) -> list[int]:
        """Which integers of the call it is told. ints: the engine's number of
        those arguments that are integers."""
        found: set[int] = set()
        for size in self.sizes:
            formula = getattr(size.value, "formula", None)
            found |= set(ints) if formula is None else arguments(formula)
        return [ints[i] for i in sorted(found & set(ints))]


def _text(x: Any, names: dict[str, Any]) -> str:
    """A template as Python: operands and sizes by call, the rest by name."""
    kind = type(x)
    if kind is Operand:
        return f"tensors[{int(x)}]"
    if kind is list:
        return f"[{', '.join(_text(y, names) for y in x)}]"
    if kind is tuple:
        return f"({''.join(_text(y, names) + ', ' for y in x)})"
    if kind is dict:
        pairs = (f"{k!r}: {_text(v, names)}" for k, v in x.items())
        return f"{{{', '.join(pairs)}}}"
    name = f"x{len(names)}"
    names[name] = x.value if kind is Size else x
    return f"{name}(args)" if kind is Size else name


def _filled(target: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
    """f(args of the graph, tensors): the operator's call. Written once: a walk
    through the template takes as long as a small operator."""
    overload = isinstance(target, torch._ops.OpOverload)
    names = {"target": target._op if overload else target}
    parts = [_text(x, names) for x in args]
    if kwargs:
        parts.append(f"**{_text(dict(kwargs), names)}")
    call: Callable[..., Any] = eval(
        f"lambda args, tensors: target({', '.join(parts)})", names
    )
    return call


# What helps where a kernel of torch's own gives less than its schema says.
_HINTS = {
    # It looks whether the input requires a gradient, not whether parameters do.
    "aten.mkldnn_rnn_layer.default": (
        "torch traced nn.LSTM for inference; let the input require a gradient, "
        "or compile and run it under torch.backends.mkldnn.flags(enabled=False)"
    ),
}


def _as_said(target: Any, result: Any, dtype: torch.dtype) -> Any:
    """A result that is not what the graph says. Kernels of torch's own may
    give another dtype; of others' operators the Meta function is wrong, which
    the engine says."""
    if not isinstance(result, torch.Tensor):
        hint = _HINTS.get(str(target), "correct the kernel")
        raise TypeError(
            f"{target}: the kernel gives a {type(result).__name__} where its "
            f"schema has a Tensor: {hint}"
        )
    theirs = isinstance(target, torch._ops.OpOverload)
    if theirs and target.namespace not in ("aten", "prims"):
        return result
    return result.to(dtype)


def make_call(
    target: Any,
    args: Any,
    kwargs: Any,
    keep: list[int] | None,
    dtypes: list[torch.dtype],
    resolve: bool,
    dense: torch.device | None = None,
    orders: Sequence[list[int] | None] = (),
) -> Call:
    """The function of a HOST node.

    args and kwargs are templates; keep: which results are tensors (None: the
    result is one); dtypes: what the graph says of them, which a few kernels
    do not keep to (statistics of a bfloat16 layer_norm); resolve: results may
    have lazy conj or neg bits, which the engine's memory cannot carry; dense:
    the GPU that they must be on, and dense, as the engine cannot copy its
    memory itself (seeds of attention are on the CPU); orders: of the axes in
    which results are left, by result (images.py).

    `parts` of the call is what it is made of, for who writes it to a file.
    """

    filled = _filled(target, args, kwargs)

    def settled(r: Any, dtype: torch.dtype) -> Any:
        if resolve:
            r = r.resolve_conj().resolve_neg()
        said = getattr(r, "dtype", None) is dtype
        return r if said else _as_said(target, r, dtype)

    def call_one(call_args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        return (settled(filled(call_args, tensors), dtypes[0]),)

    def call(call_args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        found = filled(call_args, tensors)
        results = (found,) if keep is None else tuple(found[i] for i in keep)
        results = tuple(
            settled(r, d) for r, d in zip(results, dtypes, strict=True)
        )
        if any(orders):
            results = tuple(
                r if o is None else r.permute(o)
                for r, o in zip(results, orders, strict=True)
            )
        if dense is not None:
            results = tuple(cuda_seeds.on_gpu(r, dense) for r in results)
        return results

    plain = keep is None and dense is None and not any(orders)
    chosen: Any = call_one if plain else call
    chosen.parts = (
        "call",
        (target, args, kwargs, keep, dtypes, resolve, dense, list(orders)),
    )
    return chosen  # type: ignore[no-any-return]
