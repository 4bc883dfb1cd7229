"""Elements of a short axis that are computed where they are read, and rows
that lie along several short axes."""

import pytest
import torch
from helpers import check, compiled, seeded


def numbers(*sizes, dtype=torch.float32):
    x = torch.randn(sizes, generator=seeded(len(sizes)))
    return (x * 50 if dtype == torch.int64 else x).to(dtype)


def grid(x, sizes, corners, primes, table):
    """A hash grid: places, their corners, what lies there, by its weights."""
    at = x[:, None] * sizes[:, None]
    floor = at.floor()
    part = (at - floor)[:, :, None]
    places = (floor.long()[:, :, None] + corners) * primes
    index = (places[..., 0] ^ places[..., 1] ^ places[..., 2]) % len(table)
    weights = torch.where(corners.bool(), part, 1 - part).prod(-1)
    return (table[index] * weights[..., None]).sum(2).flatten(1)


def test_hash_grid():
    corners = torch.tensor([[i & 1, i >> 1 & 1, i >> 2] for i in range(8)])
    primes = torch.tensor([1, 2654435761, 805459861])
    sizes = torch.tensor([4.0, 7.0, 11.0])
    for dtype in (torch.float32, torch.float64):
        table = numbers(64, 2, dtype=dtype).requires_grad_()
        x = numbers(50, 3, dtype=dtype)
        check(grid, x, sizes.to(dtype), corners, primes, table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_elements_of_a_short_axis(size, dtype):
    def fn(x, y, z):
        a = (x[:, None] + y) * z
        b = (x * z).cumsum(0)
        c = x * 2 + 1
        return a[..., 0] - a[..., 1], a.sum(), b[:, 1], c[0] - c[1], c[:, -1]

    x, y = numbers(20, size, dtype=dtype), numbers(7, size, dtype=dtype)
    check(fn, x, y, numbers(size, dtype=dtype))


def test_promotion_of_picked_elements():
    """A vector counts in it, a number does not."""

    def fn(x, y):
        a = x * y
        return a[:, 0] + a[:, 1]

    check(fn, numbers(20, 3), numbers(3, dtype=torch.float64))
    check(fn, numbers(20, 3).long(), numbers(3))


@pytest.mark.parametrize("divisor", [1, 2, 8, 1 << 40, 3, -8])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_quotients_of_powers_of_two(divisor, dtype):
    if dtype != torch.int64 and divisor > 100:
        divisor = 64
    x = torch.tensor([-(2**62), -129, -128, -9, -8, -1, 0, 1, 7, 8, 127, 2**62])
    check(lambda x: (x % divisor, x // divisor), x.to(dtype))


@pytest.mark.parametrize("cols", [2, 3, 8, 40])
@pytest.mark.parametrize(
    "sizes", [(300, 8), (7, 5, 3), (40, 2, 8), (5, 1, 9), (129, 2, 3), (2, 9)]
)
def test_rows_along_short_axes(cols, sizes):
    def fn(x, y, z, w, m):
        return (
            (x * y + z).sum(-1),
            (y * z).prod(-1),
            torch.where(m, x, w).amax(-1),
            (x * w + z).softmax(-1),
            (x * z).sum(-2),
            (x.transpose(-1, -2) * 2).sum(-1),
            (x.long() * 3 + z.long()).sum(-1),
        )

    inner = [1] * (len(sizes) - 1)
    x, y = numbers(*sizes, cols), numbers(sizes[0], *inner, cols)
    z, w = numbers(sizes[-1], cols), numbers(*sizes[:-1], 1, 1)
    check(fn, x, y, z, w, numbers(sizes[-1], cols) > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.float64])
@pytest.mark.parametrize("row", [(), (2,), (3,), (5, 2)])
def test_many_places(row, dtype):
    """More than are looked up at once, by indices of which one is the same for
    many, of either sign."""

    def fn(x, level, at, small):
        return x[level, at], x[level.flip(1), at], x[0, small], x[:, small]

    g = seeded(5)
    x = (torch.randn(4, 50, *row, generator=g) * 100).to(dtype)
    at = torch.randint(-50, 50, (300, 4, 7), generator=g)
    level = torch.tensor([0, -1, 2, 1])[None, :, None]
    check(fn, x, level, at, torch.randint(-50, 50, (1500,)).int())


@pytest.mark.host("of a wrong index the call after it tells")
@pytest.mark.parametrize("wrong", [50, -51, 2**62, -(2**63)])
@pytest.mark.parametrize("where", [0, 1023, 1024, 2999])
def test_a_place_that_is_not_there(where, wrong):
    def fn(x, level, at):
        return x[level, at]

    at = torch.zeros(3000, dtype=torch.int64)
    at[where] = wrong
    x, level = torch.randn(4, 50, 2), torch.tensor([3])
    with pytest.raises(IndexError, match="out of range|index"):
        compiled(fn)(x, level, at)
    with pytest.raises(IndexError, match="out of range|index"):
        compiled(fn)(x, at.clamp(-100, 100), level)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64]
)
def test_folds_of_a_few_elements(dtype, size, mode):
    def fn(x, y, z):
        d = x[:, None] - y
        e = x * z
        return (
            (d * d).sum(-1),
            (e + 1).prod(-1, keepdim=True),
            e.sum(-1) + e.amax(-1),
            (-x).sum(),
            (x * 0 * -1).sum(-1),
        )

    x, y = numbers(70, size, dtype=dtype), numbers(9, size, dtype=dtype)
    check(fn, x, y, numbers(size, dtype=dtype), mode=mode)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cols", [2, 3, 4, 6])
def test_weighted_sums_of_few_columns(cols, dtype):
    """Blocks of rows of which some lie side by side, or are one number."""

    def fn(x, w, y):
        return (
            (x * w[..., None]).sum(2),
            (x * y).prod(2),
            (x - w[..., None]).amax(2),
        )

    x, w = numbers(41, 3, 8, cols, dtype=dtype), numbers(41, 3, 8, dtype=dtype)
    check(fn, x, w, numbers(8, cols, dtype=dtype))
