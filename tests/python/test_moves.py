"""Operators that only move elements: bit for bit what eager gives."""

import pytest
import torch
from helpers import assert_same, compiled

# One of each width, and truth values.
DTYPES = [torch.uint8, torch.int16, torch.float32, torch.float64, torch.bool]
THREADS = [1, 2]


@pytest.fixture(autouse=True, params=THREADS)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*size, dtype):
    return torch.randint(0, 100, size).to(dtype)


def check(fn, *args):
    assert_same(compiled(fn)(*args), fn(*args))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flip(dtype):
    """Rows shorter than a vector, of several, and with a rest."""

    def fn(x):
        return x.flip(-1), x.flip(0), x.flip((0, 1)), x.t().flip(1)

    for cols in (1, 3, 16, 45):
        check(fn, numbers(7, cols, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangles(dtype):
    def fn(x):
        ends = [x.tril(-40), x.triu(40), x.tril(40)]
        return ends, x.tril(), x.triu(-2), x.mT.tril(3), x[:, ::2].triu(1)

    for cols in (1, 3, 33):
        check(fn, numbers(3, 9, cols, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES[2:4])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pad_edges(dtype, mode):
    """On one side, on both, cut off, and of images that lie otherwise."""

    def fn(x):
        pads = [(2, 3, 1, 0), (0, 4, 0, 2), (-1, 2, 3, -2), (-3, -2, 0, 0)]
        last = x.to(memory_format=torch.channels_last)
        lying = last.contiguous(memory_format=torch.channels_last)
        made = [torch.nn.functional.pad(x, p, mode=mode) for p in pads]
        return made, torch.nn.functional.pad(lying, pads[0], mode=mode)

    check(fn, numbers(2, 3, 6, 7, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_apart(dtype):
    """Every second, each twice, two in turn."""

    def fn(x, y):
        rows = x[:, None].expand(x.shape[0], 5, x.shape[1]).contiguous()
        pairs = torch.stack([x, y], -1), x.repeat_interleave(2, 1)
        return rows, pairs, x[:, ::2].clone(), x[:, 1::3].clone()

    for cols in (1, 7, 70):
        size = (600, cols)
        check(fn, numbers(*size, dtype=dtype), numbers(*size, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(dtype):
    def fn(x, i, j, k):
        last = x.gather(-1, i), x.gather(0, j), x.gather(1, k)
        return *last, x.transpose(0, 2).gather(0, i.transpose(0, 2))

    x = numbers(9, 20, 33, dtype=dtype)
    i = torch.randint(0, 33, (9, 20, 50))
    j = torch.randint(0, 9, (4, 20, 33))
    k = torch.randint(0, 20, (9, 1, 33)).expand(9, 6, 33)
    check(fn, x, i, j, k)


def test_gather_one_of_each_row():
    """As a loss takes it: rows of the index hold one element."""

    def fn(x, i):
        return x.gather(1, i), x.t().gather(0, i.t())

    check(fn, torch.randn(300, 17), torch.randint(0, 17, (300, 1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_select(dtype):
    def fn(x, i):
        return [x.index_select(d, i) for d in range(3)], x.mT[..., i]

    x = numbers(9, 11, 13, dtype=dtype)
    check(fn, x, torch.randint(0, 9, (40,)))
    check(fn, x, torch.randint(0, 9, (40,))[::3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(dtype):
    """Every place once: which value of several stays is not defined."""

    def fn(x, i, y):
        rows = x.scatter(1, i, y), x.scatter(1, i, 1)
        return *rows, x.t().scatter(0, i.t(), y.t())

    i = torch.stack([torch.randperm(40)[:25] for _ in range(30)])
    check(
        fn,
        numbers(30, 40, dtype=dtype),
        i,
        numbers(30, 25, dtype=dtype),
    )


SCATTERED = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
]


@pytest.mark.parametrize("dtype", SCATTERED)
def test_scatter_add(dtype):
    """Whole numbers: sums are exact in any order."""

    def fn(x, i, j, y):
        return x.scatter_add(1, i, y), x.scatter_add(0, j, y)

    i, j = torch.randint(0, 40, (30, 25)), torch.randint(0, 30, (30, 25))
    x, y = numbers(30, 40, dtype=dtype), numbers(30, 25, dtype=dtype)
    check(fn, x, i, j, y)


@pytest.mark.parametrize("dtype", SCATTERED)
@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_best(dtype, reduce, include_self):
    """Places that are met often, or never; what is not a number wins."""

    def fn(x, i, y):
        given = {"reduce": reduce, "include_self": include_self}
        return [x.scatter_reduce(dim, i, y, **given) for dim in (0, 1)]

    x, y = numbers(9, 40, dtype=dtype), numbers(9, 40, dtype=dtype)
    if dtype.is_floating_point:
        y[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    check(fn, x, torch.randint(0, 9, (9, 40)), y)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int32]
)
def test_index_put_accumulate(dtype):
    """Slices whose elements lie side by side, or apart, or in two rows."""

    def fn(x, i, y):
        given = {"accumulate": True}
        return (
            x.index_put((i,), y, **given),
            x.transpose(1, 2).index_put((i,), y.transpose(1, 2), **given),
            x[:, :, ::2].index_put((i,), y[:, :, ::2], **given),
        )

    x, y = numbers(7, 5, 7, dtype=dtype), numbers(19, 5, 7, dtype=dtype)
    check(fn, x, torch.randint(-7, 7, (19,)), y)


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int32, torch.int64]
)
def test_searchsorted(dtype, right):
    """Ties, ends, a sequence of one and of none, more values than a block."""

    def fn(x, y):
        return [
            torch.searchsorted(x[:n], y, right=right) for n in (50, 33, 1, 0)
        ] + [
            torch.searchsorted(x.expand(3, 50), y, right=right, out_int32=True),
            torch.bucketize(y.t(), x, right=right),
        ]

    x, y = numbers(50, dtype=dtype).sort()[0], numbers(3, 37, dtype=dtype)
    y[0, 0], y[1, 0] = x[0], x[-1]
    if dtype.is_floating_point:
        y[2, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    check(fn, x, y)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce, include_self):
    def fn(x, i, y):
        given = {"reduce": reduce, "include_self": include_self}
        rows = x.scatter_reduce(1, i, y, **given)
        return rows, x.t().scatter_reduce(0, i.t(), y.t(), **given)

    i = torch.randint(0, 9, (20, 12))
    check(fn, torch.rand(20, 9), i, torch.rand(20, 12))


@pytest.mark.parametrize("dtype", SCATTERED)
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_of_rows(reduce, dtype):
    """An index that is expanded, as a graph's nodes gather their edges: whole
    rows, and columns; some of none. Values that are few keep sums exact."""

    def fn(x, i, y):
        given = {"reduce": reduce}
        at = i[:, None].expand_as(y)
        return [
            x.scatter_reduce(0, at, y, **given),
            x.scatter_reduce(0, at, y, **given, include_self=False),
            x.t().scatter_reduce(1, at.t(), y.t(), **given),
            x[:, ::2].scatter_reduce(0, at[:, ::2], y[:, ::2], **given),
        ]

    x, y = numbers(9, 37, dtype=dtype) % 3, numbers(24, 37, dtype=dtype) % 3
    if dtype.is_floating_point and reduce in ("amax", "amin"):
        y[0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    check(fn, x, torch.randint(0, 7, (24,)), y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_tensors_that_are_broadcast(dtype):
    """As regions of images are sampled: corners of windows, read and written;
    the windows are more in the second call."""

    def fn(x, b, y, z):
        b, y, z = b[:, None, None, None], y[:, None, :, None], z[:, None, None]
        c = torch.arange(x.shape[1])[None, :, None, None]
        one = x[b, c, y, z]
        new = torch.zeros_like(x).index_put((b, c, y.int(), z), one)
        return one, new, x[b[..., 0, 0], :, y[:, :, 0], z[:, :, 0]], x[b, c]

    run = compiled(fn, dynamic=True)
    for windows in (6, 41):
        x = numbers(3, 5, 7, 9, dtype=dtype)
        b = torch.randint(-3, 3, (windows,))
        y, z = torch.randint(0, 7, (windows, 4)), torch.randint(-9, 9, (2,))
        z = torch.stack([z] * windows)
        assert_same(run(x, b, y, z), fn(x, b, y, z))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 40])
def test_slices_of_few_elements(size, dtype):
    """Moved as one run where they are one, here and where they go."""
    at = torch.randint(-9, 9, (70, 3))

    def fn(x, at):
        apart = torch.zeros(70, 3, 2 * size, dtype=dtype)
        apart[..., ::2] = x[at]
        both = torch.cat([x[at], x[at + 0]], -1)
        return x[at], apart, both, x.index_select(0, at[:, 0] % 9)

    check(fn, numbers(9, size, dtype=dtype), at)
    check(fn, numbers(9, 2 * size, dtype=dtype)[:, ::2], at)
    check(fn, numbers(size, 9, dtype=dtype).t(), at)


@pytest.mark.host("of a wrong index the call after it tells")
@pytest.mark.parametrize("at", [0, 24, 49])
@pytest.mark.parametrize("bad", [33, -34])
def test_index_out_of_range(at, bad):
    """What lies before the wrong index is no excuse for what follows."""
    i = torch.zeros(2, 50, dtype=torch.int64)
    i[1, at] = bad
    x, y = torch.randn(2, 33), torch.randn(2, 50)
    for fn in (
        lambda x, i, y: x.gather(1, i),
        lambda x, i, y: x.scatter(1, i, y),
        lambda x, i, y: x.scatter_add(1, i, y),
    ):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=f"{bad} is out of"):
            compiled(fn)(x, i, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies(dtype):
    """Bytes and short integers are moved as they are."""

    def fn(x):
        return (
            x.permute(0, 2, 1).contiguous(),
            x[:, ::2].contiguous(),
            x.repeat(1, 2, 1),
            x.unfold(1, 4, 2).contiguous(),
        )

    check(fn, numbers(3, 18, 37, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int64])
def test_results_in_the_layout_of_operands(dtype):
    def fn(x):
        return x.t() + 1, x.t() * 2, (x + x).permute(1, 0)

    check(fn, numbers(37, 21, dtype=dtype))

    def images(x):
        return x + 1, (x * 2).sum((2, 3))

    x = numbers(2, 5, 6, 7, dtype=dtype)
    check(images, x.to(memory_format=torch.channels_last))


SHORT = [(40, 7), (33, 1), (300, 64), (2, 19, 5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SHORT)
def test_short_rows(size, dtype):
    def fn(x, w):
        norm = torch.nn.functional.layer_norm(x, (x.shape[-1],), w, w)
        return x.softmax(-1), norm, x.sum(-1), x.amax(-1), x.mean(-1)

    check(fn, torch.rand(size).to(dtype), torch.rand(size[-1]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("cols", [1, 2, 3, 5, 16, 17])
def test_short_rows_that_are_broadcast(cols, dtype):
    """Along either axis or two, in place, into parts of what is larger, with
    functions that have no machine code, and with numbers of places."""

    def fn(x, y, z):
        x = x.clone()
        x += y[:, None] * z
        both = torch.cat([x - z, y[:, :1, None] + x], -1)
        places = torch.arange(cols, device=y.device) * y[:, :1, None] + x
        return x, both, places, (x * z).float().tanh(), x.transpose(0, 2) * 2

    x, y = numbers(30, 70, cols, dtype=dtype), numbers(30, cols, dtype=dtype)
    check(fn, x, y, numbers(70, cols, dtype=dtype))
    check(fn, x[:, :8], y, numbers(8, cols, dtype=dtype))
    check(fn, x[:2, :9], y[:2], numbers(9, cols, dtype=dtype))


def test_short_rows_of_other_dtypes():
    def fn(x, y):
        return x.sum(-1), x.prod(-1), (y > 50).any(-1), (y > 2).all(-1)

    for dtype in (torch.int64, torch.int32, torch.float64, torch.uint8):
        x = numbers(50, 6, dtype=dtype) % 5
        check(fn, x, numbers(50, 6, dtype=dtype))
    torch._dynamo.reset()
    check(fn, torch.rand(6, 50).t(), torch.rand(50, 6))
