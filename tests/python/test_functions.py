"""Small functions, eager against compiled, in both modes."""

import pytest
import torch
import torch.nn.functional as F
from helpers import check, fallbacks, recorded, seeded

randn = torch.randn
MODES = ["max-autotune", "reduce-overhead"]


def ints(*shape):
    return torch.randint(-5, 6, shape)


CASES = {
    "add_relu_mul": (lambda x, y: torch.relu(x + y) * 2, (64,), (64,)),
    "broadcast": (lambda x, y: x * y - y / 3, (5, 1, 7), (4, 1)),
    "scalar_args": (lambda x: (x + 1) * 2.5 - 3, (3, 5)),
    "gelu_chain": (
        lambda x, a, b: F.gelu(x * a + b) * torch.sigmoid(x) + x,
        (8, 33),
        (33,),
        (33,),
    ),
    "softmax": (lambda x: torch.softmax(x, -1), (7, 19)),
    "softmax_inner": (lambda x: torch.softmax(x, 1), (3, 5, 7)),
    "log_softmax": (lambda x: torch.log_softmax(x, 0), (6, 4)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (16,), w, b),
        (4, 3, 16),
        (16,),
        (16,),
    ),
    "sum_mean": (lambda x: (x.sum(), x.mean(1), x.sum((0, 2))), (4, 5, 6)),
    "amax_argmax": (lambda x: (x.amax(1), x.argmax(-1), x.max(0)), (5, 9)),
    "var": (lambda x: (x.var(1), x.std(0, unbiased=False)), (6, 8)),
    "matmul": (lambda x, y: x @ y, (17, 9), (9, 13)),
    "bmm": (lambda x, y: torch.bmm(x, y), (3, 5, 7), (3, 7, 4)),
    "linear": (lambda x, w, b: F.linear(x, w, b), (2, 5, 8), (6, 8), (6,)),
    "linear_relu": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        (33, 64),
        (48, 64),
        (48,),
    ),
    "views": (
        lambda x: x.t().reshape(-1)[2:].view(4, -1).transpose(0, 1) + 1,
        (6, 3),
    ),
    "cat_stack": (
        lambda x, y: (torch.cat([x, y], 1), torch.stack([x, x])),
        (2, 3),
        (2, 4),
    ),
    "split": (lambda x: [t * 2 for t in x.split(3, 1)], (4, 8)),
    "unbind": (lambda x: sum(x.unbind(0)), (3, 5)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (4, 4), (4, 4)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp_min(0), (9,)),
    "compare": (lambda x, y: (x < y, x == y, (x >= 0) & (y != 0)), (5,), (5,)),
    "pow": (lambda x: x.abs().pow(0.5) + x**2 + x**3, (10,)),
    "trig": (lambda x: torch.sin(x) + torch.tanh(x) * torch.exp(-x * x), (11,)),
    "rsqrt_log": (
        lambda x: torch.rsqrt(x * x + 1) + torch.log1p(x.abs()),
        (12,),
    ),
    "conv": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (2, 3, 8, 8),
        (4, 3, 3, 3),
        (4,),
    ),
    "max_pool": (lambda x: F.max_pool2d(x, 2), (2, 3, 8, 8)),
    "avg_pool": (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 6, 6)),
    "cumsum": (lambda x: x.cumsum(1), (3, 6)),
    "sort_topk": (lambda x: (torch.sort(x, 1), torch.topk(x, 2)), (4, 7)),
    "flip_roll": (lambda x: x.flip(0) + x.roll(1, 1), (4, 5)),
    "tril": (lambda x: x.tril() + x.triu(1), (5, 5)),
    "pad": (lambda x: F.pad(x, (1, 2), value=3.0), (3, 4)),
    "expand": (lambda x: x.expand(4, 5).contiguous() + 1, (5,)),
    "to_dtype": (lambda x: x.to(torch.int32).to(torch.bfloat16) * 2, (8,)),
    "dict_result": (lambda x: {"a": x + 1, "b": (x, x * 2)}, (3,)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (2, 4, 6, 16),
        (2, 4, 9, 16),
        (2, 4, 9, 16),
    ),
    "causal": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        (1, 2, 12, 8),
    ),
    "normalize": (lambda x: F.normalize(x, dim=-1), (4, 6)),
    "zero_size": (lambda x: (x + 1, x.sum(), torch.cat([x, x])), (0, 3)),
    "zero_rank": (lambda x, y: x * 2 + y, (), ()),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_function(name, mode):
    fn, *shapes = CASES[name]
    with torch.no_grad(), recorded() as records:
        check(fn, *(randn(s) for s in shapes), mode=mode)
    assert not fallbacks(records)
    assert records


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize(
    "name",
    [
        "add_relu_mul",
        "gelu_chain",
        "softmax",
        "layer_norm",
        "matmul",
        "sum_mean",
        "linear_relu",
        "attention",
    ],
)
def test_float_dtypes(name, dtype):
    fn, *shapes = CASES[name]
    with torch.no_grad():
        check(fn, *(randn(s).to(dtype) for s in shapes))


INTEGER = {
    "arithmetic": lambda x, y: x * y - (x + 3),
    "divide": lambda x, y: x / (y * y + 1),
    "floor_divide": lambda x, y: x // (y.abs() + 1) + x % (y.abs() + 2),
    "bitwise": lambda x, y: (x & y) | (x ^ 3),
    "sum": lambda x, y: (x.sum(), (x > y).sum(0), x.to(torch.uint8) + 1),
    "compare": lambda x, y: torch.where(x < y, x, 7),
    "mixed": lambda x, y: x * 0.5 + (y > 0),
}


@pytest.mark.parametrize("name", INTEGER)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
def test_integers(name, dtype):
    check(INTEGER[name], ints(4, 6).to(dtype), ints(4, 6).to(dtype))


def test_indexing():
    def fn(x, i):
        return x[i], x[:, i[:2]], x.gather(0, i[:, None]), F.embedding(i, x)

    check(fn, randn(6, 5), torch.tensor([0, 3, 4, 1]))


def test_scatter():
    def fn(x, i, s):
        return (
            x.scatter(0, i, s),
            x.index_add(0, i[0], s),
            x.index_copy(0, i[0], s),
            x.scatter_add(0, i, s),
        )

    index = torch.tensor([[0, 2, 1], [1, 0, 2], [3, 3, 0]])
    check(fn, randn(4, 3), index, randn(3, 3))


def test_creation():
    def fn(x):
        return (
            torch.zeros(3, 4, device=x.device),
            torch.full((2,), 7, device=x.device),
            torch.arange(5, device=x.device),
            torch.ones_like(x),
            torch.eye(3, device=x.device),
            x.new_zeros(2, 2),
            torch.linspace(0, 1, 5, device=x.device),
            torch.tensor([1.0, 2.0, 3.0], device=x.device) + x,
        )

    check(fn, randn(3))


def test_strides_of_results():
    def fn(x):
        return x.t() + 1, (x * 2).t(), x.permute(1, 0).contiguous(), x[:, ::2]

    got = check(fn, randn(4, 6))
    want = fn(randn(4, 6))
    assert [g.stride() for g in got] == [w.stride() for w in want]


def test_channels_last():
    x = randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    got = check(lambda x, w: F.relu(F.conv2d(x, w)), x, randn(5, 3, 3, 3))
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_random_equals_eager():
    def fn(x):
        return (
            x + torch.rand_like(x),
            torch.randn(3, device=x.device),
            F.dropout(x, 0.5, training=True),
        )

    x = randn(8)
    torch.manual_seed(7)
    want = fn(x)
    from helpers import assert_same, compiled

    run = compiled(fn)
    torch.manual_seed(7)
    assert_same(run(x), want)


def test_complex_goes_through_torch():
    def fn(x):
        z = torch.fft.fft(x)
        return (z * z.conj()).real, torch.view_as_real(z), z

    check(fn, randn(8))


def test_unsigned_wide_integers():
    check(
        lambda x: (x.to(torch.uint16), x.to(torch.uint16).to(torch.int32)),
        torch.arange(6),
    )


def test_custom_operator():
    @torch.library.custom_op("torchair_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @double.register_fake
    def _(x):
        return torch.empty_like(x)

    @torch.library.custom_op("torchair_test::add_one", mutates_args=("x",))
    def add_one(x: torch.Tensor) -> None:
        x.add_(1)

    def fn(x):
        y = double(x + 1)
        add_one(y)
        return y * 3

    with recorded() as records:
        check(fn, randn(4))
    ops = [h.op for r in records for h in r.hosts]
    assert any("double" in op for op in ops)
    assert not fallbacks(records)


@pytest.mark.parametrize("pad", [(3, 0), (0, 3), (1, 2)])
def test_circular_padding(pad):
    x = torch.randn(1, 3, 3)

    check(lambda x: F.pad(x, pad, mode="circular"), x)


@pytest.mark.parametrize("scale", [0.5, 2, 8])
def test_gelu_tanh_error(scale):
    def gelu(x):
        return F.gelu(x, approximate="tanh")

    x = torch.randn(1 << 14, generator=seeded(0)) * scale
    exact = gelu(x.double())
    ours, eager = (
        (f(x).double() - exact).abs().max()
        for f in (torch.compile(gelu, backend="torchair"), gelu)
    )
    assert ours <= 1.1 * eager


def test_gelu_tanh_of_what_has_no_neighbours():
    inf = float("inf")
    x = torch.tensor([0.0, -0.0, inf, -inf, inf - inf, 1e30, -1e30, 1e-40])
    check(lambda x: F.gelu(x, approximate="tanh"), x)
    zeros = torch.compile(
        lambda x: F.gelu(x, approximate="tanh"), backend="torchair"
    )(x[:2])
    assert zeros.signbit().tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_shifts_by_tensors(dtype):
    """By as many bits as there are, and more: as the dtype's own shifts."""
    dtype = getattr(torch, dtype)
    bits = 8 * dtype.itemsize
    x = torch.arange(-600, 600, 7).to(dtype)[:, None]
    by = torch.tensor([0, 1, 3, bits - 1, bits, bits + 1, 64, 70]).to(dtype)

    def fn(x, by):
        return x << by, x >> by, (x >> by) & 15, (x >> by).float()

    with recorded() as records:
        check(fn, x, by)
    assert not [h.op for r in records for h in r.hosts]
