"""Upsampling and its gradients: the operators themselves, in the engine."""

import pytest
import torch
import torch.nn.functional as F
from helpers import compiled, hosts, recorded

from torchair import resizing

LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
SIZES = {3: (2, 3, 11), 4: (2, 3, 7, 10), 5: (1, 2, 3, 6, 5)}
FACTORS = [2, 0.5, 1.7, 1, (3, 0.4, 1.3)]


def ways():
    for rank, name in LINEAR.items():
        for mode in ("nearest", "nearest-exact", name):
            yield rank, mode, {}
        yield rank, name, {"align_corners": True}
    for mode in ("bilinear", "bicubic"):
        yield 4, mode, {"antialias": True}
        yield 4, mode, {"antialias": True, "align_corners": True}
    yield 4, "bicubic", {}
    yield 4, "bicubic", {"align_corners": True}


def resize_of(rank, mode, more, factor):
    if isinstance(factor, tuple):
        factor = factor[: rank - 2]
    return lambda x: F.interpolate(x, scale_factor=factor, mode=mode, **more)


def run_with_gradient(fn, x):
    x = x.detach().requires_grad_()
    y = fn(x)
    (
        y * torch.arange(y.numel()).view(y.shape).cos().to(y.dtype)
    ).sum().backward()
    return y.detach(), x.grad


def compare(mine, eager, exact):
    """exact: in float64, for 16-bit floats: eager may round weights to them,
    so what cancels differs."""
    if exact is None:
        torch.testing.assert_close(mine, eager)
        return
    assert mine.dtype == eager.dtype
    allowed = (eager - exact).abs().max() + 2**-8 * exact.abs().max()
    if mine.is_cuda:  # torch's index_put rounds what it adds one by one
        allowed *= 2
    assert (mine - exact).abs().max() <= allowed


def cannot(more, dtype):
    return "antialias" in more and dtype == torch.bfloat16


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("way", list(ways()), ids=str)
def test_like_eager(way, factor):
    rank, mode, more = way
    fn = resize_of(rank, mode, more, factor)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        if cannot(more, dtype):
            continue
        x = torch.randn(SIZES[rank]).to(dtype)
        with recorded() as records:
            got = run_with_gradient(compiled(fn), x)
        assert not hosts(records)
        eager, exact = run_with_gradient(fn, x), [None, None]
        if dtype == torch.bfloat16:
            exact = run_with_gradient(fn, x.double())
        for mine, theirs, best in zip(got, eager, exact, strict=True):
            compare(mine, theirs, best)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_other_layouts_and_types(mode):
    def fn(x):
        return F.interpolate(x, size=(9, 13), mode=mode)

    x = torch.randn(2, 4, 6, 5).to(memory_format=torch.channels_last)
    got = compiled(fn)(x)
    torch.testing.assert_close(got, fn(x))
    if not x.is_cuda:  # where torch's graph says another order than eager has
        assert got.stride() == fn(x).stride()
    torch.testing.assert_close(compiled(fn)(x[:, ::2, 1:]), fn(x[:, ::2, 1:]))
    if x.is_cuda and mode == "bilinear":
        return  # torch has no such kernel of bytes
    u8 = torch.randint(0, 255, (2, 3, 6, 5), dtype=torch.uint8)
    torch.testing.assert_close(compiled(fn)(u8), fn(u8))


def test_sizes_are_symbols():
    calls = compiled(
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        dynamic=True,
    )
    for n, h in ((2, 5), (3, 9), (5, 4)):
        x = torch.randn(n, 3, h, h + 1)
        want = F.interpolate(x, scale_factor=2.0, mode="bilinear")
        torch.testing.assert_close(calls(x), want)


def test_infinities_stay_where_they_are():
    x = torch.randn(1, 1, 6, 6)
    x[0, 0, 0, 0] = torch.inf
    for factor in (0.5, 1.5):
        fn = resize_of(4, "nearest", {}, factor)
        for mine, eager in zip(
            run_with_gradient(compiled(fn), x),
            run_with_gradient(fn, x),
            strict=True,
        ):
            torch.testing.assert_close(mine, eager)


def test_torch_traces_as_before_afterwards():
    op = torch.ops.aten.upsample_bilinear2d.vec
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    compiled(resize_of(4, "bilinear", {}, 2))(torch.randn(1, 1, 4, 4))
    assert key in op.py_kernels


def test_two_trace_at_once():
    """Of two threads the first that is done leaves the other's kernels."""
    op = torch.ops.aten.upsample_bilinear2d.vec
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    of_torch = op.py_kernels[key]
    first, second = resizing.kept([]), resizing.kept([])
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert op.py_kernels[key] is not of_torch
    second.__exit__(None, None, None)
    assert op.py_kernels[key] is of_torch
