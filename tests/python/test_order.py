"""Rows in order and running sums along any axis: ties, NaN, infinities and
zeros of both signs, bit for bit as eager's stable sort."""

import pytest
import torch
from helpers import compiled

INF, NAN = float("inf"), float("nan")


def values(dtype, *size):
    torch.manual_seed(3)
    x = (torch.randn(size) * 3).round()  # many equal ones
    if dtype.is_floating_point:
        x.flatten()[::7] = -0.0
        x.flatten()[::31] = NAN
        x.flatten()[::43] = -INF
        x.flatten()[5::47] = INF
    return x.to(dtype)


def ordered(x):
    return (
        *x.sort(dim=-1, stable=True),
        *x.sort(dim=0, descending=True, stable=True),
        x.topk(min(5, x.shape[-1])).values,
        x.topk(2, 1, largest=False).values,
    )


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "bfloat16",
        "float16",
        "int32",
        "int16",
        "int8",
        "uint8",
        "int64",
    ],
)
def test_sort_and_topk(dtype):
    dtype = getattr(torch, dtype)
    run = compiled(ordered, dynamic=True)
    for n in (2, 3, 33, 100, 256, 257):
        x = values(dtype, 13, 3, n)
        for got, want in zip(run(x), ordered(x), strict=True):
            torch.testing.assert_close(
                got, want, rtol=0, atol=0, equal_nan=True
            )
            if got.is_floating_point():
                signs = [v.nan_to_num().signbit() for v in (got, want)]
                assert torch.equal(*signs)


def scans(x):
    return x.cumsum(0), x.cumsum(1), x.cumprod(-1), (x + x).cumsum(-1)


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "bfloat16",
        "bool",
        "uint8",
        "int16",
        "int32",
        "int64",
    ],
)
def test_running_sums(dtype):
    x = (torch.randn(5, 70, 67) * 3).to(getattr(torch, dtype))
    for got, want in zip(compiled(scans)(x), scans(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
