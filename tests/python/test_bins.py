"""Counts of elements by bin, and diagonals of truth values."""

import pytest
import torch
from helpers import DEVICE, check, seeded

BOUNDS = [(0, 1), (0.0, 1.0), (-1, 0), (2, 3), (-1, 2), (0.25, 0.5), (0, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low, high", BOUNDS)
def test_counts_by_bin(dtype, low, high):
    x = torch.randn(300, generator=seeded(4), dtype=dtype)
    check(lambda x: torch.histc(x, 10, low, high), x)


@pytest.mark.parametrize("low, high", [(0, 0), (1, 1), (0, 1)])
def test_bins_of_nothing(low, high):
    check(lambda x: torch.histc(x, 4, low, high), torch.empty(0))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float32]
)
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_diagonals(dtype, mode):
    """Of 300 places, which bytes do not count."""

    def fn(x):
        one = torch.eye(300, dtype=dtype, device=DEVICE)
        wide = torch.eye(5, 7, dtype=dtype, device=DEVICE)
        return one, wide, x.masked_fill(one.bool(), 7), x * (one == 0)

    check(fn, torch.randn(300, 300, generator=seeded(5)), mode=mode)
