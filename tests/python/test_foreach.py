"""Lists of tensors, and compiled steps of optimizers that work on them."""

import pytest
import torch
from helpers import assert_same, compiled, hosts, recorded

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "adamw, amsgrad": lambda p: torch.optim.AdamW(
        p, foreach=True, amsgrad=True
    ),
    "rmsprop": lambda p: torch.optim.RMSprop(p, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, foreach=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_optimizers(name):
    torch.manual_seed(0)
    mine = [torch.randn(s, requires_grad=True) for s in ((5, 3), (7,), (2, 2))]
    theirs = [x.detach().clone().requires_grad_() for x in mine]
    make = OPTIMIZERS[name]
    optimizer, eager = make(mine), make(theirs)
    step = compiled(optimizer.step)
    with recorded() as records:
        for _ in range(4):
            for a, b in zip(mine, theirs, strict=True):
                a.grad = torch.randn(a.shape)
                b.grad = a.grad.clone()
            step()
            eager.step()
    assert records and not hosts(records)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_overloads():
    def fn(x, y):
        xs, ys = [x, x * 2], [y, y + 1]
        return [
            *torch._foreach_add(xs, ys, alpha=3),
            *torch._foreach_mul(xs, [2.0, 3.0]),
            *torch._foreach_div(xs, 4.0),
            *torch._foreach_sub(xs, ys),
            *torch._foreach_pow(ys, 2.0),
            *torch._foreach_pow(2.0, xs),
            *torch._foreach_lerp(xs, ys, 0.25),
            *torch._foreach_addcmul(xs, ys, ys, 0.5),
            *torch._foreach_addcdiv(xs, ys, [y * y + 1] * 2, [0.5, 2.0]),
            *torch._foreach_mul(xs, torch.tensor(3.0)),
            *torch._foreach_sqrt(torch._foreach_abs(xs)),
        ]

    x, y = torch.randn(4, 5), torch.randn(4, 5)
    with recorded() as records:
        got = compiled(fn)(x, y)
    assert not hosts(records)
    assert_same(got, fn(x, y))


def test_arguments_of_lists_alone_stay_with_torch():
    def fn(x):
        return torch._foreach_norm([x, x * 2], 2, torch.float64)

    x = torch.randn(4)
    with recorded() as records:
        assert_same(compiled(fn)(x), fn(x))
    assert hosts(records) == ["_foreach_norm.Scalar"]
