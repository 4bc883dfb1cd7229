"""Rows in order and running sums along any axis: ties, NaN, infinities and
zeros of both signs, bit for bit as eager's stable sort."""

import pytest
import torch
from helpers import DEVICE, compiled

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


@pytest.mark.host("topk of a GPU is torch's, which takes any of equals")
@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8"],
)
@pytest.mark.parametrize("largest", [True, False])
def test_topk_takes_the_first_of_equals(dtype, largest):
    """Rows and columns, blocks with ends, as many as are kept and one more."""
    dtype = getattr(torch, dtype)
    for n, k in ((33, 1), (64, 8), (100, 33), (300, 64), (1000, 65)):
        x = values(dtype, 5, n)
        for y, dim in ((x, 1), (x.t().contiguous(), 0)):
            torch._dynamo.reset()  # of one code, few are compiled
            run = compiled(lambda y, k=k, d=dim: y.topk(k, d, largest))
            order = y.sort(dim=dim, descending=largest, stable=True)
            for got, want in zip(run(y), order, strict=True):
                want = want.narrow(dim, 0, k)
                torch.testing.assert_close(
                    got, want, rtol=0, atol=0, equal_nan=True
                )


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
    # torch's kernels of a GPU add up in another order
    exact = DEVICE.type == "cpu" or not x.dtype.is_floating_point
    near = 0 if exact else 100 * torch.finfo(x.dtype).eps
    for got, want in zip(compiled(scans)(x), scans(x), strict=True):
        torch.testing.assert_close(got, want, rtol=near, atol=near)
