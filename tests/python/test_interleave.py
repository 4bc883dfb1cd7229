"""What reads elements of two values in turns, as rotary embeddings do."""

import pytest
import torch
from helpers import assert_same, check, compiled, seeded


def numbers(*sizes, dtype=torch.float32):
    x = torch.randn(sizes, generator=seeded(len(sizes)))
    return x.to(dtype)


def turned(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def rotated(x, cos, sin):
    """As GPT-J has it."""
    return x * cos + turned(x) * sin


def part(x, cos, sin):
    """Of the first elements of each head, as CodeGen has it."""
    size = cos.shape[-1]
    return torch.cat((rotated(x[..., :size], cos, sin), x[..., size:]), -1)


def angles(n, size, dtype):
    at = torch.arange(n)[:, None] / 10 ** torch.linspace(0, 4, size // 2)
    at = at.repeat_interleave(2, -1)[None, :, None]
    return at.cos().to(dtype), at.sin().to(dtype)


def gradient(fn, x, *others):
    x = x.detach().requires_grad_()
    fn(x, *others).square().sum().backward()
    return x.grad


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("size", [2, 6, 8, 18, 32, 64])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64]
)
def test_rotary_embedding(dtype, size, mode):
    x = numbers(2, 7, 3, 64, dtype=dtype)
    cos, sin = angles(7, size, dtype)
    for fn, y in (part, x), (rotated, x[..., :size]):
        got = check(fn, y, cos, sin, mode=mode)
        if mode == "reduce-overhead":
            assert torch.equal(got, fn(y, cos, sin))
        got = gradient(compiled(fn, mode), y, cos, sin)
        assert_same(got, gradient(fn, y, cos, sin))


def test_scaled_before_and_behind():
    """What is turned is computed, and what comes of it computed with."""

    def fn(x, y, cos, sin):
        q = rotated((x + y) * 0.125, cos, sin)
        return torch.relu(q).to(torch.bfloat16), q.sum(-1)

    cos, sin = angles(5, 32, torch.float32)
    x = numbers(2, 5, 3, 32)
    check(fn, x, numbers(32), cos, sin)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_part_that_is_only_moved(dtype):
    def fn(x, z):
        swapped = torch.stack((x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return turned(x), swapped, z.conj_physical(), z.conj() * 2

    z = torch.view_as_complex(numbers(5, 3, 7, 2))
    check(fn, numbers(3, 5, 34, dtype=dtype), z)


def test_long_chain_of_pairs():
    def fn(x, y):
        v = torch.stack((x, y), -1)
        for _ in range(12):
            v = torch.tanh(v * 1.5 + 0.25)
        return v, v.flatten(-2) + 1

    check(fn, numbers(4, 40), numbers(4, 40) + 1)


def test_promotion_of_what_is_read_beside_pairs():
    """A vector counts in it, a number does not."""

    def fn(x, y, vector, number):
        v = torch.stack((x, y), -1)
        return v * vector, v + number

    for dtype in (torch.float32, torch.bfloat16):
        x, y = numbers(9, dtype=dtype), numbers(9, dtype=dtype) * 2
        check(fn, x, y, numbers(2), numbers(1)[0].double())


def test_what_is_written_behind_pairs():
    def fn(x, y):
        v = torch.stack((x, y), -1).flatten(-2)
        x.add_(1)
        return v * 2, x

    check(fn, numbers(4, 8), numbers(4, 8))


def test_every_other_element_of_what_is_computed():
    def fn(x, y):
        z = (x * y).exp()
        w = x.sin()
        return z[..., ::2] - z[..., 1::2], w[..., ::2], w[..., :3]

    check(fn, numbers(6, 20), numbers(20))
    check(fn, numbers(6, 20, dtype=torch.bfloat16), numbers(6, 1))
