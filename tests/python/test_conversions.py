"""Operands that are converted before an operator computes, reductions of
nothing and of truth values, and how far sums over rows are off."""

import pytest
import torch
from helpers import DEVICE, seeded
from op_samples import in_double, program_of, tensors_of, trace

from torchair import backend

BIG = torch.iinfo(torch.int64).max
BYTES = torch.tensor([0, 2, 7, 44, 46, 255], dtype=torch.uint8)
WIDE = torch.tensor([0, 7, -6, 70000, -(2**31), BIG])
HALVES = torch.tensor([0.0, 1.5, 0.5, float("inf"), -2.0, 3.0]).half()

# An integer becomes one of the common dtype, which may be narrower than a
# lane; a number too large for f16 becomes an infinity.
CONVERTED = {
    "remainder": (lambda x: x % -3, BYTES),
    "floor_divide": (lambda x: x // -2, BYTES),
    "less": (lambda x: x < 300, BYTES),
    "where": (
        lambda x, y: torch.where(x > 40, x, y),
        BYTES,
        torch.tensor(-1, dtype=torch.int8),
    ),
    "alpha": (lambda x: torch.add(x, x, alpha=-1), BYTES),
    "clamp": (
        lambda x, y: torch.clamp(x, max=y),
        BYTES,
        torch.tensor(-22, dtype=torch.int16),
    ),
    "signs": (torch.maximum, BYTES, torch.tensor(-1, dtype=torch.int8)),
    "mul": (torch.mul, WIDE, HALVES),
    "fmod": (torch.fmod, WIDE, HALVES),
    "eq": (torch.eq, WIDE, torch.full((6,), float("inf")).half()),
    "add": (torch.add, WIDE, torch.full((6,), 3.0).bfloat16()),
}

# What jumps is told of a number, or a tensor without axes, as the half it is.
JUMPS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "gt": torch.gt,
    "le": torch.le,
    "turned": lambda x, n: n < x,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "where": lambda x, n: torch.where(x >= n, x, -x),
}

# Of (4, 0) and (0, 4), dense and turned.
OF_NOTHING = {
    "sum": torch.sum,
    "mean": torch.mean,
    "prod": torch.prod,
    "any": torch.any,
    "all": torch.all,
    "norm": torch.linalg.vector_norm,
    "square": lambda x: (x * x).sum(),
}

TRUTH = {
    "sum": lambda x: x.sum(1, dtype=torch.bool),
    "prod": lambda x: x.prod(1, dtype=torch.bool),
    "amax": lambda x: x.bool().amax(1),
    "amin": lambda x: x.bool().amin(1),
}


@pytest.fixture(scope="module", autouse=True)
def _engine():
    torch.compile(lambda x: x + 1, backend=backend.torchair)(torch.ones(1))


def _check(fn, *tensors):
    want = tensors_of(fn(*tensors))
    gm = trace(fn, tensors)
    for exact in (True, False):
        got = program_of(gm, exact)(list(tensors))
        for g, w in zip(got, want, strict=True):
            assert g.dtype is w.dtype
            torch.testing.assert_close(g, w, equal_nan=True)


@pytest.mark.parametrize("name", CONVERTED)
def test_operands_have_the_common_dtype(name):
    _check(*CONVERTED[name])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", JUMPS)
def test_halves_beside_wider_numbers(name, dtype):
    for number in (0.1, 0.9, -0.7, 1e-9, 70000.0):
        wide = [torch.tensor(number), torch.tensor(number).double()]
        half = wide[0].to(dtype)
        near = [half, half * 1.5, half / 2, torch.nextafter(half, half * 0)]
        x = torch.stack([*near, -half])
        _check(lambda x, n=number: JUMPS[name](x, n), x)
        for n in wide:
            _check(JUMPS[name], x, n)


@pytest.mark.parametrize("name", OF_NOTHING)
def test_reductions_of_nothing(name):
    for shape in ((4, 0), (0, 4), (2, 0, 3)):
        x = torch.empty(shape)
        _check(OF_NOTHING[name], x)
        _check(OF_NOTHING[name], x.transpose(0, 1))
        _check(OF_NOTHING[name], x.transpose(0, 1).contiguous())


@pytest.mark.parametrize("name", TRUTH)
def test_reductions_of_truth_values(name):
    x = torch.tensor([[0, 2, 1], [0, 0, 0], [1, 1, -3]], dtype=torch.int8)
    _check(TRUTH[name], x)


@pytest.mark.parametrize("value", [0, 5])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_truth_of_a_scalar(value, dtype):
    """Of uint8 it is uint8, and still 0 or 1."""
    x = torch.tensor(value, dtype=dtype)
    _check(lambda x: (x.any(), x.all(), x.all(0), x.any(0, True)), x)


# Root mean square of the error of a sum over rows of about 10: in units of
# what rounding the right sum once costs. In the order of the rows it is 20.
@pytest.mark.parametrize("rows, limit", [(1000, 3.0), (5000, 3.0)])
def test_sums_over_rows(rows, limit):
    rng = seeded(7)
    x = torch.randn(rows, 96, generator=rng) + 10

    def fn(x):
        return x.sum(0)

    exact = in_double(fn, [x])[0]
    got = program_of(trace(fn, [x]), False)([x])[0]
    once = (exact.float().double() - exact).square().mean().sqrt()
    error = (got.double() - exact).square().mean().sqrt()
    if DEVICE.type == "cuda":  # blocks add more rows one after another: 5.8
        limit *= 2
    assert error <= limit * once
