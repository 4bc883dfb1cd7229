"""Sizes: sympy expressions of torch's ShapeEnv as the engine's dims, and as
functions of a call's arguments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import compat, ratios
from ._native import Graph


class Unexpressible(Exception):
    """The engine cannot express a part of the graph; the text says why."""


def expression(value: Any) -> Any:
    """The sympy expression of a SymInt, SymFloat or SymBool."""
    return value.node.expr


def is_symbolic(value: Any) -> bool:
    return hasattr(value, "node") and hasattr(value.node, "expr")


def limits(expr: Any, shape_env: Any) -> tuple[int, int]:
    """Least and greatest value, within int64."""
    found, most = shape_env.bound_sympy(expr), 2**62
    low = int(found.lower) if found.lower.is_Integer else -most
    high = int(found.upper) if found.upper.is_Integer else most
    return max(low, -most), min(high, most)


_BINARY = {
    "FloorDiv": "//",
    "CleanDiv": "//",
    "PythonMod": "%",
    "Mod": "%",
}
_FOLDED = {"Max": "max", "Min": "min"}
_ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt")


class Sizes:
    """Size expressions of one graph; equal expressions have equal ids."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._ints: dict[int, int] = {}
        self._known: dict[Any, int] = {}
        self._shape_env: Any = None
        self._inputs: set[Any] | None = None

    def close(self, inputs: Iterable[Any]) -> None:
        """Only symbols in these values of inputs are told by a call."""
        self._inputs = set()
        for value in inputs:
            for part in getattr(value, "shape", (value,)):
                if is_symbolic(part):
                    self._inputs |= expression(part).free_symbols

    def dim(self, value: Any) -> int:
        """The engine's id of an int or SymInt."""
        if type(value) is int:
            found = self._ints.get(value)
            if found is None:
                found = self._ints[value] = self.graph.dim(value)
            return found
        if is_symbolic(value):
            self._shape_env = value.node.shape_env
            return self._of_value(value, expression(value))
        return self.dim(operator.index(value))

    def _of_value(self, value: Any, expr: Any) -> int:
        """What torch knows to be 1, as it guards it, broadcasts: the engine
        takes two expressions that meet in one axis for equal."""
        is_new = expr not in self._known and not expr.is_Symbol
        if is_new and statically_known_true(value == 1):
            self._known[expr] = self.dim(1)
        return self.of(expr)

    def dims(self, values: Any) -> list[int]:
        return [self.dim(v) for v in values]

    def bind(self, expr: Any, dim: int) -> None:
        """From now on `expr` is `dim`: a saved size that comes as input."""
        self._known[expr] = dim

    def of(self, expr: Any) -> int:
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._make(expr)
        return found

    def symbol(self, symbol: Any, shape_env: Any) -> int:
        name = str(symbol)
        if name.startswith("u"):
            raise Unexpressible(f"size {name} depends on data")
        if self._inputs is not None and symbol not in self._inputs:
            raise Unexpressible(f"size {name} comes from no input")
        low, high = compat.symbol_range(shape_env, symbol)
        hint = compat.symbol_hint(shape_env, symbol)
        if hint is None:
            raise Unexpressible(f"size {name} is a nested tensor's")
        return self.graph.symbol(name, low, high, hint)

    def _make(self, expr: Any) -> int:
        if expr.is_Integer:
            return self.dim(int(expr))
        if expr.is_Symbol:
            return self.symbol(expr, self._shape_env)
        name = type(expr).__name__
        if expr.is_Add:
            return self._sum(expr.args)
        if expr.is_Mul:
            return self._product(expr.args)
        if name in _BINARY:
            a, b = expr.args
            return self._op(_BINARY[name], self.of(a), self.of(b))
        if name in _FOLDED:
            ids = [self.of(a) for a in expr.args]
            return reduce(lambda a, b: self._op(_FOLDED[name], a, b), ids)
        if name in ("Pow", "PowByNatural"):
            return self._power(*expr.args)
        if name == "Identity":
            return self.of(expr.args[0])
        if name in _ROUNDED:
            return self._rounded(expr, name == "CeilToInt")
        raise Unexpressible(f"a size is {expr}: no {name} of sizes")

    def _rounded(self, expr: Any, up: bool) -> int:
        """An integer that was computed with floats."""
        found = ratios.rounded(expr.args[0], up)
        if found is None or not self._is_natural(found[1]):
            raise Unexpressible(f"a size is {expr}: no ratio of sizes")
        ratio, of = found
        top = self._op("*", self.of(of), self.dim(ratio.numerator))
        if up:
            top = self._op("+", top, self.dim(ratio.denominator - 1))
        return self._op("//", top, self.dim(ratio.denominator))

    def _is_natural(self, expr: Any) -> bool:
        return limits(expr, self._shape_env)[0] >= 0

    def _op(self, op: str, a: int, b: int) -> int:
        return self.graph.dim_op(op, a, b)

    def _sum(self, terms: Any) -> int:
        total: int | None = None
        for term in sorted(terms, key=lambda t: t.is_negative is True):
            coefficient, rest = term.as_coeff_Mul()
            if total is None:
                total = self.of(term)
            elif coefficient.is_negative:
                total = self._op("-", total, self.of(-term))
            else:
                total = self._op("+", total, self.of(term))
        assert total is not None
        return total

    def _product(self, factors: Any) -> int:
        denominator = 1
        total: int | None = None
        for factor in factors:
            if factor.is_Rational and not factor.is_Integer:
                denominator *= int(factor.q)
                factor = type(factor)(int(factor.p))
                if int(factor) == 1:
                    continue
            part = self.of(factor)
            total = part if total is None else self._op("*", total, part)
        if total is None:
            total = self.dim(1)
        if denominator != 1:
            total = self._op("//", total, self.dim(denominator))
        return total

    def _power(self, base: Any, exponent: Any) -> int:
        if not exponent.is_Integer or not 0 <= int(exponent) <= 16:
            raise Unexpressible(f"a size is {base}**{exponent}")
        total = self.dim(1)
        for _ in range(int(exponent)):
            total = self._op("*", total, self.of(base))
        return total

    def equal(self, a: int, b: int) -> bool:
        """Proved equal, or equal for the traced sizes."""
        return a == b or self.graph.hint(a) == self.graph.hint(b)

    def result_strides(self, value: Any) -> list[int] | None:
        """None: dense row-major."""
        dense = self.dim(1)
        expected: list[int] = []
        for size in reversed(value.shape):
            expected.append(dense)
            factor = self.dim(size)
            dense = (
                factor
                if dense == self.dim(1)
                else self.graph.dim_op("*", dense, factor)
            )
        expected.reverse()
        found = self.dims(value.stride())
        one = self.dim(1)
        sizes = self.dims(value.shape)
        if all(
            f == e or n == one
            for f, e, n in zip(found, expected, sizes, strict=True)
        ):
            return None
        return found


# ---- sizes at run time ----

Source = tuple[int, int | None]  # argument, axis (None: the argument itself)
Args = list[Any]


# A value of a call's arguments as data: a number, ["arg", i], ["size", i, axis]
# or [operation, part, ...].
Formula = Any


def evaluator(expr: Any, sources: dict[Any, Source]) -> Callable[[Args], Any]:
    """A function from a call's arguments to the expression's value. It has a
    `formula`, from which `computed` makes it again; None: it has no such."""
    found = _formula(expr, sources)
    return _substitute(expr, sources) if found is None else computed(found)


def _formula(expr: Any, sources: dict[Any, Source]) -> Formula:
    if expr in sources:
        index, axis = sources[expr]
        return ["arg", index] if axis is None else ["size", index, axis]
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        raise Unexpressible(f"size {expr} is not known from the inputs")
    name = _operation(expr)
    parts = [_formula(a, sources) for a in expr.args] if name else [None]
    return None if None in parts else [name, *parts]


def _operation(expr: Any) -> str:
    if expr.is_Add:
        return "+"
    if expr.is_Mul and all(
        not a.is_Rational or a.is_Integer for a in expr.args
    ):
        return "*"
    return "//" if type(expr).__name__ in ("FloorDiv", "CleanDiv") else ""


def arguments(formula: Formula) -> set[int]:
    """Those that are read as numbers, not for their sizes."""
    if not isinstance(formula, list):
        return set()
    if formula[0] == "arg":
        return {formula[1]}
    return set().union(*map(arguments, formula[1:]))


def computed(formula: Formula) -> Callable[[Args], Any]:
    """ValueError: it is no formula."""
    call = _computed(formula)
    call.formula = formula  # type: ignore[attr-defined]
    return call


def _computed(formula: Formula) -> Callable[[Args], Any]:
    if type(formula) is int:
        number = formula
        return lambda args: number
    if type(formula) is not list or len(formula) < 2:
        raise ValueError(f"{formula!r} is no formula of sizes")
    name, *parts = formula
    if name in ("arg", "size"):
        index, axis = (*parts, None)[:2]
        if axis is None:
            return lambda args: args[index]
        return lambda args: args[index].shape[axis]
    of = [_computed(p) for p in parts]
    if name == "+":
        return lambda args: sum(p(args) for p in of)
    if name == "*":
        return lambda args: math.prod(p(args) for p in of)
    if name == "//" and len(of) == 2:
        return lambda args: of[0](args) // of[1](args)
    raise ValueError(f"{formula!r} is no formula of sizes")


def _substitute(expr: Any, sources: dict[Any, Source]) -> Callable[[Args], Any]:
    """Anything else: slow, through sympy."""
    symbols = {s: evaluator(s, sources) for s in expr.free_symbols}

    def value(args: Args) -> Any:
        found = expr.xreplace({s: _number(f(args)) for s, f in symbols.items()})
        if found.is_Boolean:
            return bool(found)
        return int(found) if found.is_integer else float(found)

    return value


def _number(value: Any) -> Any:
    import sympy

    return sympy.Integer(value) if isinstance(value, int) else value
