"""Arithmetic of complex64, which the engine has as pairs of float32: rows of
its own, which take tensors of pairs and, where these have no imaginary part, of
float32. What no row is for, and other complex dtypes, is HOST."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .origin import location_of
from .schema import (
    BOOL,
    DTYPE,
    DTYPES,
    FLOAT,
    INT,
    INTS,
    VALUE,
    Refused,
    bound,
)

aten = torch.ops.aten
_F32, _C64 = torch.float32, torch.complex64
_CONVERT = torch.ops.prims.convert_element_type.default
_ADD, _SUB = "air::complex_add", "air::complex_sub"
_MUL, _DIV = "air::complex_mul", "air::complex_div"
Write = Callable[[Any, torch.fx.Node, Any], Sequence[int | None]]


# ---- operands ----


def _add(at: Any, node: torch.fx.Node, op: str, *attrs: Any) -> int:
    """A node in between, of no value of torch's."""
    (ref,) = at.graph.node(op, list(attrs), location_of(node), 1)
    return int(ref)


def _full(at: Any, node: torch.fx.Node, number: Any, shape: Any) -> int:
    attrs = [INTS, at.sizes.dims(shape), *number, DTYPE, DTYPES[_F32][0]]
    return _add(at, node, "full", *attrs)


def _number(at: Any, node: torch.fx.Node, x: Any, shape: Any = ()) -> int:
    """A number as a tensor of float32, or of pairs where it is complex."""
    if isinstance(x, complex):
        real = _full(at, node, (FLOAT, x.real), shape)
        imag = _full(at, node, (FLOAT, x.imag), shape)
        return _add(at, node, "complex", VALUE, real, VALUE, imag)
    if isinstance(x, (int, torch.SymInt)) and not isinstance(x, bool):
        return _full(at, node, (INT, at.sizes.dim(x)), shape)
    if isinstance(x, (float, bool)):
        return _full(at, node, (FLOAT, float(x)), shape)
    raise Refused(f"a number of type {type(x).__name__}")


def _operand(at: Any, node: torch.fx.Node, x: Any) -> int:
    value = x.meta["val"] if isinstance(x, torch.fx.Node) else x
    if not isinstance(value, torch.Tensor):
        return _number(at, node, value)
    if value.dtype in (_F32, _C64):
        return int(at.ref(x))
    if not DTYPES[value.dtype][1] or value.dtype == torch.float64:
        raise Refused(f"{value.dtype} beside {_C64}")
    attrs = [VALUE, at.ref(x), DTYPE, DTYPES[_F32][0]]
    like = torch.empty_like(value, dtype=_F32)
    return int(at.add(node, "prims::convert_element_type", attrs, like))


# ---- operators ----


def _row(row: str, *names: str) -> Write:
    """The row on the tensors that the arguments are."""

    def write(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
        args = bound(node)
        attrs = []
        for name in names:
            attrs += [VALUE, _operand(at, node, args[name])]
        return [at.add(node, row, attrs, value)]

    return write


def _of_floats(row: str, *names: str) -> Write:
    """Where these are not float32, eager has an error of its own."""
    write = _row(row, *names)

    def checked(at: Any, node: Any, value: Any) -> Sequence[int | None]:
        args = bound(node)
        if any(args[name].meta["val"].dtype != _F32 for name in names):
            raise Refused("parts of another dtype than float32")
        return write(at, node, value)

    return checked


def _sum(row: str, first: str, second: str) -> Write:
    """first + alpha second; product by product, as eager rounds."""

    def write(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
        args = bound(node)
        attrs = [VALUE, _operand(at, node, args[first])]
        other = _operand(at, node, args[second])
        if (alpha := args.get("alpha", 1)) != 1:
            scaled = [VALUE, other, VALUE, _operand(at, node, alpha)]
            other = _add(at, node, _MUL, *scaled)
        return [at.add(node, row, [*attrs, VALUE, other], value)]

    return write


def _fold(row: str) -> Write:
    def write(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
        args = bound(node)
        dims = args.get("dim")
        attrs = [VALUE, _operand(at, node, args["self"])]
        attrs += [INTS, at.sizes.dims([] if dims is None else dims)]
        attrs += [BOOL, args.get("keepdim", False)]
        return [at.add(node, row, attrs, value)]

    return write


def _square(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    if node.args[1] != 2:
        raise Refused("a power of complex numbers other than the square")
    x = [VALUE, _operand(at, node, node.args[0])]
    return [at.add(node, _MUL, [*x, *x], value)]


def _reciprocal(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    attrs = [VALUE, _number(at, node, 1), VALUE, at.ref(node.args[0])]
    return [at.add(node, _DIV, attrs, value)]


def _same(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    return [at.add(node, "alias", [VALUE, at.ref(node.args[0])], value)]


def _convert(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    """Of a complex number, its real part."""
    source: Any = node.args[0]
    attrs = [VALUE, _operand(at, node, source)]
    if value.dtype == source.meta["val"].dtype:
        return [at.add(node, "clone", attrs, value)]
    if value.dtype == _C64:
        attrs += [VALUE, _number(at, node, 0.0)]
        return [at.add(node, "complex", attrs, value)]
    real = _add(at, node, "air::complex_real", *attrs)
    attrs = [VALUE, real, DTYPE, DTYPES[value.dtype][0]]
    return [at.add(node, "prims::convert_element_type", attrs, value)]


def _filled(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    args = bound(node)
    number = args.get("fill_value", args.get("s", 1))
    if not isinstance(number, (int, float, complex)):
        raise Refused(f"a number of type {type(number).__name__}")
    ref = _number(at, node, complex(number), value.shape)
    return [at.check_type(ref, value)]


def negated(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    """_neg_view, of real tensors too: its result is made, not a view."""
    row = "air::complex_neg" if value.dtype == _C64 else "neg"
    return [at.add(node, row, [VALUE, at.ref(node.args[0])], value)]


def _where(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    mask, *others = node.args
    attrs = [VALUE, at.ref(mask)]
    for x in others:
        attrs += [VALUE, _operand(at, node, x)]
    return [at.add(node, "air::complex_where", attrs, value)]


def _fill_masked(at: Any, node: torch.fx.Node, value: Any) -> list[int]:
    x, mask, number = node.args
    attrs = [VALUE, at.ref(mask), VALUE, _operand(at, node, number)]
    attrs += [VALUE, _operand(at, node, x)]
    return [at.add(node, "air::complex_where", attrs, value)]


_CONJ = _row("air::complex_conj", "self")
_WRITES: dict[Any, Write] = {
    aten.view_as_real.default: _row("view_as_real", "self"),
    aten.view_as_complex.default: _row("view_as_complex", "self"),
    aten.complex.default: _of_floats("complex", "real", "imag"),
    aten.polar.default: _of_floats("polar", "abs", "angle"),
    aten.add.Tensor: _sum(_ADD, "self", "other"),
    aten.add.Scalar: _sum(_ADD, "self", "other"),
    aten.sub.Tensor: _sum(_SUB, "self", "other"),
    aten.sub.Scalar: _sum(_SUB, "self", "other"),
    aten.rsub.Scalar: _sum(_SUB, "other", "self"),
    aten.mul.Tensor: _row(_MUL, "self", "other"),
    aten.mul.Scalar: _row(_MUL, "self", "other"),
    aten.div.Tensor: _row(_DIV, "self", "other"),
    aten.div.Scalar: _row(_DIV, "self", "other"),
    aten.eq.Tensor: _row("air::complex_eq", "self", "other"),
    aten.eq.Scalar: _row("air::complex_eq", "self", "other"),
    aten.ne.Tensor: _row("air::complex_ne", "self", "other"),
    aten.ne.Scalar: _row("air::complex_ne", "self", "other"),
    aten.neg.default: _row("air::complex_neg", "self"),
    aten._conj.default: _CONJ,
    aten._conj_physical.default: _CONJ,
    aten.conj_physical.default: _CONJ,
    aten._neg_view.default: negated,
    aten.resolve_conj.default: _same,
    aten.resolve_neg.default: _same,
    aten.abs.default: _row("air::complex_abs", "self"),
    aten.angle.default: _row("air::complex_angle", "self"),
    aten.exp.default: _row("air::complex_exp", "self"),
    aten.sgn.default: _row("air::complex_sgn", "self"),
    aten.reciprocal.default: _reciprocal,
    aten.pow.Tensor_Scalar: _square,
    aten.sum.default: _fold("air::complex_sum"),
    aten.sum.dim_IntList: _fold("air::complex_sum"),
    aten.mean.default: _fold("air::complex_mean"),
    aten.mean.dim: _fold("air::complex_mean"),
    aten.full.default: _filled,
    aten.full_like.default: _filled,
    aten.ones.default: _filled,
    aten.ones_like.default: _filled,
    aten.scalar_tensor.default: _filled,
    aten._to_copy.default: _convert,
    _CONVERT: _convert,
    aten.where.self: _where,
    aten.where.ScalarSelf: _where,
    aten.where.ScalarOther: _where,
    aten.where.Scalar: _where,
    aten.masked_fill.Scalar: _fill_masked,
    aten.masked_fill.Tensor: _fill_masked,
}


def rewrite_of(node: torch.fx.Node, dtype: torch.dtype) -> Write:
    """How to write a node with operands or results of a dtype that the engine
    has no arithmetic for."""
    found = _WRITES.get(node.target) if dtype == _C64 else None
    if found is None:
        raise Refused(f"{dtype} has no arithmetic in the engine")
    return found
