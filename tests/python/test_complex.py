"""Arithmetic of complex64, which is the engine's own: pairs of float32."""

import pytest
import torch
from helpers import DEVICE, check, fallbacks, recorded, seeded
from helpers import hosts as hosts_of

MODES = ["max-autotune", "reduce-overhead"]


def pairs(*sizes, seed=0):
    g = seeded(seed)
    return torch.randn(sizes, dtype=torch.complex64, generator=g)


def reals(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(sizes, generator=seeded(seed)).to(dtype)


def close(got, want):
    """Both resolved; eager rounds otherwise in vectors and behind them."""
    assert got.dtype == want.dtype and got.shape == want.shape
    got, want = (
        x.resolve_conj().resolve_neg() if x.is_complex() else x
        for x in (got, want)
    )
    torch.testing.assert_close(
        got, want, rtol=2e-6, atol=2e-6, equal_nan=True, check_stride=True
    )


def run(fn, *args, mode="max-autotune", hosts=(), dynamic=None):
    """No HOST node but these."""
    torch._dynamo.reset()
    with recorded() as found:
        made = torch.compile(fn, backend="torchair", mode=mode, dynamic=dynamic)
        for _ in range(3):
            got = made(*args)
    want = fn(*args)
    many = isinstance(want, tuple)
    for g, w in zip(
        got if many else (got,), want if many else (want,), strict=True
    ):
        close(g, w)
    assert hosts_of(found) == list(hosts) and not fallbacks(found)


UNARY = {
    "negative": lambda x: -x,
    "conjugate": lambda x: x.conj() * x,
    "physical": lambda x: torch.conj_physical(x) + 1,
    "resolved": lambda x: x.conj().resolve_conj(),
    "parts": lambda x: (x.real * 2, x.imag + 1),
    "imaginary of conjugate": lambda x: x.conj().imag * 2,
    "size": lambda x: x.abs(),
    "angle": lambda x: x.angle(),
    "exponential": lambda x: x.exp(),
    "direction": lambda x: x.sgn(),
    "reciprocal": lambda x: (1 / x, x.reciprocal()),
    "square": lambda x: x**2 + x.square(),
    "numbers": lambda x: (x * 2.5 + 1j) / (3 - 1j) - (1 + 2j) + 3,
    "reversed": lambda x: (2 - x, 1j - x, 2 / x),
    "scaled": lambda x: (torch.add(x, x.t().t(), alpha=3), x.sub(x, alpha=2)),
    "sums": lambda x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True)),
    "means": lambda x: (x.mean(), x.mean(0), x.mean((1,), keepdim=True)),
    "compared": lambda x: (x == x[0], x != x[0], x == 0, x != 1j),
    "filled": lambda x: torch.full((5, 6), 1 + 2j, device=x.device) * x,
    "alike": lambda x: x * torch.ones_like(x) + torch.zeros_like(x),
    "to real": lambda x: x.real.to(torch.bfloat16),
    "masked": lambda x: (
        x.masked_fill(x.real > 0, 2j),
        torch.where(x.imag > 0, x, 0.0),
        torch.where(x.imag > 0, x, x.conj()),
    ),
    "moved": lambda x: (
        torch.cat([x * 2, x]).t()[1:] + 1,
        (x * 2).reshape(-1)[3:] * 2,
        (x + 1).unsqueeze(0).expand(2, -1, -1) * x,
    ),
    "nothing": lambda x: (x[:0] * x[:0], (x[:0] * 2).sum()),
    "a number": lambda x: x[0, 0] * x + x[0, 0] * x[0, 1],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fn", UNARY.values(), ids=UNARY.keys())
def test_of_one(fn, mode):
    run(fn, pairs(5, 6), mode=mode)


BINARY = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y,
    "equal": lambda x, y: (x == y, x != y),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fn", BINARY.values(), ids=BINARY.keys())
def test_of_two(fn, mode):
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        run(fn, pairs(5, 6), reals(6, dtype=dtype) + 1, mode=mode)
    for x, y in (
        (pairs(5, 6), pairs(6, seed=1)),
        (pairs(6, 5).t(), pairs(5, 12, seed=1)[:, ::2]),
        (pairs(), pairs(3)),
        (pairs(70, 33), pairs(70, 1, seed=1)),
        (pairs(3000), pairs(3000, seed=1)),
    ):
        run(fn, x, y, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_made_of_parts(mode):
    def fn(x, y):
        whole = torch.complex(x, y) * 2
        pair = torch.view_as_complex(torch.stack([x, y], -1))
        return whole + torch.polar(x.abs(), y), pair.real * 2, pair * x

    run(fn, reals(5, 6), reals(6, seed=1).expand(5, 6), mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_pairs(mode):
    def fn(x):
        both = torch.view_as_complex(x)
        gaps = torch.view_as_complex(x[..., :2])
        turned = torch.view_as_complex(x.transpose(0, 1))
        return both * 2, gaps + 1, turned * 1j, torch.view_as_real(both * 1j)

    run(fn, reals(5, 6, 2), mode=mode)
    run(
        lambda x: torch.view_as_complex(x[..., 2:]) + 1,
        reals(5, 6, 4),
        mode=mode,
    )


def rotate(x, y, turns):
    """As Llama's code does."""

    def turn(x):
        z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        z = z * turns.view(1, turns.shape[0], 1, turns.shape[1])
        return torch.view_as_real(z).flatten(3).type_as(x)

    return turn(x), turn(y)


@pytest.mark.parametrize("mode", MODES)
def test_rotary_embedding(mode):
    turns = torch.polar(torch.ones(7, 16), reals(7, 16))
    for dtype in (torch.float32, torch.bfloat16):
        x, y = reals(2, 7, 4, 32, dtype=dtype), reals(2, 7, 1, 32, dtype=dtype)
        run(rotate, x, y, turns, mode=mode)


def test_sizes_that_change():
    def fn(x, y):
        z = x * y + x.sum(0) / x.shape[0]
        return z, torch.view_as_real(z).flatten(1), z.abs()

    made = torch.compile(fn, backend="torchair", dynamic=True)
    with recorded() as found:
        for rows, cols in ((3, 4), (5, 9), (40, 33), (2, 1)):
            x, y = pairs(rows, cols), pairs(cols, seed=1)
            for g, w in zip(made(x, y), fn(x, y), strict=True):
                close(g, w)
    assert not hosts_of(found) and not fallbacks(found)


@pytest.mark.parametrize("mode", MODES)
def test_beside_transforms(mode):
    """Pairs go to torch's operators, and come from them, as they are."""

    def fn(x, y):
        z = torch.fft.rfft(x) * y
        return torch.fft.irfft(z.conj() * 2 + y), z.abs()

    run(
        fn, reals(5, 12), pairs(5, 7), mode=mode, hosts=["_fft_r2c", "_fft_c2r"]
    )


def derivative(fn, x, others):
    """Of each operand that has one."""
    x = x.detach().clone().requires_grad_()
    others = [o.detach().clone().requires_grad_() for o in others]
    fn(x, *others).backward()
    return [o.grad for o in (x, *others)]


TRAINED = {
    "rotation": lambda x, t: (rotate(x, x, t)[0] * 2).tanh().sum(),
    "size": lambda x, t: (
        (torch.view_as_complex(x[0, ..., :2]) * t[:, :1]).abs().sum()
    ),
    "parts": lambda x, t: (
        (t.real * t.imag + (t * t.conj()).real).sum() + x.sum()
    ),
    "quotient": lambda x, t: ((1 / t) * (t + 2j)).imag.sum() + x.sum(),
    "exponential": lambda x, t: torch.view_as_real(t.exp()).sum() + x.sum(),
    "polar": lambda x, t: (
        (torch.polar(t.abs(), t.real) * t).real.sum() + x.sum()
    ),
    "whole": lambda x, t: (
        (torch.complex(x, x * 2) * x).real.sum() + t.real.sum()
    ),
    "mean": lambda x, t: (t * 2 - t.mean(0)).abs().pow(2).sum() + x.sum(),
}


@pytest.mark.parametrize("fn", TRAINED.values(), ids=TRAINED.keys())
def test_training(fn):
    x, turns = reals(2, 7, 7, 32), pairs(7, 16)
    want = derivative(fn, x, [turns])
    torch._dynamo.reset()
    with recorded() as found:
        got = derivative(torch.compile(fn, backend="torchair"), x, [turns])
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g.resolve_conj(), w, rtol=2e-5, atol=2e-5)
    assert not hosts_of(found) and not fallbacks(found)


def test_special_numbers():
    """NaN where eager has one, and no overflow of a size. Not in sums: eager
    takes one times the second, which is NaN where a part is infinite."""
    # A GPU's eager fuses multiply and add: no inf - inf behind an overflow.
    large = 3e38 if DEVICE.type == "cpu" else 1e18
    some = [0.0, -0.0, 1.0, large, float("inf"), float("-inf"), float("nan")]
    parts = torch.tensor(some)
    x = torch.complex(parts[:, None].expand(7, 7), parts.expand(7, 7))
    run(lambda x, y: (x * y, x.abs(), -x), x, x.t().contiguous())
    run(lambda x: x / torch.zeros_like(x), x)
    run(lambda x: x / 3e38, pairs(5) * 3e38)
    run(lambda x: 3e38 / x, pairs(5) * 3e38)


@pytest.mark.parametrize("mode", MODES)
def test_error_against_double(mode):
    """Not more than eager's."""

    def fn(x, y):
        for _ in range(6):
            x = x * y / (y + 0.5) + y.conj() * 0.1
        return x

    x, y = pairs(4000), pairs(4000, seed=1)
    exact = fn(x.to(torch.complex128), y.to(torch.complex128))
    made = torch.compile(fn, backend="torchair", mode=mode)(x, y)
    ours = ((made - exact).abs() / exact.abs()).mean()
    theirs = ((fn(x, y) - exact).abs() / exact.abs()).mean()
    assert ours <= 1.05 * theirs


def test_what_is_left_to_torch():
    """With the reason."""
    cases = (
        (lambda x: x.log(), ["log"]),
        (lambda x: x**3, ["pow.Tensor_Scalar"]),
        (lambda x: x @ x, ["mm"]),
        (lambda x: x == x.real.double(), ["eq.Tensor"]),
    )
    for fn, names in cases:
        with recorded() as found:
            check(fn, pairs(6, 6))
        assert hosts_of(found) == names
        assert all(
            "complex64" in h.reason or "complex" in h.reason
            for r in found
            for h in r.hosts
        )
