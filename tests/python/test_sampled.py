"""Operators that read where their data says: bags of embeddings, places of a
grid."""

import pytest
import torch
from helpers import compiled, without_lacking

import torchair


def check(exact, ours, eager):
    """No further from float64 than eager, times 1.1, and a rounding."""
    for want, mine, theirs in zip(exact, ours, eager, strict=True):
        assert mine.dtype == theirs.dtype
        step = torch.finfo(mine.dtype).eps * want.abs().max()
        allowed = (theirs - want).abs().max() * 1.1 + step * 8
        assert (mine - want).abs().max() <= allowed


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bags_of_embeddings(mode, dtype):
    """One bag is empty, one index counts nowhere. Float32 sums come without
    the list of bags, whose sizes torch's own graphs get wrong for bf16."""
    w = torch.randn(50, 70).to(dtype)
    if w.is_cuda and dtype == torch.bfloat16 and mode != "mean":
        pytest.skip("torch has no such kernel of a GPU")
    i, offsets = torch.randint(0, 50, (30,)), torch.tensor([0, 4, 4, 17])
    bag = torch.nn.functional.embedding_bag
    factors = [torch.randn(30).to(dtype)] if mode == "sum" else []
    ends = torch.tensor([0, 4, 4, 17, 30])
    strange = {"include_last_offset": True, "padding_idx": int(i[5])}
    for args, at, more in (
        ([w], offsets, {}),
        ([w, *factors], ends, strange),
    ):

        def fn(w, *f, at=at, more=more):
            return bag(i, w, at, None, 2, False, mode, False, *f, **more)

        def both(fn, *args):
            leaves = [x.clone().requires_grad_() for x in args]
            out = fn(*leaves)
            by = torch.linspace(0, 9, out.numel()).cos().view_as(out)
            total = (out.double() * by).sum()
            return [out.detach(), *torch.autograd.grad(total, leaves)]

        model = compiled(fn)
        exact = both(fn, *(x.double() for x in args))
        check(exact, both(model, *args), both(fn, *args))
        with torch.no_grad():
            check(exact[:1], [model(*args)], [fn(*args)])
    found = torchair.explain(fn, *args).graphs[0].hosts
    assert not without_lacking(h["op"] for h in found)


@pytest.mark.host("torch's assertion ends CUDA in that process")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bags_refuse_indices_and_offsets_out_of_range(dtype):
    """-1 among them, which as padding_idx means that there is none."""
    w = torch.randn(5, 8, dtype=dtype)
    model = compiled(lambda i, at: torch.nn.functional.embedding_bag(i, w, at))
    at = torch.tensor([0, 2])
    i = torch.tensor([0, 1, 4])
    torch.testing.assert_close(model(i, at)[1], w[4])
    for wrong in (
        (torch.tensor([0, 5, 1]), at),
        (torch.tensor([0, -1, 1]), at),
        (i, torch.tensor([0, 4])),
        (i, torch.tensor([1, 2])),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            model(*wrong)
    torch.testing.assert_close(model(i, at)[1], w[4])


GRIDS = [
    (2, mode, padding, (m + p) % 2 == 0)
    for m, mode in enumerate(("bilinear", "nearest", "bicubic"))
    for p, padding in enumerate(("zeros", "border", "reflection"))
] + [(3, "bilinear", "border", False), (3, "nearest", "zeros", True)]


@pytest.mark.parametrize("axes, mode, padding, align", GRIDS)
def test_grid_sample(axes, mode, padding, align):
    """Values and gradients as near float64 as eager's; corners and places
    that no image has, not a number among them."""
    sizes = (6, 9, 5)[:axes]
    a = torch.randn(2, 3, *sizes)
    grid = torch.rand(2, *(7, 50, 3)[:axes], axes) * 3 - 1.5
    grid[0, 0, :3] = torch.tensor([[-1.0], [1.0], [-1.0 - 1 / 6]])

    def fn(a, grid):
        return torch.nn.functional.grid_sample(
            a, grid, mode=mode, padding_mode=padding, align_corners=align
        )

    def both(fn, *args):
        leaves = [x.clone().requires_grad_() for x in args]
        out = fn(*leaves)
        by = torch.linspace(0, 9, out.numel(), dtype=out.dtype).cos()
        total = (out * by.view_as(out)).sum()
        return [out.detach(), *torch.autograd.grad(total, leaves)]

    model = compiled(fn)
    exact = both(fn, a.double(), grid.double())
    check(exact, both(model, a, grid), both(fn, a, grid))
    for mine, best in zip(
        both(model, a.double(), grid.double()), exact, strict=True
    ):
        torch.testing.assert_close(mine, best)
    with torch.no_grad():
        for strange in (float("nan"), float("inf"), -1e30):
            grid[1, 3, 4:6, 0] = strange
            torch.testing.assert_close(
                model(a, grid), fn(a, grid), equal_nan=True
            )
        turned = grid.transpose(-1, 1).contiguous().transpose(-1, 1)
        torch.testing.assert_close(
            model(a.transpose(-1, -2), turned),
            fn(a.transpose(-1, -2), turned),
            equal_nan=True,
        )
