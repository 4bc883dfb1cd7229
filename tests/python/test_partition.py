"""Of the joint graph: equal nodes become one before it is cut."""

import subprocess
import sys
from unittest import mock

import pytest
import torch
from helpers import BEFORE_213, assert_same, compiled, seeded
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_logits_are_kept_not_what_a_loss_makes_of_them(monkeypatch, dtype):
    """Of a large vocabulary float32 takes twice the bytes of bfloat16."""
    kept, real = [], partition.cut

    def cut(joint, inputs, **keywords):
        forward, backward = real(joint, inputs, **keywords)
        (output,) = forward.graph.find_nodes(op="output")
        kept.extend(n.meta["val"] for n in output.args[0])
        for part in (forward, backward):
            assert not any(
                partition._TARGET in n.meta for n in part.graph.nodes
            )
        return forward, backward

    def fn(x, w, labels):
        y = torch.log_softmax((x @ w).float(), -1)
        return torch.nn.functional.nll_loss(y, labels, ignore_index=1)

    monkeypatch.setattr(partition, "cut", cut)
    x = torch.randn(6, 8).to(dtype).requires_grad_()
    w = torch.randn(8, 40).to(dtype).requires_grad_()
    labels = torch.tensor([3, 1, 39, 0, 7, 1])
    results = {}
    for name, call in (("eager", fn), ("ours", compiled(fn))):
        loss = call(x, w, labels)
        results[name] = [loss, *torch.autograd.grad(loss, [x, w])]
    assert_same(results["ours"], results["eager"])
    large = [x for x in kept if x.shape == (6, 40)]
    assert [x.dtype for x in large] == [dtype]


def test_places_of_extremes_are_kept():
    """Ties and NaN decide where a gradient goes, once."""
    parts, real = [], partition.cut

    def cut(joint, inputs, **keywords):
        parts.extend(real(joint, inputs, **keywords))
        return parts[-2:]

    def fn(x):
        y = torch.nn.functional.leaky_relu(x * 2, 0.1)
        return y.max(-1)[0] * y.min(1)[0].sum(-1, keepdim=True)

    x = (torch.randn(3, 5, 7, generator=seeded(0)) * 2).round()
    x[0, 1, 2:4] = float("nan")
    results = []
    for call in (fn, compiled(fn)):
        with mock.patch.object(partition, "cut", cut):
            given = x.clone().requires_grad_()
            y = call(given)
            results.append([y, *torch.autograd.grad(y.nansum(), given)])
    assert_same(results[1], results[0])
    forward, backward = (
        [n.target for n in part.graph.nodes if "max.dim" in str(n.target)]
        for part in parts
    )
    assert forward and not backward
