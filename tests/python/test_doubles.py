"""float64 on a CPU, where torch's kernels of some operators are the faster."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, compiled, seeded

import torchair
from torchair import backend, doubles

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
        assert name in host.op and host.reason == doubles.REASON


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
