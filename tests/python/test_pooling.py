"""Pooling: bit for bit what eager gives, and gradients."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, compiled, seeded
from torch import nn

import torchair

INF = float("inf")
REALS = [torch.float32, torch.float64]
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


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", MAX)
def test_largest(options, size, dtype):
    def fn(x):
        return F.max_pool2d(x, return_indices=True, **options)

    x = special(torch.randn(size, dtype=dtype))
    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        equal(got, want)


def test_windows_of_minus_infinity():
    def fn(x):
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    x = torch.full((2, 9, 9), -INF)
    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        equal(got, want)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("places", [False, True])
def test_dilated_windows_beside_the_input(places, dtype):
    """Both taps lie in the padding: -inf, of no place in the input."""

    def fn(x):
        return (
            F.max_pool1d(x[0], 2, 1, 1, 3, return_indices=places),
            F.max_pool2d(x, 2, 1, 1, 3, return_indices=places),
            F.max_pool3d(x[None], 2, 1, 1, 3, return_indices=places),
        )

    x = torch.randn(2, 3, 2, 3, generator=seeded(0)).to(dtype)[:, :2]
    assert_same(compiled(fn)(x), fn(x))


@pytest.mark.host("torch pools no integers on a GPU")
def test_large_integers():
    """Neighbours that are one number as doubles."""

    def fn(x):
        return F.max_pool2d(x, (1, 2), 1, return_indices=True)

    x = torch.tensor([[[2**60, 2**60 + 1, 2**60 + 2, -(2**60)]]])
    assert_same(compiled(fn)(x), fn(x))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("options", MEAN)
def test_mean(options, size, dtype):
    def fn(x):
        return F.avg_pool2d(x, **options)

    x = torch.randn(size, dtype=dtype)
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


def windows_of(name):
    """A pooling function of volumes, or with shares of any size."""
    return {
        "max3d": lambda x: F.max_pool3d(x, (2, 3, 2), 2, 1),
        "avg3d": lambda x: F.avg_pool3d(x, (2, 3, 2), 2, (0, 1, 1)),
        "avg3d-inside": lambda x: F.avg_pool3d(
            x, 3, 2, 1, ceil_mode=True, count_include_pad=False
        ),
        "adaptive-avg3d": lambda x: F.adaptive_avg_pool3d(x, (2, 3, 5)),
        "adaptive-max3d": lambda x: F.adaptive_max_pool3d(x, (2, 3, 5)),
        "adaptive-max2d": lambda x: F.adaptive_max_pool2d(x[0], (3, 5)),
        "adaptive-max1d": lambda x: F.adaptive_max_pool1d(x[0, 0], 4),
        "avg2d": lambda x: F.avg_pool2d(x[0], 3, 2, 1),
        "unpool": lambda x: F.max_unpool2d(
            *F.max_pool2d(x[0], 2, return_indices=True), 2
        ),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "max3d",
        "avg3d",
        "avg3d-inside",
        "adaptive-avg3d",
        "adaptive-max3d",
        "adaptive-max2d",
        "adaptive-max1d",
        "avg2d",
        "unpool",
    ],
)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64]
)
def test_volumes_and_gradients(name, dtype):
    fn = windows_of(name)
    x = torch.randn(2, 3, 6, 8, 10).to(dtype)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    try:
        want = fn(theirs)
    except NotImplementedError:
        pytest.skip("eager has no kernel for it")
    got = compiled(fn)(ours)
    assert_same(got, want)
    got.float().square().sum().backward()
    want.float().square().sum().backward()
    assert_same(ours.grad, theirs.grad)


@pytest.mark.host("pooling of a GPU is torch's")
@pytest.mark.parametrize("name", ["max3d", "avg3d", "adaptive-max2d"])
def test_volumes_run_in_the_engine(name):
    x = torch.randn(2, 3, 6, 8, 10)
    said = str(torchair.explain(windows_of(name), x))
    assert "HOST" not in said, said
