"""Operators that models use now and then, with their gradients: they run in
the engine, and are as near to float64 as eager is."""

import pytest
import torch
from helpers import BEFORE_213, compiled, hosts, recorded, seeded
from torch.nn import functional as F

# function, shape of its operand
CASES = {
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (2, 8, 3, 4)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (2, 3, 4, 6)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 3), (2, 6, 3, 4)),
    "rot90": (lambda x: x.rot90(1, (1, 2)), (2, 3, 4)),
    "rot90 back": (lambda x: x.rot90(-1, (0, 2)), (2, 3, 4)),
    "rot90 twice": (lambda x: x.rot90(2), (2, 3, 4)),
    "unfold": (lambda x: F.unfold(x, (3, 2), (1, 2), 1, 2), (2, 3, 7, 8)),
    "unfold one image": (lambda x: F.unfold(x, 2), (3, 7, 8)),
    "fold": (
        lambda x: F.fold(x, (7, 8), (3, 2), padding=1, stride=(2, 1)),
        (2, 18, 36),
    ),
    "diag_embed": (lambda x: torch.diag_embed(x, 1), (3, 4)),
    "diag_embed dims": (lambda x: torch.diag_embed(x, -2, 0, 2), (3, 4)),
    "diagonal": (lambda x: x.diagonal(-1, 0, 2) * 2, (3, 4, 5)),
    "trace": (torch.trace, (5, 7)),
    "logsigmoid": (F.logsigmoid, (5, 7)),
    "prelu": (lambda x: F.prelu(x, x[0, :, 0].detach()), (2, 5, 7)),
    "weight_norm": (lambda x: torch._weight_norm(x, x[:, :1], 0), (5, 7)),
    "weight_norm last": (
        lambda x: torch._weight_norm(x, x[:1, :1] * 2, 2),
        (4, 3, 1),
    ),
    "masked number": (
        lambda x: x.index_put((x > 0.5,), torch.tensor(2.0, dtype=x.dtype)),
        (5, 7),
    ),
    "masked rows": (
        lambda x: x.index_put((x[:, 0] > 0,), x[1, 1].detach()),
        (5, 7),
    ),
    **{
        f"pad {mode} {rank - 2}": (
            lambda x, mode=mode, pad=pad: F.pad(x, pad, mode=mode),
            (2, 3, *(5,) * (rank - 2)),
        )
        for mode in ("reflect", "replicate")
        for rank, pad in (
            (3, (3, 2)),
            (4, (2, -1, 1, 4)),
            (5, (1, 0, 2, 2, 0, 3)),
        )
    },
}
FORWARD = {
    "cdist": (lambda x: torch.cdist(x[0], x[1]), (2, 7, 5)),
    "cdist 1": (lambda x: torch.cdist(x[0], x[1], 1.0), (2, 7, 5)),
    "cdist 3": (lambda x: torch.cdist(x[:, :2], x, 3.0), (2, 7, 5)),
    "cdist inf": (lambda x: torch.cdist(x, x * 2, float("inf")), (2, 7, 5)),
    "cdist many": (lambda x: torch.cdist(x[0], x[1]), (2, 40, 16)),
    "pairs": (
        lambda x: torch.exp(-(x[0, :, None] - x[1]).square().mean(-1)),
        (2, 40, 24),
    ),
    "pairs of turned ones": (
        lambda x: (x[0, :, None] * x[1].mT.contiguous().mT).amax(-1),
        (2, 40, 24),
    ),
}


def gradient(fn, x):
    x = x.detach().requires_grad_()
    out = fn(x)
    torch.manual_seed(1)
    grad = torch.randn(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad(out, x, grad)]


def forward(fn, x):
    return [fn(x)]


def error(got, exact):
    return (got.double() - exact).square().mean().sqrt().item()


def check(run, fn, shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    want = run(fn, x)
    with recorded() as records:
        got = run(compiled(fn), x)
    assert not hosts(records)
    exact = run(fn, x.double())
    for g, w, e in zip(got, want, exact, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        ulp = torch.finfo(dtype).eps * e.abs().mean().item()
        assert error(g, e) <= 1.1 * error(w, e) + ulp


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_with_gradient(name, dtype):
    if BEFORE_213 and (name, dtype) == ("trace", torch.bfloat16):
        pytest.skip("not in this torch")
    check(gradient, *CASES[name], dtype)


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name):
    check(forward, *FORWARD[name], torch.float32)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_moving_other_dtypes(dtype):
    x = torch.randint(0, 2, (1, 8, 3, 3)).to(dtype)

    def fn(x):
        return (
            F.pixel_shuffle(x, 2),
            x.rot90(1, (2, 3)),
            torch.diag_embed(x[0, 0]),
        )

    with recorded() as records:
        got = compiled(fn)(x)
    assert not hosts(records)
    for g, w in zip(got, fn(x), strict=True):
        assert torch.equal(g, w)


def test_trace_of_integers_is_wide():
    x = torch.full((3, 3), 100, dtype=torch.int8)
    got = compiled(torch.trace)(x)
    assert got.dtype == torch.int64 and got == 300


def test_sizes_that_change():
    def fn(x):
        return F.pixel_shuffle(x, 2), F.unfold(x, 3, padding=1)

    run = compiled(fn, dynamic=True)
    for n in (2, 3, 5):
        x = torch.randn(n, 8, n + 3, 6)
        for g, w in zip(run(x), fn(x), strict=True):
            torch.testing.assert_close(g, w)


INTERPOLATE = {
    "nearest 1": ((2, 3, 9), {"scale_factor": 2.0, "mode": "nearest"}),
    "nearest 2": ((2, 3, 5, 6), {"size": (7, 13), "mode": "nearest"}),
    "nearest 3": ((1, 2, 3, 4, 5), {"scale_factor": 2.0}),
    "exact": ((2, 3, 5, 6), {"size": (8, 3), "mode": "nearest-exact"}),
    "linear": ((2, 3, 9), {"scale_factor": 1.7, "mode": "linear"}),
    "bilinear": ((2, 3, 5, 6), {"scale_factor": 2.0, "mode": "bilinear"}),
    "corners": (
        (2, 3, 5, 6),
        {"size": (3, 11), "mode": "bilinear", "align_corners": True},
    ),
    "bicubic": ((2, 3, 5, 6), {"scale_factor": 2.0, "mode": "bicubic"}),
    "trilinear": (
        (1, 2, 3, 4, 5),
        {"scale_factor": 2.0, "mode": "trilinear"},
    ),
}


@pytest.mark.parametrize("name", INTERPOLATE)
def test_interpolation(name):
    """torch writes these as picked pixels; float32 as eager's kernels."""
    shape, options = INTERPOLATE[name]

    def fn(x):
        return F.interpolate(x, **options)

    torch.manual_seed(0)
    x = torch.randn(shape)
    want = gradient(fn, x)
    with recorded() as records:
        got = gradient(compiled(fn), x)
    assert not hosts(records)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_picked_pixels(dtype, accumulate):
    """Indices of the last axes only; some count from the end."""
    torch.manual_seed(2)
    x = torch.randint(-9, 9, (3, 2, 5, 7)).to(dtype)
    rows = torch.tensor([[4], [-5], [2]])
    columns = torch.tensor([3, 0, -1, 2])
    values = torch.randint(-9, 9, (2, 3, 4)).to(dtype)

    def fn(x, values):
        where = (None, None, rows, columns)
        put = torch.ops.aten.index_put(x, where, values, accumulate)
        return x[:, :, rows, columns], put, x.mT[:, :, columns, rows]

    for g, w in zip(compiled(fn)(x, values), fn(x, values), strict=True):
        assert torch.equal(g, w)


@pytest.mark.host("of a wrong index the call after it tells")
def test_picked_pixels_out_of_range():
    run = compiled(lambda x, i: x[:, i, i])
    x = torch.randn(2, 3, 4)
    run(x, torch.tensor([0, 2]))
    with pytest.raises(Exception, match="index"):
        run(x, torch.tensor([0, 3]))


def test_tensors_of_several_dtypes_are_joined():
    """Converted to what eager makes of them, in the engine."""
    a, b = torch.randn(3, 5), torch.randint(-9, 9, (3, 5))
    for c, axis in ((torch.randn(3, 5).bfloat16(), 0), (b > 0, -1)):

        def fn(a, b, c, axis=axis):
            return torch.cat([a, b, c * 2, b], axis) + 1

        want = fn(a, b, c)
        with recorded() as records:
            got = compiled(fn)(a, b, c)
        torch.testing.assert_close(got, want)
        assert not hosts(records)


# Rows shorter and longer than a tile and a chunk of the reduction, whole and
# with gaps, along either axis.
@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int16, torch.int32]
)
def test_folds_of_narrow_integers(dtype):
    def fold(x):
        return (
            x.sum(-1),
            x.amax(-1),
            x.amin(0),
            x.sum(0),
            x[:, ::2].amax(-1),
            x.amin(),
        )

    seed = seeded(3)
    info = torch.iinfo(dtype)
    for size in ((3, 5), (4, 700), (2, 9001), (300, 40)):
        torch._dynamo.reset()
        x = torch.randint(info.min, info.max, size, dtype=dtype, generator=seed)
        fast = torch.compile(fold, backend="torchair", fullgraph=True)
        for got, want in zip(fast(x), fold(x), strict=True):
            assert got.dtype == want.dtype
            assert torch.equal(got, want)


@pytest.mark.parametrize("fold", ["sum", "amax", "prod"])
@pytest.mark.parametrize("cols", [3, 64, 128, 200])
@pytest.mark.parametrize("rows", [1, 4, 7, 37, 4099])
def test_rows_at_once_are_folded_as_one_by_one(rows, cols, fold):
    """A cosine is computed in tiles: of several rows, if they lie as one."""

    def fn(x):
        y = torch.cos(x * 3) * 1.1
        return y, getattr(y, fold)(0)

    torch.manual_seed(rows + cols)
    x = torch.randn(rows, cols + 1)[:, :cols]
    apart, together = compiled(fn)(x), compiled(fn)(x.contiguous())
    for a, b in zip(apart, together, strict=True):
        assert torch.equal(a, b)
    exact = fn(x.double())[1]
    scale = exact.abs().max().item() + 1e-30
    assert (together[1] - exact).abs().max().item() / scale < 1e-4
