"""Sums, means and products at indices, in halves: rounded once, in the end."""

import pytest
import torch
from helpers import compiled, seeded

HALVES = [torch.bfloat16, torch.float16]


def folds(x, index, src):
    each = [x.scatter_add(0, index, src)]
    for how in ("sum", "mean", "prod"):
        each += [
            x.scatter_reduce(0, index, src, how, include_self=own)
            for own in (False, True)
        ]
    return each


def layouts(n, cols, g):
    """Indices and values: dense, broadcast, and along the other axis."""
    index = torch.randint(0, 3, (n, cols), generator=g)
    src = 1 + torch.randn(n, cols, generator=g) / 64
    yield index, src
    yield index[:, :1].expand(n, cols), src
    yield index, src.t().contiguous().t()
    yield index[:, ::2], src[:, ::2]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("sizes", [(1, 1), (7, 5), (900, 1), (900, 9)])
@pytest.mark.host("eager on a GPU rounds each sum")
def test_of_halves(dtype, sizes):
    """Within a rounding of the result in float64."""
    g = seeded(sum(sizes))
    start = torch.randn(3, sizes[1] + 1, generator=g)
    for index, src in layouts(*sizes, g):
        x, src = start.to(dtype), src.to(dtype)
        got = compiled(folds)(x, index, src)
        want = folds(x.double(), index, src.double())
        for mine, exact in zip(got, want, strict=True):
            assert mine.dtype is dtype
            rtol = torch.finfo(dtype).eps
            torch.testing.assert_close(mine.double(), exact, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.host("eager on a GPU rounds each sum")
def test_gradients_of_gather(dtype):
    """Many elements of a gradient go to one place."""
    x = torch.zeros(4, 3, dtype=dtype, requires_grad=True)
    index = torch.zeros(3000, 3, dtype=torch.int64)
    compiled(lambda x: x.gather(0, index).sum())(x).backward()
    want = torch.zeros(4, 3)
    want[0] = 3000
    torch.testing.assert_close(x.grad, want.to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "sizes, axis", [((4, 5), 0), ((4, 5), -1), ((3, 4, 5), 2)]
)
@pytest.mark.host("eager on a GPU rounds each sum")
def test_rows_of_halves(dtype, sizes, axis):
    """Rows and columns at indices, and gradients of index_select."""
    index = torch.zeros(3000, dtype=torch.int64)
    wide = list(sizes)
    wide[axis] = 3000
    src = torch.ones(wide, dtype=dtype)
    x = torch.zeros(sizes, dtype=dtype, requires_grad=True)
    compiled(lambda x: x.index_select(axis, index).sum())(x).backward()
    want = torch.zeros(sizes).index_add(axis, index, src.float())
    assert want.max() == 3000
    torch.testing.assert_close(x.grad, want.to(dtype))
    got = compiled(lambda x, s: x.index_add(axis, index, s))(x.detach(), src)
    torch.testing.assert_close(got, want.to(dtype))
