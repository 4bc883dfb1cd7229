"""Convolutions and their gradients: against eager and float64."""

import pytest
import torch
from helpers import DEVICE, compiled, hosts, recorded, seeded
from torch.nn import functional as F

# sizes of input and weight, options, transposed
CASES = {
    "window": ((2, 8, 12, 10), (12, 8, 3, 3), {"padding": 1}),
    "valid": ((2, 3, 9, 9), (8, 3, 5, 5), {}),
    "pointwise": ((2, 16, 6, 6), (24, 16, 1, 1), {}),
    "stride": ((2, 10, 13, 15), (6, 10, 3, 3), {"stride": 2, "padding": 1}),
    "pointwise stride": ((2, 10, 8, 8), (6, 10, 1, 1), {"stride": 2}),
    "dilation": ((1, 9, 14, 11), (5, 9, 3, 2), {"dilation": (2, 3)}),
    "much padding": ((1, 4, 5, 5), (6, 4, 2, 2), {"padding": 3}),
    "groups": ((2, 12, 7, 7), (6, 4, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise": ((2, 8, 9, 9), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    "one axis": ((3, 6, 40), (10, 6, 4), {"stride": 3, "padding": 2}),
    "three axes": ((1, 4, 5, 6, 7), (6, 4, 2, 3, 2), {"padding": (1, 0, 1)}),
    "many places": ((8, 16, 40, 40), (8, 16, 3, 3), {"padding": 1}),
    "transposed": ((2, 6, 7, 7), (6, 8, 3, 3), {"padding": 1}),
    "transposed stride": (
        (2, 6, 5, 6),
        (6, 8, 4, 4),
        {"stride": 2, "padding": 1},
    ),
    "transposed all": (
        (2, 6, 5, 6),
        (6, 4, 3, 2),
        {
            "stride": (3, 2),
            "padding": (1, 0),
            "output_padding": (1, 0),
            "dilation": (1, 2),
            "groups": 2,
        },
    ),
    "transposed one axis": ((2, 6, 9), (6, 8, 4), {"stride": 2}),
    "transposed three axes": ((1, 2, 3, 4, 3), (2, 3, 2, 2, 2), {"stride": 2}),
}


def function(case):
    x, _, _ = CASES[case]
    kind = "conv_transpose" if case.startswith("transposed") else "conv"
    return getattr(F, f"{kind}{len(x) - 2}d")


def make(case, dtype):
    x, w, options = CASES[case]
    groups = options.get("groups", 1)
    outs = w[1] * groups if case.startswith("transposed") else w[0]
    torch.manual_seed(len(case))
    return [torch.randn(s, dtype=dtype) for s in (x, w, (outs,))]


def results(run, tensors, options):
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = run(*leaves, **options)
    torch.manual_seed(1)
    grad = torch.randn(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad(out, leaves, grad)]


def error(got, exact):
    return (got.double() - exact).square().mean().sqrt().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_results_are_as_good_as_eager(case, dtype):
    fn, options = function(case), CASES[case][2]
    tensors = make(case, dtype)
    want = results(fn, tensors, options)
    with recorded() as records:
        got = results(compiled(fn), tensors, options)
    assert not hosts(records)
    exact = results(fn, [t.double() for t in tensors], options)
    for g, w, e in zip(got, want, exact, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        ulp = torch.finfo(dtype).eps * e.std(correction=0).item()
        # A GPU's channels-last kernels sum in another order than eager's.
        ulps = 1 if DEVICE.type == "cpu" else 2
        assert error(g, e) <= 1.1 * error(w, e) + ulps * ulp


def test_float64_takes_the_plain_kernels():
    fn, options = F.conv_transpose2d, CASES["transposed all"][2]
    tensors = make("transposed all", torch.float64)
    want = results(fn, tensors, options)
    got = results(compiled(fn), tensors, options)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w)


@pytest.mark.parametrize("case", ["stride", "transposed stride", "window"])
def test_sizes_that_change(case):
    fn, options = function(case), CASES[case][2]
    run = compiled(fn, dynamic=True)
    _, w, b = make(case, torch.float32)
    for n, size in ((2, 9), (3, 12), (4, 17)):
        x = torch.randn(n, CASES[case][0][1], size, size + 2)
        want, got = (results(f, [x, w, b], options) for f in (fn, run))
        for g, e in zip(got, want, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


def sums_of_sums(products: torch.Tensor, longest: int) -> torch.Tensor:
    """Sums over the last dimension of float64 [n, k], rounded to float32 after
    every step, of `longest` steps at most, and then of these."""
    total = torch.zeros(products.shape[0])
    for part in products.split(longest, dim=1):
        one = torch.zeros_like(total)
        for column in part.unbind(1):
            one = (one + column).float()
        total = total + one
    return total


@pytest.mark.host("convolutions of a GPU are torch's")
def test_windows_of_few_taps_are_summed_in_short_pieces() -> None:
    """As torch's are: in pieces of GEMM_KB a speech model was 1.34 x as far
    from float64 as in eager."""
    generator = seeded(0)
    x = torch.randn(1, 512, 65, generator=generator).relu()
    w = torch.randn(64, 512, 3, generator=generator)
    result = torch.compile(F.conv1d, backend="torchair")(x, w, stride=2)
    windows = x[0].unfold(1, 3, 2).double().transpose(0, 1)  # [32, 512, 3]
    products = windows[:, None] * w.double()  # [32, 64, 512, 3]
    products = products.reshape(-1, 512 * 3)
    exact = products.sum(1)
    bound = (sums_of_sums(products, 96) - exact).square().mean().sqrt()
    ours = (result[0].t().reshape(-1) - exact).square().mean().sqrt()
    assert ours <= bound, f"{ours / bound:.2f} of the error of sums of 96"
