"""Of the joint graph: equal nodes become one before it is cut."""

import subprocess
import sys

import pytest
import torch
from helpers import BEFORE_213, assert_same, compiled
from torch.fx.experimental.proxy_tensor import make_fx

from torchair import partition


def merged(fn, *args):
    """The names of the operators that are left."""
    gm = make_fx(fn, tracing_mode="fake")(*args)
    partition.merge_equal(gm.graph)
    gm.graph.lint()
    return [
        n.target._schema.name.removeprefix("aten::")
        for n in gm.graph.nodes
        if isinstance(n.target, torch._ops.OpOverload)
    ]


def written(x):
    y = x * 1.0
    view = y.view(2, 2)
    first = torch.exp(view)
    y.add_(1)
    return torch.exp(view) + first


MERGED = {
    "the same": (lambda x: (x.exp() + x.exp()) * 1, 1, "exp"),
    "of the same, again": (
        lambda x: x.exp().sin() + x.exp().sin() + 1,
        1,
        "sin",
    ),
    "the same lists": (
        lambda x: (x.reshape(2, 2) + x.reshape(2, 2)) * 1,
        1,
        "view",
    ),
    "several results": (
        lambda x: sum(torch.var_mean(x, 0)) + sum(torch.var_mean(x, 0)),
        1,
        "var_mean",
    ),
    "keywords": (
        lambda x: x.var(0, correction=0) + x.var(0, correction=1) + 1,
        2,
        "var",
    ),
    "1 and 1.0": (
        lambda x: x.int().mul(1) + x.int().mul(1.0) + 0,
        2,
        "mul",
    ),
    "1 and True": (lambda x: (x > 0).mul(1) + (x > 0).mul(True) + 0, 2, "mul"),
    "two zeros": (lambda x: (x * 0.0 + x * -0.0) + 1, 2, "mul"),
    "random": (lambda x: torch.rand_like(x) + torch.rand_like(x), 2, "rand"),
    "written between": (written, 2, "exp"),
    "two results": (lambda x: (x.exp(), x.exp()), 2, "exp"),
    "a view of a result": (lambda x: (x.exp(), x.exp()[1:]), 2, "exp"),
}


@pytest.mark.parametrize("name", MERGED)
def test_merged(name):
    fn, count, op = MERGED[name]
    left = merged(fn, torch.rand(4))
    assert sum(n.startswith(op) for n in left) == count, left


def test_equal_results_are_apart():
    """Who calls may write one of them."""

    def fn(x):
        return x.exp(), x.exp()

    x = torch.rand(4, requires_grad=True)
    one, other = compiled(fn)(x)
    with torch.no_grad():
        one.zero_()
    assert_same(other, x.exp())


PROGRAM = """
import sys, torch, torchair
net = torch.nn.Linear(3, 3)
torch.compile(net, backend="torchair")(torch.ones(2, 3)).sum().backward()
assert net.weight.grad is not None
sys.exit("torch._inductor.lowering" in sys.modules)
"""


@pytest.mark.skipif(BEFORE_213, reason="other parts import Inductor there")
def test_inductor_is_not_imported():
    """Its lowerings take half a second of a process's first training."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)
