"""What is remembered of operators, and what a graph is not asked twice."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import torchair
from torchair import operators, origin, passes, places, scope


def test_an_object_is_asked_for_once():
    asked = []

    @operators.remembered
    def answer(target):
        asked.append(target)
        return len(asked)

    add, mul = torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor
    assert [answer(add), answer(mul), answer(add), answer(mul)] == [1, 2, 1, 2]
    assert asked == [add, mul]


def test_equal_objects_are_two():
    answer = operators.remembered(lambda target: id(target))
    one, two = [1], [1]
    assert answer(one) != answer(two)


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        ('  File "/a/model.py", line 41, in forward\n    return x\n', 41),
        (
            '  File "/a/b.py", line 3, in f\n    g()\n'
            '  File "/a/model.py", line 7, in g\n    h()\n',
            7,
        ),
        ("no frame at all", None),
        ('  File "/a/model.py", no number', None),
        (None, None),
    ],
)
def test_the_line_of_a_trace(trace, found):
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = trace
    assert origin.source_of(node) == (found and ("/a/model.py", found))
    assert origin.location_of(node) == (found and f"model.py:{found}")


def test_only_a_graph_that_passes_change_is_made_anew(monkeypatch):
    """Its Python code, and the search for dead nodes."""

    def plain(x):
        return (x * 2).relu()

    def scoped(x):
        with scope.npu_stream_switch("1"):
            y = x * 2
        return y.relu()

    changed = []
    recompile = torch.fx.GraphModule.recompile
    for fn in (plain, scoped):
        gm = make_fx(fn)(torch.randn(4))
        monkeypatch.setattr(
            torch.fx.GraphModule, "recompile", lambda gm: changed.append(gm)
        )
        passes.run_all(passes.Job(gm, (), torchair.CompilerConfig()), False)
        monkeypatch.setattr(torch.fx.GraphModule, "recompile", recompile)
        assert changed == ([] if fn is plain else [gm])


class _Told:
    """Takes what a graph is told of scopes."""

    def __init__(self):
        self.scopes = []

    def scope(self, *values):
        self.scopes.append(values)


def test_only_nodes_of_scopes_tell_the_engine():
    told = _Told()
    at = places.Places(told)
    graph = torch.fx.Graph()
    for cores in (None, ("2", "1"), ("2", "1"), None, None):
        node = graph.call_function(torch.relu, ())
        node.meta |= {"cores": cores} if cores else {}
        at.enter(node)
    limited, free = (2, 1, 0, False, False, ()), (0, 0, 0, False, False, ())
    assert told.scopes == [limited, limited, free]
