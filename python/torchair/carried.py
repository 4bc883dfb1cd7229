"""Dtypes that the engine has no arithmetic for, as the integers of their size.

Operators that only move such numbers are the engine's own; float8 is converted
from and to float32 by rows of its formats; pairs.py has what complex64 gets.
Everything else is HOST.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import compat, schema
from .schema import DTYPE, DTYPES, VALUE

aten = torch.ops.aten
CONVERSIONS = (
    aten._to_copy.default,
    torch.ops.prims.convert_element_type.default,
)
_CONVERT = "prims::convert_element_type"
_F32, _U8 = torch.float32, torch.uint8
_FORMATS = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
FLOAT8 = {
    d: f"air::float8_{name}"
    for name in _FORMATS
    if (d := getattr(torch, f"float8_{name}", None)) in DTYPES
}


def _saturates() -> bool:
    """Is what is too large for float8_e4m3fn its largest number? Before torch
    2.13 it is NaN."""
    with compat.real_tensors():
        big = torch.full((1,), 1e9, device="cpu").to(torch.float8_e4m3fn)
        return not big.to(_F32).isnan().item()


_CODES = {d: f"{row}_code" for d, row in FLOAT8.items()}
if not _saturates():
    _CODES[torch.float8_e4m3fn] += "_nan"
_MOVES = {
    aten.cat.default,
    aten.clone.default,
    aten.copy.default,
    aten.copy_.default,
    aten.flip.default,
    aten.repeat.default,
    aten.roll.default,
    aten.select_backward.default,
    aten.select_scatter.default,
    aten.slice_backward.default,
    aten.slice_scatter.default,
    aten.stack.default,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unbind.int,
}
_ZEROS = {
    aten.new_zeros.default,
    aten.zeros.default,
    aten.zeros_like.default,
}
_INDEXED = {
    aten.gather.default,
    aten.index.Tensor,
    aten.index_copy.default,
    aten.index_put.default,
    aten.index_select.default,
}
_INDICES = {torch.int32, torch.int64, torch.bool}


def _tensors(node: torch.fx.Node, value: Any) -> Iterator[torch.Tensor]:
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    values += [n.meta.get("val") for n in node.all_input_nodes]
    return (v for v in values if isinstance(v, torch.Tensor))


def unable(node: torch.fx.Node, value: Any) -> torch.dtype | None:
    """A dtype of an operand or result that keeps the engine from the node."""
    dtypes = {t.dtype for t in _tensors(node, value)}
    without = [d for d in dtypes if not DTYPES[d][1]]
    able = (
        not without
        or _moves(node, dtypes, without[0])
        or converts(node, value)
        or _renames(node, dtypes)
    )
    return None if able else without[0]


def _renames(node: torch.fx.Node, dtypes: set[torch.dtype]) -> bool:
    """Another dtype for the same bytes, which the engine calls the same."""
    one_name = len({DTYPES[d][0] for d in dtypes}) == 1
    return node.target is aten.view.dtype and one_name


def _moves(
    node: torch.fx.Node, dtypes: set[torch.dtype], one: torch.dtype
) -> bool:
    if node.target in _INDEXED:
        adds = len(node.args) > 3 and node.args[3] is True
        return not adds and dtypes - _INDICES == {one}
    row = schema.find_row(node.target)
    views = row is not None and "view" in row.kinds
    if node.target in _ZEROS:  # all bits of which are
        return not one.is_floating_point
    return dtypes == {one} and (views or node.target in _MOVES)


def converts(node: torch.fx.Node, value: Any) -> bool:
    """A conversion from or to float8 that the engine has rows for."""
    if node.target not in CONVERSIONS or not isinstance(value, torch.Tensor):
        return False
    dtypes = {t.dtype for t in _tensors(node, value)}
    return not dtypes.isdisjoint(FLOAT8) and all(
        d in FLOAT8 or DTYPES[d][1] for d in dtypes
    )


def convert(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    """The rows of a conversion: of float8 by float32, as eager does."""
    if not converts(node, value):
        return tuple(at.row_node(node, value))
    source: Any = node.args[0]
    x, ref = source.meta["val"], at.ref(source)

    def add(op: str, dtype: torch.dtype, *attrs: Any) -> None:
        nonlocal x, ref
        x = x.to(dtype)
        ref = at.add(node, op, [VALUE, ref, *attrs], x)

    def become(dtype: torch.dtype) -> None:
        if x.dtype != dtype:
            add(_CONVERT, dtype, DTYPE, DTYPES[dtype][0])

    if x.dtype == value.dtype:
        return [at.add(node, "clone", [VALUE, ref], value)]
    if x.dtype in FLOAT8:
        add(f"{FLOAT8[x.dtype]}_value", _F32)
    if value.dtype in FLOAT8:
        become(_F32)
        add(_CODES[value.dtype], _F32)
        become(_U8)
    else:
        become(value.dtype)
    return [ref]


def view_dtype(
    at: Any, node: torch.fx.Node, value: Any
) -> Sequence[int | None]:
    source: Any = node.args[0]
    if not _renames(node, {source.meta["val"].dtype, value.dtype}):
        return tuple(at.row_node(node, value))
    return [at.add(node, "alias", [VALUE, at.ref(source)], value)]
