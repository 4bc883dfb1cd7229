"""torchair.explain."""

import torch
import torch.nn.functional as F
from torch import nn

import torchair


def test_model():
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
    with torch.no_grad():
        got = torchair.explain(net, torch.randn(3, 8))
    assert not got.error
    (graph,) = got.as_dict()["graphs"]
    assert graph["kind"] == "inference"
    assert graph["nodes"] >= 3
    assert graph["stats"]["runs"] == 2
    assert not got.recompiles
    assert "1 graph(s)" in str(got)


def test_training_does_not_touch_gradients():
    net = nn.Linear(4, 4)
    got = torchair.explain(net, torch.randn(2, 4))
    assert [g.kind for g in got.graphs] == ["forward", "backward"]
    assert net.weight.grad is None


def test_host_nodes_and_lines():
    def fn(x):
        y = F.gelu(x) * 2
        return torch.linalg.inv(y @ y.t() + torch.eye(4))

    got = torchair.explain(fn, torch.randn(4, 4))
    hosts = got.graphs[0].hosts
    assert hosts and all(h["reason"] for h in hosts)
    assert any(h["at"].startswith("test_explain.py:") for h in hosts)
    assert "HOST" in str(got)
    assert any("test_explain.py:" in r["at"] for r in got.graphs[0].regions)


def test_graph_breaks():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    got = torchair.explain(fn, torch.randn(3))
    assert len(got.graphs) == 2
    assert got.graph_breaks
    assert "graph break" in str(got)


def test_recompile():
    calls = []

    def fn(x):
        calls.append(1)
        return x * len(calls)

    got = torchair.explain(fn, torch.randn(3))
    assert got.recompiles


def test_never_raises():
    def fails(x):
        raise ValueError("no")

    for model, args in (
        (fails, (1,)),
        (None, ()),
        (nn.Linear(2, 2), ()),
        (nn.Linear(2, 2), (torch.randn(3, 5),)),
        ("text", (1, 2)),
    ):
        got = torchair.explain(model, *args)
        assert got.error
        assert str(got)
        assert got.as_dict()["error"]


def test_whole_graph_by_torch():
    def fn(x):
        return x.to(torch.complex128) * 2

    got = torchair.explain(fn, torch.randn(3))
    assert "complex128" in got.graphs[0].fallback
    assert "complex128" in str(got)


def test_another_default_device():
    net, x = nn.Linear(4, 3), torch.randn(2, 4)
    with torch.device("meta"):
        got = torchair.explain(net, x)
    assert not got.error
    assert [g.kind for g in got.graphs] == ["forward", "backward"]
