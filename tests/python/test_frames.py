"""Code behind graph breaks: no stream is noted that no graph asks for, and
hooks of saved tensors may change."""

import pytest
import torch
import torch._dynamo.graph_bytecode_inputs as inputs
from helpers import BEFORE_213, DEVICE, assert_same, seeded
from torch._dynamo.utils import counters

pytestmark = pytest.mark.skipif(
    not torch.accelerator.is_available(), reason="nothing notes streams"
)


def broken(x):
    x = torch.tanh(x * 2 + 1)
    torch._dynamo.graph_break()
    x = torch.sin(x * 3 - 1)
    torch._dynamo.graph_break()
    return x.exp() * 2


def calls(fn, x, monkeypatch):
    """How often a call of what is compiled notes streams."""
    expected = broken(x)
    for _ in range(2):
        assert_same(fn(x), expected)
    noted = []
    note = inputs.store_user_object_weakrefs
    with monkeypatch.context() as patched:
        patched.setattr(
            inputs,
            "store_user_object_weakrefs",
            lambda *found: noted.append(found) or note(*found),
        )
        assert_same(fn(x), expected)
    return len(noted)


@pytest.mark.parametrize("grad", [False, True])
def test_streams_are_not_noted(grad, monkeypatch):
    x = torch.randn(8, generator=seeded(0)).requires_grad_(grad)
    fn = torch.compile(broken, backend="torchair")
    assert calls(fn, x, monkeypatch) == 0


def test_other_backends_keep_theirs(monkeypatch):
    x = torch.randn(8, generator=seeded(0))
    fn = torch.compile(broken, backend="eager")
    usual = calls(fn, x, monkeypatch)
    torch.compiler.reset()
    assert calls(torch.compile(broken, backend="torchair"), x, monkeypatch) == 0
    torch.compiler.reset()
    fn = torch.compile(broken, backend="eager")
    assert calls(fn, x, monkeypatch) == usual
    assert BEFORE_213 or usual > 0  # only then is there something to leave out


def gives_its_stream(x):
    torch._dynamo.graph_break()
    return x * 2, torch.accelerator.current_stream()


def test_a_stream_that_is_given_back_is_the_current_one():
    fn = torch.compile(gives_its_stream, backend="torchair")
    for _ in range(3):
        inputs.index_to_external_object_weakref.clear()
        y, stream = fn(torch.ones(2, device=DEVICE))
        assert y.tolist() == [2, 2]
        assert stream == torch.accelerator.current_stream()


def halved(t):
    return t * 0.5


@pytest.mark.parametrize("traced", [False, True])
def test_hooks_of_saved_tensors_change_and_nothing_is_compiled_again(traced):
    """traced: a graph, which torch would make a part of its own."""
    x = torch.randn(8, generator=seeded(0)).requires_grad_()
    fn = torch.compile(torch.sin, backend="torchair")
    for _ in range(3):
        (given,) = torch.autograd.grad(fn(x).sum(), x)
        assert_same(given, x.cos())
    hooks = [halved, lambda t: t]
    if traced:
        hooks = list(map(torch.fx.symbolic_trace, hooks))
    graphs = counters["stats"]["unique_graphs"]
    with torch.autograd.graph.saved_tensors_hooks(*hooks):
        found = fn(x)
    (given,) = torch.autograd.grad(found.sum(), x)
    assert_same(given, (x * 0.5).cos())
    assert counters["stats"]["unique_graphs"] == graphs
