"""Operators that the importer spells in other rows: those with a list of
results, each of which is a view, random ones of a tensor's sizes, cat of
several dtypes, and as_strided."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import (
    attention,
    carried,
    cuda_attention,
    draws,
    foreach,
    grouped,
    mutations,
    pairs,
    pooling,
    schema,
)
from .schema import DTYPE, DTYPES, INT, INTS, NONE, VALUE, VALUES, Refused
from .sizes import is_symbolic

aten = torch.ops.aten
Rewrite = Callable[[Any, torch.fx.Node, Any], Sequence[int | None]]


def _slices(at: Any, node: torch.fx.Node, values: Sequence[Any]) -> list[int]:
    """Consecutive parts along a dimension."""
    source: Any = node.args[0]
    axis = schema.argument(node, 2, "dim", 0)
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
    axis = schema.argument(node, 1, "dim", 0)
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
    tensors: Any = schema.argument(node, 0, "tensors", ())
    refs = []
    for t in tensors:
        ref, x = at.ref(t), t.meta["val"]
        if x.dtype != value.dtype:
            attrs = [VALUE, ref, DTYPE, DTYPES[value.dtype][0]]
            x = x.to(value.dtype)
            ref = at.add(node, "prims::convert_element_type", attrs, x)
        refs.append(ref)
    axis = at.sizes.dim(schema.argument(node, 1, "dim", 0))
    return [at.add(node, "cat", [VALUES, refs, INT, axis], value)]


def _cat_of_several(
    at: Any, node: torch.fx.Node, value: Any
) -> Sequence[int | None]:
    tensors: Any = schema.argument(node, 0, "tensors", ())
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
    strides: Any = value.stride()
    hints = [n.node.hint if is_symbolic(n) else n for n in strides]
    if None in hints or not statically_known_true(value.storage_offset() == 0):
        return None
    order = sorted(range(value.dim()), key=lambda i: (-(hints[i] or 0), i))
    dense: Any = 1
    for axis in reversed(order):
        if not statically_known_true(strides[axis] == dense):
            return None
        dense *= value.shape[axis]
    return None if order == sorted(order) else order


def _in_memory_order(at: Any, node: torch.fx.Node, of: Any, order: Any) -> int:
    x = of.meta["val"].permute(order)
    attrs = [VALUE, schema.permuted(at, node, at.ref(of), order, x)]
    return int(at.add(node, "clone", attrs, x))


def _reading(at: Any, node: torch.fx.Node, x: int) -> list[Any]:
    """The node's attributes, of x in place of its operand."""
    row: Any = schema.find_row(node.target)
    source: Any = node.args[0]
    attrs = schema.attributes(at, row, node.args, node.kwargs)
    attrs[:2] = [VALUE, x]
    last = 2 * len(row.params) - 2
    if attrs[last : last + 1] in ([], [NONE]):
        offset = source.meta["val"].storage_offset()
        attrs[last:] = [INT, at.sizes.dim(offset)]
    return attrs


def _as_strided(at: Any, node: torch.fx.Node, value: Any) -> list[int | None]:
    """The engine's values lie in the order of their axes, eager's may not:
    what strides count in is made as eager has it."""
    source: Any = node.args[0]
    root = _root(source)
    made = root.meta.get("val") if root.op == "call_function" else None
    order = _turned(made) if isinstance(made, torch.Tensor) else None
    if order is None:
        return list(at.row_node(node, value))
    attrs = _reading(at, node, _in_memory_order(at, node, root, order))
    return [at.add(node, "as_strided", attrs, value)]


def _as_strided_scatter(
    at: Any, node: torch.fx.Node, value: Any
) -> list[int | None]:
    """The same, and back."""
    source: Any = node.args[0]
    order = _turned(source.meta["val"])
    if order is None:
        return list(at.row_node(node, value))
    attrs = _reading(at, node, _in_memory_order(at, node, source, order))
    x = at.add(node, "as_strided_scatter", attrs, value.permute(order))
    back = [order.index(i) for i in range(len(order))]
    return [schema.permuted(at, node, x, back, value)]


def _of_one_shape(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dim() == b.dim() and all(
        statically_known_true(m == n)
        for m, n in zip(a.shape, b.shape, strict=True)
    )


def _log_sigmoid_forward(
    at: Any, node: torch.fx.Node, values: Sequence[Any]
) -> Sequence[int | None]:
    """On a GPU the buffer is empty: nobody reads it."""
    source: Any = node.args[0]
    if _of_one_shape(*values):
        return list(type(at).row_node(at, node, values))
    attrs = [VALUE, at.ref(source)]
    result = at.add(node, "log_sigmoid", attrs, values[0])
    if 1 not in schema.used_items(node):
        return [result, None]
    attrs = [INTS, at.sizes.dims(values[1].shape)]
    attrs += [DTYPE, DTYPES[values[1].dtype][0]]
    return [result, at.add(node, "empty.memory_format", attrs, values[1])]


def _log_sigmoid_backward(
    at: Any, node: torch.fx.Node, value: Any
) -> Sequence[int | None]:
    grad, source, buffer = node.args[:3]
    if not _of_one_shape(value, buffer.meta["val"]):  # type: ignore[union-attr]
        buffer = source
    attrs: list[Any] = []
    for operand in (grad, source, buffer):
        attrs += [VALUE, at.ref(operand)]
    return [at.add(node, "log_sigmoid_backward", attrs, value)]


class InOrder:
    """An operator of torch whose first operand lies in memory in an order of
    axes that is not theirs, which its strides count in."""

    def __init__(self, target: Any, order: list[int]) -> None:
        self.target, self.order = target, order
        self.back = [order.index(i) for i in range(len(order))]

    def __call__(self, x: torch.Tensor, *args: Any, **named: Any) -> Any:
        x = x.permute(self.order).contiguous().permute(self.back)
        return self.target(x, *args, **named)


def host_target(node: torch.fx.Node, target: Any) -> Any:
    """What a HOST node of an operator calls. One that counts in memory gets its
    operand in the order of its axes."""
    if node.target in cuda_attention.HOST_TARGETS:
        return cuda_attention.HOST_TARGETS[node.target](target)
    if node.target not in _IN_MEMORY:
        return target
    source: Any = node.args[0]
    order = _turned(source.meta["val"])
    return target if order is None else InOrder(target, order)


_IN_MEMORY = (aten.as_strided.default, aten.as_strided_scatter.default)
REWRITES: dict[Any, Rewrite] = {
    aten.as_strided.default: _as_strided,
    aten.as_strided_scatter.default: _as_strided_scatter,
    aten.cat.default: _cat_of_several,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    aten.log_sigmoid_forward.default: _log_sigmoid_forward,
    torch.ops.higher_order.auto_functionalized_v2: mutations.rewrite,
    aten.split.Tensor: _slices,
    aten.split_with_sizes.default: _slices,
    aten.unsafe_split.Tensor: _slices,
    aten.unsafe_split_with_sizes.default: _slices,
    aten.unbind.int: _unbind,
    **cuda_attention.REWRITES,
    **pooling.REWRITES,
    **dict.fromkeys(carried.CONVERSIONS, carried.convert),
    aten.view.dtype: carried.view_dtype,
    aten._neg_view.default: pairs.negated,
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
    found = REWRITES.get(target) or attention.rewrite_of(target)
    return found or grouped.rewrite_of(target)
