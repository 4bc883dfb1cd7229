"""Inputs of a graph have the names that the user gave them."""

import re

import pytest
import torch
from helpers import compiled
from torch import nn

from torchair import artifacts, backend, names


@pytest.mark.parametrize(
    "source, name",
    [
        ("L['x']", "x"),
        ("G['TABLE']", "TABLE"),
        ("L['cache']['k']", "cache.k"),
        ("L['args'][0]", "args.0"),
        ("L['x'].size()[1]", "x.size.1"),
        ("___from_numpy(L['x'])", "x"),
        ("L['self']._modules['0']._parameters['weight']", "self.0.weight"),
        ("L['L']", "L"),
        ("", ""),
    ],
)
def test_from_source(source, name):
    assert names.from_source(source) == name


def test_unique():
    taken = set()
    assert [names.unique("x", taken) for _ in range(3)] == ["x", "x_2", "x_3"]
    assert names.unique("x_2", taken) == "x_2_2"


def node(name, **meta):
    graph = torch.fx.Graph()
    found = graph.placeholder(name)
    found.meta.update(meta)
    return found


def test_of_input():
    assert names.of_input(node("arg0_1"), set()) == "arg0_1"
    taken = {"x"}
    assert names.of_input(node("a", user_name="x"), taken) == "x_2"
    assert names.of_input(node("a", user_name="0.gr\u00f6\u00dfe"), taken) == (
        "_0.gr__e"
    )
    assert len(taken) == 3


def inputs_of(program):
    """The graph's inputs in its text."""
    head = program.text(0).split("{")[0]
    return re.findall(r"[(,] ?%?([\w.]+):", head)


def programs_of(call):
    found, made = [], []
    with backend.collect(found, made):
        call()
    return made


TABLE = torch.ones(4)


def test_names_of_arguments():
    net = nn.Linear(4, 4)

    def run(x, cache, *rest, scale):
        more = rest[0] + scale["a b"] + TABLE
        return net(x) + cache["k"][0] + more

    x = torch.ones(4)
    (made,) = programs_of(
        torch.no_grad()(
            lambda: compiled(run)(x, {"k": [x + 1]}, x + 2, scale={"a b": x})
        )
    )
    found = inputs_of(made)
    assert {"cache.k.0", "rest.0", "TABLE"} <= set(found)
    assert any(n.endswith(".weight") for n in found)


def test_names_of_sizes_and_gradients():
    def run(x, n):
        return (x * x).view(-1, n), x + 1

    def call():
        x = torch.ones(6, requires_grad=True)
        a, b = compiled(run, dynamic=True)(x, 3)
        (a.sum() + b.sum()).backward()

    forward, backward = programs_of(call)
    assert {"x", "n"} <= set(inputs_of(forward))
    assert {"x", "grad_of_output.0"} <= set(inputs_of(backward))


def test_one_name_for_two_inputs():
    def run(a_b, a):
        return a_b + a["b"] + a["B"]

    x = torch.ones(3)
    (made,) = programs_of(lambda: compiled(run)(x, {"b": x + 1, "B": x + 2}))
    assert inputs_of(made) == ["a_b", "a.b", "a.B"]


def test_a_graph_without_dynamo_keeps_its_own_names():
    from torch._functorch.aot_autograd import aot_function

    made = programs_of(
        lambda: aot_function(lambda x: x + 1, artifacts.get_compiler())(
            torch.ones(3)
        )
    )
    assert [inputs_of(p) for p in made] == [["arg0_1"]]
