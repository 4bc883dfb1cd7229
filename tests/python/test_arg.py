"""Where the largest and the smallest element of a row are: ties, infinities,
NaN and rows of every length, bit for bit as eager."""

import pytest
import torch
from helpers import compiled

INF, NAN = float("inf"), float("nan")
LENGTHS = [1, 2, 15, 16, 17, 255, 256, 257, 300, 511, 1000, 4099]


def picks(x):
    return (
        x.argmax(-1),
        x.argmin(-1),
        x.argmax(),
        *x.max(-1),
        *x.min(-1),
    )


def rows(n, dtype):
    torch.manual_seed(n)
    x = torch.randn(12, n).to(dtype)
    x[1] = 0.0
    x[2] = -INF
    x[3] = INF
    x[4] = (x[4] * 2).round()  # many equal ones
    x[5, n // 2] = NAN
    x[6, n - 1] = NAN
    x[7, n // 3 :] = NAN
    x[8] = -0.0
    x[8, n // 2] = 0.0
    x[9, n - 1] = INF
    x[10, n - 1] = -INF
    return x


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64]
)
def test_rows(n, dtype):
    x = rows(n, dtype if dtype.is_floating_point else torch.float32)
    if not dtype.is_floating_point:
        x = (x.nan_to_num(0, 3, -3) * 4).to(dtype)
    for got, want in zip(compiled(picks)(x), picks(x), strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.nan_to_num(), want.nan_to_num())


@pytest.mark.parametrize("n", [1, 2, 3, 10, 31, 32, 33])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8],
)
def test_many_short_rows(n, dtype):
    """Of more rows than one block of columns has; ties, and NaN."""
    torch.manual_seed(n)
    x = (torch.randn(150, n) * 2).round()
    if dtype.is_floating_point:
        x[::7, n // 2] = NAN
        x[::5, 0] = NAN
    x = x.to(dtype) if dtype.is_floating_point else x.abs().to(dtype)

    def fn(x):
        return (*x.max(-1), *x.min(-1), x.argmax(-1), x.argmin(-1))

    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.nan_to_num(), want.nan_to_num())


def extremes(x):
    """Without places."""
    return x.max(-1)[0], x.min(0, keepdim=True)[0], x.max(0)[0]


@pytest.mark.parametrize("n", [1, 5, 16, 300])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool]
)
def test_values_alone(n, dtype):
    x = rows(n, torch.float32)
    if not dtype.is_floating_point:
        x = x.nan_to_num(0, 3, -3)
    x = x.to(dtype)
    for got, want in zip(compiled(extremes)(x), extremes(x), strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.nan_to_num(), want.nan_to_num())


def test_values_alone_of_one_number():
    assert compiled(lambda x: x.max(0)[0])(torch.tensor(2.0)) == 2


def picks_of_columns(x):
    best = (*x.max(0), *x.min(1), *x.max(-1))
    if x.dtype == torch.bool:  # eager has no argmax of those
        return best
    return (*best, x.argmin(0), x.argmax(1), x.argmin(-1), x.argmax())


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "bfloat16",
        "float64",
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
    ],
)
def test_columns(dtype):
    dtype = getattr(torch, dtype)
    x = rows(130, dtype if dtype.is_floating_point else torch.float32)
    if not dtype.is_floating_point:
        x = (x.nan_to_num(0, 3, -3) * 40).to(dtype)
    x = torch.stack([x, x.flip(0), x.roll(3, 1)], 1)
    for got, want in zip(
        compiled(picks_of_columns)(x), picks_of_columns(x), strict=True
    ):
        assert torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got.nan_to_num(), want.nan_to_num())
