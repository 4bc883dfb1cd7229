"""Products of groups of rows as libraries spell them, where torch's own
`_grouped_mm` would not be traced: rows of the engine's operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import cuda, schema
from .schema import INT, NONE, VALUE, Refused

Rewrite = Callable[[Any, torch.fx.Node, Any], Sequence[int | None]]


def _turned(at: Any, node: torch.fx.Node, ref: int, x: torch.Tensor) -> int:
    """A matrix, or each of a stack, with its axes exchanged."""
    attrs = [VALUE, ref, INT, at.sizes.dim(-2), INT, at.sizes.dim(-1)]
    return int(at.add(node, "transpose.int", attrs, x.mT))


def _product(
    at: Any, node: torch.fx.Node, a: int, b: int, offs: int, x: torch.Tensor
) -> int:
    attrs = [VALUE, a, VALUE, b, VALUE, offs, NONE, NONE]
    return int(at.add(node, "_grouped_mm", attrs, x))


def _forward(at: Any, node: torch.fx.Node, value: Any) -> list[int | None]:
    """grouped_mm_fallback(input, weight, offs)"""
    a, b, offs = map(at.ref, node.args)
    return [_product(at, node, a, b, offs, value)]


def _of_weight(
    at: Any, node: torch.fx.Node, a: int, grad: int, offs: int, x: torch.Tensor
) -> int:
    """The gradient in the order in which the weight lies in memory."""
    source, given = (node.args[i].meta["val"] for i in (0, 3))  # type: ignore
    if x.stride(-1) == 1:
        turned = _turned(at, node, a, source)
        return _product(at, node, turned, grad, offs, x)
    turned = _turned(at, node, grad, given)
    found = _product(at, node, turned, a, offs, x.mT)
    return _turned(at, node, found, x.mT)


def _backward(
    at: Any, node: torch.fx.Node, values: Sequence[Any]
) -> list[int | None]:
    """grouped_mm_fallback_backward(input, weight, offs, grad): of both"""
    a, b, offs, grad = map(at.ref, node.args)
    weight: Any = node.args[1]
    used = schema.used_items(node)
    found: list[int | None] = [None, None]
    if 0 in used:
        turned = _turned(at, node, b, weight.meta["val"])
        found[0] = _product(at, node, grad, turned, offs, values[0])
    if 1 in used:
        found[1] = _of_weight(at, node, a, grad, offs, values[1])
    return found


def _on_cpu(rewrite: Rewrite) -> Rewrite:
    """GPUs have no kernel for it."""

    def write(at: Any, node: torch.fx.Node, value: Any) -> Any:
        if at.place >= cuda.PLACE:
            raise Refused(cuda.NO_KERNEL)
        return rewrite(at, node, value)

    return write


_NAMES: dict[str, Rewrite] = {
    "transformers::grouped_mm_fallback": _on_cpu(_forward),
    "transformers::grouped_mm_fallback_backward": _on_cpu(_backward),
}


def rewrite_of(target: Any) -> Rewrite | None:
    """By name: the library may be imported after this."""
    name = getattr(getattr(target, "_schema", None), "name", "")
    return _NAMES.get(name)
