"""Operators that the importer spells in other rows: those with a list of
results, each of which is a view, and attention without its statistics."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .schema import BOOL, FLOAT, INT, NONE, VALUE, Refused

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


def _attention(
    at: Any, node: torch.fx.Node, values: Sequence[Any]
) -> Sequence[int | None]:
    """Its second result, the logarithms of the sums, is for backward."""
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] != 0:
            return at.row_node(node, values)  # type: ignore[no-any-return]
    query, key, value = node.args[:3]
    if _argument(node, 3, "dropout_p", 0.0) != 0.0:
        raise Refused("attention with dropout")
    mask = node.kwargs.get("attn_mask")
    scale: Any = node.kwargs.get("scale")
    heads = [
        at.sizes.dim(t.meta["val"].shape[1])  # type: ignore
        for t in (query, key)
    ]
    attrs = [
        VALUE,
        at.ref(query),
        VALUE,
        at.ref(key),
        VALUE,
        at.ref(value),
        *((VALUE, at.ref(mask)) if mask is not None else (NONE, None)),
        FLOAT,
        0.0,
        BOOL,
        bool(_argument(node, 4, "is_causal", False)),
        *((NONE, None) if scale is None else (FLOAT, float(scale))),
        BOOL,
        heads[0] != heads[1],
    ]
    ref = at.add(node, "scaled_dot_product_attention", attrs, values[0])
    return [ref, None]


REWRITES: dict[Any, Rewrite] = {
    aten.split.Tensor: _slices,
    aten.split_with_sizes.default: _slices,
    aten.unsafe_split.Tensor: _slices,
    aten.unsafe_split_with_sizes.default: _slices,
    aten.unbind.int: _unbind,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
}
