"""Lazily conjugated and negated inputs, and complex numbers that are moved."""

import pytest
import torch
from helpers import check, fallbacks, recorded, seeded
from helpers import hosts as hosts_of

MODES = ["max-autotune", "reduce-overhead"]


def numbers(*sizes):
    g = seeded(0)
    return torch.randn(*sizes, dtype=torch.complex64, generator=g)


@pytest.mark.parametrize("mode", MODES)
def test_arithmetic_of_conjugated_inputs(mode):
    def fn(x, y):
        return (x * y).real.sum(-1), torch.cat([x, y]).abs(), x.imag + 1

    made = torch.compile(fn, backend="torchair", mode=mode)
    x, y = numbers(5, 6), numbers(5, 6)
    for a in (x.conj(), x, x.conj()[1:], x.conj().t().t()):
        for _ in range(3):
            got, want = made(a, y[-len(a) :]), fn(a, y[-len(a) :])
            for g, w in zip(got, want, strict=True):
                torch.testing.assert_close(g, w)


def test_negated_input():
    x = numbers(5, 6).conj().imag
    assert x.is_neg()
    with recorded() as found:
        made = torch.compile(lambda x: x * 2 + 1, backend="torchair")
        torch.testing.assert_close(made(x), x * 2 + 1)
    assert not fallbacks(found) and not hosts_of(found)


@pytest.mark.parametrize("mode", MODES)
def test_views_and_writes_of_conjugated_inputs(mode):
    def views(x):
        return x, x[1:], x.reshape(-1), x.clone()[:2]

    def write(x):
        x.mul_(2)
        return x.abs()

    x = numbers(5, 6)
    made = torch.compile(views, backend="torchair", mode=mode)
    for g, w in zip(made(x.conj()), views(x.conj()), strict=True):
        torch.testing.assert_close(g, w)
    mine, theirs = x.clone(), x.clone()
    made = torch.compile(write, backend="torchair", mode=mode)
    torch.testing.assert_close(made(mine.conj()), write(theirs.conj()))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("lazy", [False, True])
def test_moves(lazy):
    """By the engine, as integers of their size."""

    def fn(x):
        zeros = x.new_zeros(7, 6)
        part = zeros.index_put((torch.arange(5, device=x.device),), x)
        both = torch.cat([part, torch.zeros_like(x), x[::2], x.flip(0)])
        return both, torch.slice_scatter(part, x[:2], 0, 0, 2), x.clone().t()

    x = numbers(5, 6)
    with recorded() as found:
        check(fn, x.conj() if lazy else x)
    assert not hosts_of(found) and not fallbacks(found)


def test_conjugated_parts():
    def fn(x):
        y = x.conj()
        return torch.cat([y, x]), y.clone()[1:], y[::2].reshape(-1), y.real

    check(fn, numbers(5, 6))


def test_gradients_of_filters():
    """Saved tensors of FFTs are lazily conjugated."""

    def fn(x, k):
        f = torch.fft.rfft(x, n=32) * torch.fft.rfft(k, n=32)
        return torch.fft.irfft(f, n=32)[..., :16].tanh().sum()

    g = seeded(0)
    x = torch.randn(4, 16, generator=g, requires_grad=True)
    k = torch.randn(4, 16, generator=g, requires_grad=True)
    with recorded() as found:
        made = torch.compile(fn, backend="torchair")(x, k)
        got = torch.autograd.grad(made, (x, k))
    assert not fallbacks(found)
    want = torch.autograd.grad(fn(x, k), (x, k))
    torch.testing.assert_close(got, want)
