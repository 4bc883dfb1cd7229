"""Pooling: bit for bit what eager gives, and gradients."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, compiled
from torch import nn

INF = float("inf")
MAX = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (2, 3), "stride": 1, "dilation": (2, 1)},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
]
MEAN = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1, "padding": 1, "count_include_pad": False},
    {"kernel_size": (3, 2), "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "divisor_override": 3},
]
SIZES = [(2, 3, 9, 11), (3, 7, 1100), (1, 1, 3, 3), (0, 3, 8, 8)]


def special(x):
    """With what comparisons are odd about."""
    flat = x.view(-1)
    for value, step in ((INF, 7), (-INF, 5), (float("nan"), 31), (0.5, 3)):
        flat[step::97] = value
    return x


def equal(got, want):
    assert got.dtype is want.dtype
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.nan_to_num(), want.nan_to_num())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", MAX)
def test_largest(options, size):
    def fn(x):
        return F.max_pool2d(x, return_indices=True, **options)

    x = special(torch.randn(size))
    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        equal(got, want)


def test_windows_of_minus_infinity():
    def fn(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    x = torch.full((2, 9, 9), -INF)
    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        equal(got, want)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", MEAN)
def test_mean(options, size):
    def fn(x):
        return F.avg_pool2d(x, **options)

    x = torch.randn(size)
    equal(compiled(fn)(x), fn(x))


@pytest.mark.parametrize("results", [(1, 1), (3, 4), (7, None), (12, 13)])
def test_even_shares(results):
    def fn(x):
        return F.adaptive_avg_pool2d(x, results)

    x = torch.randn(2, 3, 9, 11)
    assert_same(compiled(fn)(x), fn(x))


@pytest.mark.parametrize(
    "layer",
    [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(3)],
    ids=lambda m: type(m).__name__,
)
def test_gradients(layer):
    def gradient(fn, x):
        x = x.clone().requires_grad_()
        fn(x).square().sum().backward()
        return x.grad

    x = torch.randn(2, 3, 9, 11)
    run = compiled(layer)
    assert_same(gradient(run, x), gradient(layer, x))


def test_other_memory_orders():
    x = torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)
    for layer in (nn.MaxPool2d(2), nn.AvgPool2d(3, 1)):
        assert_same(compiled(layer)(x), layer(x))
