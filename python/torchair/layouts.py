"""How operands of HOST nodes lie: as in eager where the operator may look.

The engine's values are dense, and a copy that changes nothing but strides is
none to it. Kernels of torch take operands as they lie, but for some
(`mkldnn_rnn_layer`) that trust in the graph's `contiguous()`. A kernel of a
custom operator may read `data_ptr()`: it gets the strides that it has in
eager, unless the operator's tag says that any will do.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from . import comm, forms, schema

aten = torch.ops.aten
_ANY_WILL_DO = getattr(torch.Tag, "flexible_layout", None)


def operands(
    importing: Any, node: Node, tensors: Sequence[Node], refs: Sequence[int]
) -> list[int]:
    """refs of what the HOST node reads, copied where they lie otherwise."""
    found = list(refs)
    target: Any = node.target
    space = schema.namespace_of(target)
    if not isinstance(target, torch._ops.OpOverload) or space == comm.NAMESPACE:
        return found
    looks = space not in ("aten", "prims") and _ANY_WILL_DO not in target.tags
    written = _written(node)
    for i, tensor in enumerate(tensors):
        value = tensor.meta["val"]
        if tensor in written:
            continue
        if value.layout is torch.strided and _is_elsewhere(tensor, looks):
            strides = [importing.sizes.dim(n) for n in value.stride()]
            attrs = [schema.VALUE, found[i], schema.INTS, strides]
            found[i] = importing.add(node, "air::restride", attrs, value)
    return found


def _written(node: Node) -> list[Any]:
    """Operands that must not be copies."""
    given = schema.bound(node)
    return [given[a.name] for a in forms.writes(node.target)]


def _is_elsewhere(tensor: Node, looks: bool) -> bool:
    """Is it made with strides that the engine does not give it? looks: the
    operator may want any strides, not just those of copies."""
    if 0 in _expressions(tensor.meta["val"].stride()):
        return False  # a broadcast one
    made = _made_by(tensor)
    if made.op != "call_function":
        return False  # an argument of the graph lies as it does
    value = made.meta["val"]
    if made.target is aten.clone.default:
        copied: Any = made.args[0]
        before, now = copied.meta["val"].stride(), value.stride()
        if _expressions(before) != _expressions(now):
            return True
    return looks and not _is_dense(value)


def _made_by(node: Node) -> Node:
    """What the node is a view of."""
    while True:
        of: Any = node.args[0] if node.args else None
        parts = node.target is operator.getitem and isinstance(of, Node)
        maker = of if parts else node
        if not getattr(maker.target, "is_view", False):
            return node
        node = maker.args[0]  # type: ignore[assignment]


def _expressions(numbers: Iterable[Any]) -> list[Any]:
    """To be compared without a guard."""
    return [n.node.expr if isinstance(n, torch.SymInt) else n for n in numbers]


def _is_dense(value: torch.Tensor) -> bool:
    """Row by row, as the engine makes its values?"""
    step: Any = 1
    sizes, strides = _expressions(value.shape), _expressions(value.stride())
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step = step * size
    return True
