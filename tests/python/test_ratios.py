"""Ratios of integers for factors that are floats."""

import math
from fractions import Fraction

import pytest
import sympy
from torch.utils._sympy.functions import FloatTrueDiv, ToFloat

from torchair import ratios

FACTORS = [p / q for q in range(1, 50) for p in range(1, 60, 7)]
FACTORS += [p / 100 for p in range(1, 400, 3)]


@pytest.mark.host("integers and floats of Python")
@pytest.mark.parametrize("up", [False, True])
def test_every_size_has_the_same_part(up):
    found = 0
    for factor in FACTORS:
        ratio = ratios.near(factor, up)
        if ratio is None:
            continue
        found += 1
        step = ratio.denominator
        sizes = [*range(400), *(step * (1 << k) for k in range(18))]
        for n in (*sizes, *(step * k for k in range(1, 1 << 18, 997))):
            exact = -(-n * ratio) if up else n * ratio
            want = math.ceil(factor * n) if up else math.floor(factor * n)
            assert want == (math.ceil(exact) if up else math.floor(exact))
    assert found > len(FACTORS) * 0.7


@pytest.mark.host("integers and floats of Python")
def test_factors_that_are_no_ratio():
    assert ratios.near(0.1, False) == Fraction(1, 10)
    assert ratios.near(0.7, False) is None  # 0.7 * 10 is 7, of 0.7 - 2**-54
    assert ratios.near(1 / 49, False) is None  # of 49: 1 - 2**-53
    assert ratios.near(math.pi, False) is None
    assert ratios.near(-0.5, False) is None


@pytest.mark.host("expressions of sympy")
def test_sums_of_floats():
    n, m = sympy.symbols("n m", integer=True, positive=True)
    down = FloatTrueDiv(-ToFloat(n - 1) - 1.0, -1.0)  # arange(n - 1, -1, -1.0)
    assert ratios.rounded(down, True) == (1, n)
    both = 0.5 * ToFloat(n) + 0.75 * ToFloat(m) - 2.0
    assert ratios.rounded(both, False) == (Fraction(1, 4), 2 * n + 3 * m - 8)
    assert ratios.rounded(both + 0.1 * ToFloat(n * m), False) is None
    assert ratios.rounded(both + 2.0**19 * ToFloat(n * m), False) is None
    assert ratios.rounded(ToFloat(n) + sympy.Symbol("f"), False) is None


@pytest.mark.host("expressions of sympy")
@pytest.mark.parametrize("up", [False, True])
def test_sums_are_what_floats_give(up):
    n, m = sympy.symbols("n m", integer=True, positive=True)
    ratio, whole = ratios.rounded(1.5 * ToFloat(n) - 0.125 * ToFloat(m), up)
    near = [1, 2, 3, 100, 12345, (1 << 31) - 1]
    for a in near:
        for b in near:
            exact = ratio * int(whole.subs({n: a, m: b}))
            computed = 1.5 * float(a) - 0.125 * float(b)
            rounding = math.ceil if up else math.floor
            assert rounding(exact) == rounding(computed)
