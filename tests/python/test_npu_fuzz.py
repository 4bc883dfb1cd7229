"""Random programs of views and in-place operators, captured and eager."""

import random

import pytest
import torch
from test_npu_record import compare


def pick(rng, known):
    return rng.choice(known)


def like(rng, known, t):
    """A tensor that broadcasts to t: one of its shape, a row, or a number."""
    same = [k for k in known if k.shape == t.shape]
    rows = [k for k in known if t.dim() and k.shape == t.shape[-1:]]
    return rng.choice([*same, *rows, 0.5]) if same or rows else 0.5


def clone(x):
    return x.clone() if isinstance(x, torch.Tensor) else x


def a_view(rng, known):
    t = pick(rng, known)
    kind = rng.randrange(6)
    if kind == 0 and t.dim():
        return t.select(0, rng.randrange(t.shape[0]))
    if kind == 1 and t.dim() and t.shape[-1] > 1:
        start = rng.randrange(t.shape[-1] - 1)
        return t.narrow(-1, start, rng.randrange(1, t.shape[-1] - start))
    if kind == 2 and t.dim() >= 2:
        return t.transpose(0, 1)
    if kind == 3 and t.is_contiguous():
        return t.view(-1)
    if kind == 4 and t.dim():
        return t[:: rng.randrange(1, 3)]
    return t.unsqueeze(0)


def a_result(rng, known):
    t = pick(rng, known)
    return rng.choice(
        [
            lambda: t * 0.5,
            lambda: torch.add(t, like(rng, known, t), alpha=0.5),
            lambda: t.tanh(),
            lambda: t.clone(),
            lambda: t.sum(-1) if t.dim() else t.cos(),
            lambda: torch.cat([t.reshape(-1), t.reshape(-1)[:1]]),
            lambda: torch.zeros_like(t),
            lambda: t.contiguous(),
        ]
    )()


def a_write(rng, known):
    t = pick(rng, known)
    other = clone(like(rng, known, t))
    rng.choice(
        [
            lambda: t.mul_(0.5),
            lambda: t.add_(other),
            lambda: t.copy_(torch.as_tensor(other)),
            lambda: t.fill_(0.25),
            lambda: torch.sub(t.clone(), other, out=t),
            lambda: t.clamp_(-1, 1),
            lambda: t.masked_fill_(t > 0.5, 0.5),
            lambda: torch._foreach_mul_([t], 0.75),
        ]
    )()


def program(seed, steps=14):
    """A function of three tensors that gives some of what it has made."""

    def run(x, y, cache):
        rng = random.Random(seed)
        known = [x, y, cache, cache[1]]
        for _ in range(steps):
            step = rng.choice([a_view, a_view, a_result, a_write, a_write])
            made = step(rng, known)
            if made is not None:
                known.append(made)
        return [k for k in known[4:] if rng.random() < 0.5]

    return run


@pytest.mark.parametrize("seed", [*range(30), 260])
def test_random_programs(seed):
    torch.manual_seed(seed)
    compare(
        program(seed),
        torch.randn(4, 6),
        torch.randn(4, 6),
        torch.randn(3, 4, 6),
        replays=2,
    )
