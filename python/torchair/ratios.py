"""Floats of sizes that are rounded to an integer, as ratios of integers: what
`int(x.shape[2] * 0.75)` or a scale factor of an image makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sympy

# Products of sizes and numerators stay integers that a float holds, quotients
# further from the next integer than what roundings lose.
_DENOMINATOR, _NUMERATOR = 1 << 12, 1 << 20
_TERMS = 4  # of sizes of 31 bits: 53 bits
_ONE: Any = sympy.Integer(1)

Found = tuple[Fraction, Any]  # times an expression of integers


def rounded(expr: Any, up: bool) -> Found | None:
    """The floor (up: the ceiling) of the float `expr` is that of a ratio times
    an expression of integers not below zero; None: it is not known to be."""
    name = type(expr).__name__
    if name == "IntTrueDiv":
        whole, part = expr.args
        return _over((Fraction(1), whole), part) if part.is_Integer else None
    if name == "FloatTrueDiv":
        above, below = expr.args
        return _over(_exact(above), below) if below.is_Float else None
    found = _exact(expr)
    if found is None and expr.is_Mul and expr.args[0].is_Float:
        rest = _exact(expr.func(*expr.args[1:]))
        ratio = near(float(expr.args[0]), up)
        if rest is not None and rest[0] == 1 and ratio is not None:
            found = ratio, rest[1]
    return found if found and _is_small(found[0]) else None


def _over(above: Found | None, below: Any) -> Found | None:
    """A quotient that is rounded once is no integer unless it is one: the next
    one is further away."""
    by = Fraction(float(below))
    if above is None or by == 0:
        return None
    ratio, whole = _signed(above[0] / by, above[1])
    return (ratio, whole) if _is_small(ratio) else None


def _signed(ratio: Fraction, whole: Any) -> Found:
    """The sign is the integers'."""
    return (ratio, whole) if ratio > 0 else (-ratio, -whole)


def _exact(expr: Any) -> Found | None:
    """A float that is computed without a rounding."""
    if expr.is_Add:
        return _sum([_exact(part) for part in expr.args])
    ratio, whole = Fraction(1), _ONE
    for part in expr.args if expr.is_Mul else (expr,):
        if part.is_Float or part.is_Integer:
            ratio *= Fraction(float(part))
        elif type(part).__name__ != "ToFloat":
            return None
        else:
            whole = whole * part.args[0]
    return _signed(ratio, whole) if _is_dyadic(abs(ratio)) else None


def _sum(parts: Sequence[Found | None]) -> Found | None:
    """Floats hold each part, and what at most _TERMS of them add up to."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len(known) > _TERMS:
        return None
    common = math.lcm(*(ratio.denominator for ratio, _ in known))
    factors = [int(ratio * common) for ratio, _ in known]
    if max(factors) >= _NUMERATOR:
        return None
    whole = sum(f * part[1] for f, part in zip(factors, known, strict=True))
    return Fraction(1, common), whole


def _is_small(ratio: Fraction) -> bool:
    return (
        0 < ratio.numerator < _NUMERATOR and ratio.denominator <= _DENOMINATOR
    )


def _is_dyadic(ratio: Fraction) -> bool:
    """A float times an integer of 32 bits is exact."""
    return _is_small(ratio) and not ratio.denominator & (ratio.denominator - 1)


def near(number: float, up: bool) -> Fraction | None:
    """A ratio p / q so that number * n, a float rounded once, has the floor
    (up: the ceiling) of p * n / q for all integers n of 31 bits.

    Where q does not divide p * n the next integer is 1 / q away, far more than
    what is lost. Where it does, the product must not fall below the integer
    (up: rise above). It is that integer times 1 + e, and the float beside an
    integer at least 2**-53 of it away: half of that is rounded off.
    """
    ratio = Fraction(number).limit_denominator(_DENOMINATOR)
    if not _is_small(ratio):
        return None
    off = Fraction(number) / ratio - 1
    if abs(off) > Fraction(1, 1 << 50):
        return None
    lost = off if up else -off
    return ratio if lost <= Fraction(1, 1 << 54) else None
