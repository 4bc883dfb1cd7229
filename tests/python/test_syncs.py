"""Streams and events of torch inside compiled functions wait for each other."""

import pytest
import torch
from helpers import assert_same

from torchair import syncs


def get_external_object_by_index(index):
    """As Dynamo's graph names its streams and events."""


def _graph(method, count=2, used=False):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    objects = [
        graph.call_function(get_external_object_by_index, (i + 3,))
        for i in range(count)
    ]
    made = graph.call_method(method, tuple(objects))
    graph.output((x, made) if used else (x,))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("method", "args"),
    [("wait_stream", (3, 4)), ("wait_event", (4, 3)), ("record_event", (4, 3))],
)
def test_methods_become_operators(method, args):
    gm = _graph(method)
    syncs.write_operators(gm)
    (call,) = [n for n in gm.graph.nodes if n.op.startswith("call")]
    assert call.args == args
    assert call.target is getattr(torch.ops.streams, method).default


@pytest.mark.parametrize(
    ("method", "count", "used"),
    [("wait_stream", 1, False), ("record_event", 2, True), ("query", 2, False)],
)
def test_other_methods_stay(method, count, used):
    gm = _graph(method, count, used)
    before = str(gm.graph)
    syncs.write_operators(gm)
    assert str(gm.graph) == before


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_waits_in_a_compiled_function(mode):
    main, side = (torch.Stream(device="cpu") for _ in range(2))
    event = torch.Event(device="cpu")

    def fn(x):
        y = x * 2
        event.record(main)
        with side:
            event.wait(side)
            z = y + 1
        main.wait_stream(side)
        return z * 3

    compiled = torch.compile(fn, backend="torchair", mode=mode, fullgraph=True)
    x = torch.randn(5)
    assert_same(compiled(x), (x * 2 + 1) * 3)
