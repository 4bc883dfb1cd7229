"""Images whose channels are last stay so: kernels of planes read and leave
them as they lie, and round as they do for planes."""

import pytest
import torch
import torch.nn.functional as F
from helpers import BEFORE_213, DEVICE, compiled, recorded, seeded

LAST = torch.channels_last
CASES = {
    "means": lambda x: F.avg_pool2d(x, 2),
    "means at edges": lambda x: F.avg_pool2d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "means, divided": lambda x: F.avg_pool2d(x, 3, 1, 1, divisor_override=5),
    "shares": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "largest, dilated": lambda x: F.max_pool2d(x, (3, 2), 1, 1, dilation=2),
    "largest of shares": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "nearest": lambda x: F.interpolate(x, scale_factor=(2.0, 1.0)),
    "linear": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "linear, smaller": lambda x: F.interpolate(
        x, size=(3, 5), mode="bilinear", align_corners=True
    ),
    "cubic": lambda x: F.interpolate(x, size=(7, 3), mode="bicubic"),
    "as large": lambda x: F.interpolate(x, size=x.shape[2:], mode="bilinear"),
    "mirrored": lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect"),
    "edges": lambda x: F.pad(x, (2, -1, 0, 3), mode="replicate"),
}
# Vectors of channels and what is left of them; channels in parts.
SIZES = [(2, 3, 9, 10), (1, 37, 6, 7), (2, 21, 120, 70)]


def error(got, exact):
    return (got.double() - exact).square().mean().sqrt().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, size, dtype):
    fn = CASES[name]
    x = torch.randn(size, generator=seeded(0)).to(dtype)
    x = x.contiguous(memory_format=LAST)
    run = compiled(fn)
    with recorded() as records:
        got = run(x)
    want, exact = fn(x), fn(x.double())
    planes = BEFORE_213 and name in ("mirrored", "edges")
    # or planes, says torch's Meta
    if not planes and (DEVICE.type == "cpu" or size[1] > 3):
        assert got.stride() == want.stride()
    assert got.dtype == dtype
    ulp = torch.finfo(dtype).eps * exact.abs().mean().item()
    assert error(got, exact) <= 1.1 * error(want, exact) + 2 * ulp
    if DEVICE.type == "cpu" and not planes:
        assert records[0].program().stats()["copies"] == 0


def test_what_follows_is_right():
    def fn(x):
        y = F.avg_pool2d(x, 3, 1, 1) * x.sigmoid()
        y = F.interpolate(y, scale_factor=2.0, mode="bilinear")
        return y.flatten(1).cumsum(1), F.max_pool2d(y, 2), y + y.mT.mT

    x = torch.randn(2, 5, 6, 6, generator=seeded(1))
    x = x.contiguous(memory_format=LAST)
    for got, want in zip(compiled(fn)(x), fn(x), strict=True):
        torch.testing.assert_close(got, want)


def test_gradients_of_images():
    def fn(x):
        y = F.interpolate(x, size=(7, 11), mode="bilinear")
        return F.avg_pool2d(y, 2), F.pad(y, (1, 1, 1, 1), mode="reflect")

    x = torch.randn(2, 5, 6, 6, generator=seeded(2))
    grads = []
    for f in (compiled(fn), fn):
        given = x.contiguous(memory_format=LAST).requires_grad_()
        outs = f(given)
        weights = [torch.ones_like(y).cumsum(-1) for y in outs]
        grads += torch.autograd.grad(outs, given, weights)
    torch.testing.assert_close(*grads)
