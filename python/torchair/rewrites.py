"""Operators that the importer spells in other rows: those with a list of
results, each of which is a view, and dropout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import draws, foreach, mutations
from .schema import FLOAT, INT, VALUE, Refused

aten = torch.ops.aten
Rewrite = Callable[[Any, torch.fx.Node, Any], Sequence[int | None]]


def _argument(node: torch.fx.Node, index: int, name: str, default: Any) -> Any:
    if index < len(node.args):
        return node.args[index]
    return node.kwargs.get(name, default)


def _slices(at: Any, node: torch.fx.Node, values: Sequence[Any]) -> list[int]:
    """Consecutive parts along a dimension."""
    source: Any = node.args[0]
    axis = _argument(node, 2, "dim", 0)
    if not isinstance(axis, int):
        raise Refused("a dimension that is not constant")
    begin = at.sizes.dim(0)
    refs = []
    for value in values:
        end = at.graph.dim_op("+", begin, at.sizes.dim(value.shape[axis]))
        attrs = [
            VALUE,
            at.ref(source),
            INT,
            at.sizes.dim(axis),
            INT,
            begin,
            INT,
            end,
            INT,
            at.sizes.dim(1),
        ]
        refs.append(at.add(node, "slice.Tensor", attrs, value))
        begin = end
    return refs


def _unbind(at: Any, node: torch.fx.Node, values: Sequence[Any]) -> list[int]:
    source: Any = node.args[0]
    axis = _argument(node, 1, "dim", 0)
    return [
        at.add(
            node,
            "select.int",
            [
                VALUE,
                at.ref(source),
                INT,
                at.sizes.dim(axis),
                INT,
                at.sizes.dim(i),
            ],
            value,
        )
        for i, value in enumerate(values)
    ]


def _dropout(
    at: Any, node: torch.fx.Node, values: Sequence[Any]
) -> Sequence[int | None]:
    """torch draws which elements stay; the product fuses with what follows."""
    x: Any = node.args[0]
    p = _argument(node, 1, "p", 0.5)
    if _argument(node, 2, "train", None) is False or not isinstance(p, float):
        raise Refused("dropout that is not training")
    call = draws.in_memory_order(draws.keep_mask(p), [x.meta["val"]])
    (mask,) = at.host(node, "bernoulli", draws.REASON, call, [x], [values[1]])
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    attrs = [VALUE, at.ref(x), VALUE, mask, FLOAT, scale]
    # (x * mask) * scale, which its gradient is too
    return [at.add(node, "native_dropout_backward", attrs, values[0]), mask]


REWRITES: dict[Any, Rewrite] = {
    torch.ops.higher_order.auto_functionalized_v2: mutations.rewrite,
    aten.split.Tensor: _slices,
    aten.split_with_sizes.default: _slices,
    aten.unsafe_split.Tensor: _slices,
    aten.unsafe_split_with_sizes.default: _slices,
    aten.unbind.int: _unbind,
    aten.native_dropout.default: _dropout,
}


def find(target: Any) -> Rewrite | None:
    """The function that writes a node of this operator, if there is one."""
    if foreach.is_foreach(target):
        return foreach.expand
    return REWRITES.get(target)
