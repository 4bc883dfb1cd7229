"""Decompositions of matrices, which are torch's: their checks, values without
vectors; windows of signals, which are constants."""

import pytest
import torch
from helpers import (
    BEFORE_213,
    DEVICE,
    assert_same,
    check,
    compiled,
    recorded,
    seeded,
)
from helpers import hosts as hosts_of

modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def spd(*sizes):
    x = torch.randn(*sizes, generator=seeded(0))
    return x @ x.mT + torch.eye(sizes[-1])


def assert_told(call, a):
    """AOTAutograd of torch 2.11 drops the checks."""
    if BEFORE_213:
        call(-a)
        return
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        call(-a)


@modes
def test_checks_are_in_direct_calls(mode):
    """They are effects in an order, whose tokens are no arguments."""

    def fn(a):
        return torch.linalg.cholesky(a) @ torch.linalg.inv(a)

    a = spd(3, 4, 4)
    call = compiled(fn, mode)
    with recorded() as records:
        for _ in range(3):
            assert_same(call(a), fn(a))
    assert [r.wrapper for r in records] == [""]
    assert_told(call, a)
    assert_same(call(a), fn(a))


@modes
def test_checks_are_in_training(mode):
    def fn(a):
        return torch.linalg.cholesky(a).square().sum()

    a = spd(4, 4).requires_grad_()
    call = compiled(fn, mode)
    with recorded() as records:
        for _ in range(3):
            (got,) = torch.autograd.grad(call(a), a)
            (want,) = torch.autograd.grad(fn(a), a)
            torch.testing.assert_close(got, want)
    assert {r.wrapper for r in records} == {""}
    assert_told(call, a)


@modes
@pytest.mark.parametrize(
    "values", [torch.linalg.svdvals, torch.linalg.eigvalsh]
)
def test_values_are_made_without_vectors(mode, values):
    """As in eager, whose values differ in their last bits with them."""
    a = spd(40, 40)
    assert torch.equal(compiled(values, mode)(a), values(a))


@modes
def test_vectors_are_made_where_they_are_used(mode):
    def fn(a):
        u, s, _ = torch.linalg.svd(a)
        values, vectors = torch.linalg.eigh(a)
        return s, u.abs(), values, vectors.abs()

    check(fn, spd(5, 5), mode=mode)


def test_gradients_of_values_need_vectors():
    def fn(a):
        return torch.linalg.svdvals(a).sum() + torch.linalg.eigvalsh(a).sum()

    a = spd(5, 5).requires_grad_()
    got = torch.autograd.grad(compiled(fn)(a), a)
    torch.testing.assert_close(got, torch.autograd.grad(fn(a), a))


@pytest.mark.host("there each call makes them")
@modes
def test_windows_are_constants(mode):
    def fn(x):
        return (
            x * torch.hann_window(16),
            x * torch.hamming_window(16, periodic=False),
            x * torch.kaiser_window(16, dtype=torch.float64),
            x * torch.blackman_window(16) * torch.bartlett_window(16),
        )

    with recorded() as records:
        check(fn, torch.ones(3, 16), mode=mode)
    assert not hosts_of(records)


@modes
def test_results_of_the_kind_are_the_callers(mode):
    """Constants of the graph would be written."""

    def fn(x):
        places = torch.tril_indices(3, 3, device=DEVICE)
        return places, torch.hann_window(6, device=DEVICE)[1:], x + 1

    call, x = compiled(fn, mode), torch.ones(2, device=DEVICE)
    for _ in range(2):
        got = call(x)
        assert_same(got, fn(x))
        for tensor in got:
            tensor.zero_()
