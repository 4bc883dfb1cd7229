"""as_strided counts in memory as eager lays it out."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, compiled, recorded

from torchair import cuda


def write(x):
    y = x[0].t() * 2
    y.as_strided((3, 4), (4, 1)).add_(1)
    return y


LAST = torch.channels_last
WEIGHT = torch.linspace(-1, 1, 70 * 70, device=DEVICE).view(70, 70)


def chunks(x):
    """Windows that overlap by half, as Longformer cuts a turned sequence."""
    y = F.linear(x.relu().transpose(0, 1), WEIGHT, WEIGHT[0])
    y = y.view(8, 2, 5, 14).transpose(0, 1).transpose(1, 2).view(10, 8, 14)
    size, (a, b, c) = (10, 3, 4, 14), y.stride()
    return y.as_strided(size, (a, b * 2, b, c)) + 1


CASES = {
    "of a turned value": lambda x: (x[0].t().exp() + 1).as_strided(
        (3, 4), (4, 1)
    ),
    "of a view of it": lambda x: (
        x[0].t().exp()[1:, None].as_strided((3, 4), (4, 1))
    ),
    "of a part": lambda x: x[0].t().exp().split(2)[1].as_strided((9,), (3,), 5),
    "of a clone": lambda x: x[0].t().clone().as_strided((4, 3), (3, 1)),
    "of an image": lambda x: (
        x.view(2, 2, 4, 70).to(memory_format=LAST).exp().as_strided((9,), (1,))
    ),
    "of a contiguous value": lambda x: x.exp().as_strided((3, 4), (1, 3), 1),
    "of a view of a contiguous value": lambda x: (
        x[0].exp()[1:].as_strided((3, 4), (4, 1))
    ),
    "of a product of a turned sequence": chunks,
    "of a value that is written through it": write,
    "of an input": lambda x: x.transpose(1, 2).as_strided((3, 4), (4, 1)) + 1,
}


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CASES)
def test_as_strided(name, dynamic, mode):
    x = torch.linspace(-2, 1, 2 * 8 * 70).view(2, 8, 70)
    with torch.no_grad():
        got = compiled(CASES[name], mode, dynamic=dynamic)(x)
    torch.testing.assert_close(got, CASES[name](x))
    x.requires_grad_()
    got, want = (
        torch.autograd.grad(f(x).square().sum(), x)[0]
        for f in (compiled(CASES[name], mode), CASES[name])
    )
    torch.testing.assert_close(got, want)


def test_where_torch_writes_through_it(monkeypatch):
    """It counts in memory, too: as a device without a kernel for it has it."""
    without = frozenset({"as_strided_scatter"})
    monkeypatch.setattr(cuda, "until_made", lambda make: make(without))
    x = torch.linspace(-2, 1, 2 * 8 * 70).view(2, 8, 70)
    with torch.no_grad(), recorded() as records:
        got = compiled(write)(x)
    (host,) = records[0].hosts
    assert host.op == "as_strided_scatter"
    torch.testing.assert_close(got, write(x))


PLACES = torch.linspace(-1.2, 1.2, 2 * 5 * 6 * 2, device=DEVICE)
READERS = {
    "running sum": lambda x: x.cumsum(-1),
    "running product of columns": lambda x: x.cumprod(1),
    "largest": lambda x: x.max(-1),
    "places of the least": lambda x: x.argmin(1),
    "sort": lambda x: x.sort(-1),
    "pool": lambda x: F.avg_pool2d(x, 2),
    "image": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "padding": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "sampling": lambda x: F.grid_sample(
        x, PLACES.view(2, 5, 6, 2), align_corners=False
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_operands_of_any_strides(name):
    """Kernels that want dense memory get it; parts, turned ones, rows."""
    whole = torch.linspace(-3, 3, 4 * 6 * 8 * 10, device=DEVICE).sin()
    whole = whole.view(4, 6, 8, 10)
    for x in (
        whole[:2, :, :, 1:7],
        whole.transpose(2, 3)[:2],
        whole[::2, ::2],
        whole.permute(0, 3, 1, 2)[:2],
    ):
        got, want = compiled(READERS[name])(x), READERS[name](x)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_gradient_that_is_part_of_another():
    def fn(x, grid):
        a = F.grid_sample(x, grid, align_corners=False)
        return torch.cat([a, a * 2], -1).square().sum()

    x = torch.linspace(-3, 3, 2 * 3 * 8 * 9, device=DEVICE).sin()
    x = x.view(2, 3, 8, 9).requires_grad_()
    grid = PLACES.view(2, 5, 6, 2).clone().requires_grad_()
    got = torch.autograd.grad(compiled(fn)(x, grid), (x, grid))
    want = torch.autograd.grad(fn(x, grid), (x, grid))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
