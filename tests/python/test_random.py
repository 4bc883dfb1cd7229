"""Random operators draw what eager draws from the same seed."""

import pytest
import torch
from helpers import assert_same, compiled, hosts, recorded
from torch import nn
from torch.nn import functional as F

CASES = {
    "rand": lambda x: torch.rand(3, 50),
    "randn": lambda x: torch.randn(40, dtype=torch.float64),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "randn_like": lambda x: torch.randn_like(x * 2),
    "randint": lambda x: torch.randint(-5, 90, (7, 9)),
    "randperm": lambda x: torch.randperm(33),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "uniform": lambda x: (x + 1).uniform_(-2, 5),
    "normal": lambda x: (x + 1).normal_(1, 3),
    "exponential": lambda x: (x + 1).exponential_(),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 3, True),
    "dropout": lambda x: F.dropout(x.exp(), 0.3).relu() + 1,
    "none dropped": lambda x: F.dropout(x, 0.0),
    "order": lambda x: (torch.rand(3), F.dropout(x), torch.randn(17)),
}


@pytest.mark.parametrize("shape", [(16, 33), (5, 3)])
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, shape):
    fn, x = CASES[name], torch.randn(shape)
    torch.manual_seed(7)
    want, after = fn(x), torch.get_rng_state()
    run = compiled(fn)
    torch.manual_seed(7)
    got = run(x)
    assert_same(got, want)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("draw", [F.dropout, torch.rand_like])
def test_draws_in_the_order_of_eagers_memory(draw):
    """The engine's own result of exp lies in another order than eager's."""

    def fn(x):
        return draw(x.permute(2, 0, 1).exp())

    x = torch.randn(6, 5, 7)
    torch.manual_seed(3)
    want = fn(x)
    run = compiled(fn)
    torch.manual_seed(3)
    torch.testing.assert_close(run(x), want)


def test_only_the_draw_of_dropout_is_a_host_node():
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU())
    x = torch.randn(4, 8)

    def grads(run):
        torch.manual_seed(5)
        y = run(x)
        return [y, *torch.autograd.grad(y.sum(), list(net.parameters()))]

    want = grads(net)
    with recorded() as records:
        got = grads(compiled(net))
    assert_same(got, want)
    assert hosts(records) == ["bernoulli"]
    (why,) = {h.reason for r in records for h in r.hosts}
    assert why == "drawn by torch, from its generator"


def test_dropout_of_everything():
    """torch draws for it when it traces and not when it does not."""
    x = torch.randn(5, 3)
    assert_same(compiled(lambda x: F.dropout(x, 1.0))(x), x * 0)


def test_dropout_with_sizes_that_change():
    run = compiled(lambda x: F.dropout(x, 0.4), dynamic=True)
    for n in (3, 8, 20):
        x = torch.randn(n, 6)
        torch.manual_seed(n)
        want = F.dropout(x, 0.4)
        torch.manual_seed(n)
        assert_same(run(x), want)
