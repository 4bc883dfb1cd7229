"""Dtypes on a CPU of which torch's kernels of some operators are the faster."""

import pytest
import torch
import torch.nn.functional as F
from helpers import BEFORE_213, assert_same, compiled, seeded

import torchair
from torchair import backend, slow

pytestmark = pytest.mark.host("a GPU has kernels of its own")
MODES = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def tensor(*shape):
    made = torch.randn(shape, generator=seeded(3), dtype=torch.float64)
    return made.requires_grad_()


def convolve(x, w):
    return torch.relu(F.conv2d(x * 2, w, padding=1))


def attend(x, _):
    return F.scaled_dot_product_attention(x, x, x) + 1


CASES = {
    "convolution": (convolve, (2, 3, 6, 6), (4, 3, 3, 3)),
    "flash_attention": (attend, (1, 2, 5, 8), (1,)),
}


@MODES
@pytest.mark.parametrize("name", CASES)
def test_torch_runs_it_and_its_gradients(mode, name):
    if name == "flash_attention" and BEFORE_213:
        pytest.skip("its Meta function says float32 of a sum that is float64")
    fn, *shapes = CASES[name]
    args = [tensor(*shape) for shape in shapes]
    run = compiled(fn, mode)
    found, wanted = run(*args), fn(*args)
    assert_same(found, wanted)
    for a, b in zip(
        torch.autograd.grad(found.square().sum(), args, allow_unused=True),
        torch.autograd.grad(wanted.square().sum(), args, allow_unused=True),
        strict=True,
    ):
        assert a is None or b is None or torch.allclose(a, b)
    for record in backend.records[-2:]:
        (host,) = record.hosts
        assert name in host.op and host.reason == slow.REASON


def whole(*shape, dtype):
    made = torch.randint(0, 9, shape, generator=seeded(4))
    return made.to(dtype)


PRODUCTS = {
    "mm": (torch.mm, (20, 30), (30, 40)),
    "bmm": (torch.bmm, (3, 16, 16), (3, 16, 16)),
    "mv": (torch.mv, (80, 80), (80,)),
    "addmm": (lambda x, y: torch.addmm(y, x, y), (30, 30), (30, 30)),
    "convolution": (F.conv2d, (1, 2, 5, 5), (2, 2, 3, 3)),
}


@MODES
@pytest.mark.parametrize("dtype", [torch.int64, torch.int16])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_integers(name, dtype, mode):
    fn, *shapes = PRODUCTS[name]
    args = [whole(*shape, dtype=dtype) for shape in shapes]
    assert_same(compiled(fn, mode)(*args), fn(*args))
    (host,) = backend.records[-1].hosts
    assert name in host.op and host.reason == slow.REASON


def test_a_few_products_are_the_engines():
    args = [whole(*s, dtype=torch.int64) for s in ((50, 3, 3), (50, 3, 3))]
    assert_same(compiled(torch.bmm)(*args), torch.bmm(*args))
    assert not backend.records[-1].hosts


def test_sizes_that_vary_may_become_large():
    run = compiled(torch.mm, dynamic=True)
    for rows in (3, 50):
        args = [whole(*s, dtype=torch.int64) for s in ((rows, 7), (7, rows))]
        assert_same(run(*args), torch.mm(*args))
    assert len(backend.records[-1].hosts) == 1


def test_of_other_dtypes_the_engine_runs_it():
    x, w = (tensor(*s).float() for s in CASES["convolution"][1:])
    with torch.no_grad():
        compiled(convolve)(x, w)
    assert not backend.records[-1].hosts


def test_a_program_in_a_file_has_it(tmp_path):
    """Where it runs may be no torch."""

    class Layer(torch.nn.Module):
        def forward(self, x, w):
            return convolve(x, w)

    x, w = (tensor(*s).detach() for s in CASES["convolution"][1:])
    torchair.dynamo_export(x, w, model=Layer(), export_path=str(tmp_path))
    assert "convolution" in (tmp_path / "export.air").read_text("latin-1")
