"""Every other number of a row, as rotations of neighbours (GPT-J, Flux) and
gated units take them: two of bfloat16 are read and written as one word."""

import pytest
import torch
from helpers import check, seeded

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def turned(a, b):
    return torch.stack((a, b), dim=-1).flatten(-2)


def rotated(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return turned(a * cos - b * sin, a * sin + b * cos)


def in_place(x, cos, sin):
    a, b = x[..., ::2].clone(), x[..., 1::2].clone()
    x[..., ::2] = a * cos - b
    x[..., 1::2] = b * sin + a
    return x.abs()


CASES = {
    "rotation": rotated,
    "in place": in_place,
    "first ones": lambda x, cos, sin: x[..., ::2] * cos,
    "second ones": lambda x, cos, sin: x[..., 1::2] * cos,
    "gate": lambda x, cos, sin: x[..., ::2] * (x[..., 1::2] * sin),
    "both again": lambda x, cos, sin: turned(x[..., 1::2], x[..., ::2]),
    "three neighbours": lambda x, cos, sin: (
        x[..., :-2:2] + x[..., 1:-1:2] * x[..., 2::2]
    ),
    "no numbers": lambda x, cos, sin: turned(
        x[..., 1::2] * float("nan"), x[..., ::2] * float("inf")
    ),
    "halves of another order": lambda x, cos, sin: turned(
        x.flip(-1)[..., ::2] * cos, x[..., 1::2] + sin
    ),
}


# Rounded where eager rounds: the same numbers, NaN and all.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_every_other_number(name, dtype):
    for sizes in [(2,), (62,), (3, 5, 34), (2, 1000)]:
        x, *angles = (
            torch.randn(size, generator=seeded(i)).to(dtype)
            for i, size in enumerate((sizes, sizes[-1] // 2, sizes[-1] // 2))
        )
        check(CASES[name], x, *angles, mode="reduce-overhead")


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_and_its_gradient(dtype):
    x = torch.randn(4, 9, 3, 64, generator=seeded(0)).to(dtype)
    angle = torch.randn(9, 1, 32, generator=seeded(1)).to(dtype)

    def step(x, angle):
        y = rotated(x, angle.cos(), angle.sin())
        (grad,) = torch.autograd.grad(y.float().square().sum(), x)
        return grad

    torch._dynamo.reset()
    x.requires_grad_()
    made = torch.compile(rotated, backend="torchair")
    y, want = made(x, angle.cos(), angle.sin()), step(x, angle)
    (got,) = torch.autograd.grad(y.float().square().sum(), x)
    exact = step(x.double(), angle.double())
    most = exact.abs().max()
    assert (got - exact).abs().max() <= (
        1.1 * (want - exact).abs().max() + 1e-6 * most
    )
