"""Operators that the importer spells in other rows: those with a list of
results, each of which is a view, random ones of a tensor's sizes, cat of
several dtypes, and as_strided."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import attention, cuda_attention, draws, foreach, mutations
from .schema import DTYPE, DTYPES, INT, INTS, VALUE, VALUES, Refused
from .sizes import is_symbolic

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


def _cat(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    """Tensors of other dtypes than the result's are converted first."""
    tensors: Any = _argument(node, 0, "tensors", ())
    refs = []
    for t in tensors:
        ref, x = at.ref(t), t.meta["val"]
        if x.dtype != value.dtype:
            attrs = [VALUE, ref, DTYPE, DTYPES[value.dtype][0]]
            x = x.to(value.dtype)
            ref = at.add(node, "prims::convert_element_type", attrs, x)
        refs.append(ref)
    axis = at.sizes.dim(_argument(node, 1, "dim", 0))
    return [at.add(node, "cat", [VALUES, refs, INT, axis], value)]


def _cat_of_several(
    at: Any, node: torch.fx.Node, value: Any
) -> Sequence[int | None]:
    tensors: Any = _argument(node, 0, "tensors", ())
    dtypes = {t.meta["val"].dtype for t in tensors}
    known = all(DTYPES.get(d, (0, False))[1] for d in dtypes)
    write = _cat if len(dtypes) > 1 and known else type(at).row_node
    return write(at, node, value)


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """The value whose memory a chain of views shows."""
    while node.op == "call_function" and node.args:
        of: Any = node.args[0]
        maker: Any = of if node.target is operator.getitem else node
        if not getattr(maker.target, "is_view", False):
            break
        node = maker.args[0]
    return node


def _turned(value: torch.Tensor) -> list[int] | None:
    """The axes in the order of memory, if that is dense and not theirs."""
    strides = value.stride()
    if any(is_symbolic(n) for n in (*value.shape, *strides)):
        return None
    order = sorted(range(value.dim()), key=lambda i: (-strides[i], i))
    turned = value.permute(order)
    dense = turned.is_contiguous() and value.storage_offset() == 0
    return order if dense and not value.is_contiguous() else None


def _as_strided(at: Any, node: torch.fx.Node, value: Any) -> list[int | None]:
    """The engine's values lie in the order of their axes, eager's may not:
    what strides count in is made as eager has it."""
    source: Any = node.args[0]
    root = _root(source)
    found = root.op == "call_function" and isinstance(
        root.meta.get("val"), torch.Tensor
    )
    order = _turned(root.meta["val"]) if found else None
    if order is None:
        return list(at.row_node(node, value))
    size = _argument(node, 1, "size", None)
    strides = _argument(node, 2, "stride", None)
    offset = _argument(node, 3, "storage_offset", None)
    if offset is None:
        offset = source.meta["val"].storage_offset()
    x = root.meta["val"].permute(order)
    ref = at.add(
        node, "permute", [VALUE, at.ref(root), INTS, at.sizes.dims(order)], x
    )
    ref = at.add(node, "clone", [VALUE, ref], x)
    attrs = [VALUE, ref, INTS, at.sizes.dims(size)]
    attrs += [INTS, at.sizes.dims(strides), INT, at.sizes.dim(offset)]
    return [at.add(node, "as_strided", attrs, value)]


REWRITES: dict[Any, Rewrite] = {
    aten.as_strided.default: _as_strided,
    aten.cat.default: _cat_of_several,
    torch.ops.higher_order.auto_functionalized_v2: mutations.rewrite,
    aten.split.Tensor: _slices,
    aten.split_with_sizes.default: _slices,
    aten.unsafe_split.Tensor: _slices,
    aten.unsafe_split_with_sizes.default: _slices,
    aten.unbind.int: _unbind,
    **cuda_attention.REWRITES,
    aten.native_dropout.default: draws.dropout,
    aten.rand_like.default: draws.rand_like,
    aten.randn_like.default: draws.randn_like,
    aten.uniform.default: draws.uniform,
    aten.normal_functional.default: draws.normal,
    aten.bernoulli.default: draws.bernoulli,
    aten.bernoulli.p: draws.bernoulli_p,
    aten.randint_like.default: draws.randint_like,
    aten.randint_like.low_dtype: draws.randint_like,
}


def find(target: Any) -> Rewrite | None:
    """The function that writes a node of this operator, if there is one."""
    if foreach.is_foreach(target):
        return foreach.expand
    return REWRITES.get(target) or attention.rewrite_of(target)
