"""Operators that are written in others."""

import pytest
import torch
import torch.nn.functional as F
from helpers import DEVICE, check, compiled, recorded, seeded
from helpers import hosts as hosts_of

import torchair
from torchair import ge


def numbers(*sizes):
    return torch.randn(*sizes, generator=seeded(sum(sizes)))


CASES = {
    "affine_grid": (
        lambda t: F.affine_grid(t, (2, 3, 5, 7), align_corners=False),
        (numbers(2, 2, 3),),
    ),
    "affine_grid of volumes": (
        lambda t: F.affine_grid(t, (2, 3, 4, 5, 3), align_corners=True),
        (numbers(2, 3, 4),),
    ),
    "bilinear": (F.bilinear, (numbers(4, 3), numbers(4, 5), numbers(6, 3, 5))),
    "bilinear with a bias": (
        F.bilinear,
        (numbers(2, 3, 4), numbers(2, 3, 5), numbers(6, 4, 5), numbers(6)),
    ),
    "block_diag": (
        lambda x, y: torch.block_diag(x, y, x[0]) + 1,
        (numbers(4, 5), numbers(2, 3)),
    ),
    "ldexp": (
        lambda x: torch.ldexp(x, torch.arange(-2, 3).to(x.device)) + 1,
        (numbers(4, 5),),
    ),
    "renorm": (
        lambda x: torch.renorm(x, 2, 0, 1.5) + torch.renorm(x, 1, 1, 2.0),
        (numbers(4, 5),),
    ),
    "soft_margin_loss": (
        lambda x: F.soft_margin_loss(x, x.detach().sign()),
        (numbers(4, 5),),
    ),
}
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
cases = pytest.mark.parametrize("name", CASES)


@modes
@cases
def test_results(name, mode):
    fn, args = CASES[name]
    with recorded() as records:
        got = check(fn, *args, mode=mode)
    assert got.stride() == fn(*args).stride()
    assert not hosts_of(records)


@cases
def test_gradients(name):
    fn, args = CASES[name]
    mine = [x.clone().requires_grad_() for x in args]
    with recorded() as records:
        got = torch.autograd.grad(compiled(fn)(*mine).square().sum(), mine)
    want = torch.autograd.grad(fn(*mine).square().sum(), mine)
    # a GPU adds up in another order
    near = {} if DEVICE.type == "cpu" else {"rtol": 1e-5, "atol": 1e-4}
    torch.testing.assert_close(got, want, **near)
    assert not hosts_of(records)


def test_bilinear_of_any_batch():
    call = torch.compile(F.bilinear, backend="torchair", dynamic=True)
    weight = numbers(6, 3, 5)
    for batch in (2, 5, 9):
        a, b = numbers(batch, 3), numbers(batch, 5)
        torch.testing.assert_close(call(a, b, weight), F.bilinear(a, b, weight))


def test_a_converter_sees_its_operator():
    """Of the user's: it is not written in others before."""

    def convert(x, other, meta_outputs=None):
        seen.append(meta_outputs)
        return ge.custom_op("Mul", x, ge.Cast(other, dst_type=0))

    op, seen = torch.ops.aten.ldexp.Tensor, []
    torchair.register_fx_node_ge_converter(op)(convert)
    try:
        got = compiled(torch.ldexp)(torch.ones(3), torch.arange(3))
    finally:
        del op._ge_converter
    assert len(seen) == 1
    assert got.tolist() == [0, 1, 2]


@pytest.mark.host("a GPU's generator is another one")
def test_gradients_of_rrelu():
    def gradient(fn):
        torch.manual_seed(0)
        return torch.autograd.grad(fn(x, training=True).sum(), x)

    x = numbers(4, 5).requires_grad_()
    torch.testing.assert_close(gradient(compiled(F.rrelu)), gradient(F.rrelu))
