"""Operators over lists of tensors (`_foreach_add`), which optimizers are made
of: one node of the plain operator for each tensor, so that they fuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import schema
from .schema import Refused

# Overload of the list operator -> overload of the plain one.
_OVERLOADS = {
    "default": ("default",),
    "Scalar": ("Tensor_Scalar", "Scalar", "default"),
    "ScalarList": ("Tensor_Scalar", "Scalar", "default"),
    "List": ("Tensor", "Tensor_Tensor", "default"),
    "Tensor": ("Tensor", "default"),
    "ScalarAndTensor": ("Scalar",),
}
_PREFIX = "aten::_foreach_"


def is_foreach(target: Any) -> bool:
    name = getattr(getattr(target, "_schema", None), "name", "")
    return isinstance(name, str) and name.startswith(_PREFIX)


def _plain_row(target: Any) -> schema.Row:
    packet = getattr(
        torch.ops.aten, target._schema.name.removeprefix(_PREFIX), None
    )
    for name in _OVERLOADS.get(target._overloadname, ()):
        if packet is not None and name in packet.overloads():
            row = schema.find_row(getattr(packet, name))
            if row is not None:
                return row
    raise Refused("no row in the op table for one tensor of the list")


def _item(x: Any, i: int) -> Any:
    return x[i] if isinstance(x, (list, tuple)) else x


def expand(
    at: Any, node: torch.fx.Node, values: Sequence[Any]
) -> Sequence[int | None]:
    """The results for `values`, torch's fake ones."""
    row = _plain_row(node.target)
    if len(node.args) > len(row.params) or not node.kwargs.keys() <= set(
        row.params
    ):
        raise Refused("an argument that the operator of one tensor has not")
    refs: list[int | None] = []
    for i, value in enumerate(values):
        args = [_item(x, i) for x in node.args]
        kwargs = {k: _item(x, i) for k, x in node.kwargs.items()}
        attrs = schema.attributes(at, row, args, kwargs)
        refs.append(at.add(node, row.name, attrs, value))
    return refs
