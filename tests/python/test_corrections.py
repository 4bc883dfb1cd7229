"""Optimizers compute in double, compiled, what eager has as Python floats."""

import operator
import os

import pytest
import torch
from helpers import compiled, seeded

from torchair import corrections

RULES = {
    "adam": lambda p: torch.optim.Adam(p, 1e-3),
    "amsgrad": lambda p: torch.optim.AdamW(p, 1e-3, amsgrad=True),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "radam": lambda p: torch.optim.RAdam(p, 1e-3),
    "adam of lists": lambda p: torch.optim.Adam(p, 1e-3, foreach=True),
    "amsgrad of lists": lambda p: torch.optim.AdamW(
        p, 1e-3, amsgrad=True, foreach=True
    ),
    "nadam of lists": lambda p: torch.optim.NAdam(p, 1e-3, foreach=True),
    "radam of lists": lambda p: torch.optim.RAdam(p, 1e-3, foreach=True),
    "adamax of lists": lambda p: torch.optim.Adamax(p, 1e-3, foreach=True),
}


def follow(make, dtype, how):
    """Where ten steps from 0 lead, gradients being the same."""
    generator = seeded(0)
    p = torch.nn.Parameter(torch.zeros(64, dtype=dtype))
    rule = make([p])
    step = how(rule.step)
    for _ in range(10):
        p.grad = torch.randn(64, generator=generator).to(dtype)
        step()
    return p.detach().double()


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("name", RULES)
def test_steps_are_those_of_double_corrections(name, mode):
    """In f32 1 - 0.999 alone is 1.3e-5 off, a step of Adam 7e-6."""
    make = RULES[name]
    exact = follow(make, torch.float64, lambda step: step)
    got = follow(make, torch.float32, lambda f: compiled(f, mode=mode))
    assert (got - exact).abs().max() < 1e-6 * exact.abs().max()


def test_numbers_of_others_stay_in_f32():
    """Eager computes a user's power in f32, and so it is compiled."""

    def correction(step):
        return 1 - 0.999**step

    step = torch.tensor(1.0)
    want = correction(step)
    assert abs(want - 0.001) > 1e-8
    got = compiled(correction)(step)
    assert got.dtype is torch.float32
    assert abs(got - want) < 1e-9


def made_graph(end):
    """(1 - 0.9 ** t) of a line of torch.optim; end(its node) follows."""
    graph, number = torch.fx.Graph(), torch.tensor(1.0)
    line = f'  File "{os.path.dirname(torch.optim.__file__)}/adam.py", line 1\n'
    t = graph.placeholder("t")
    power = graph.call_function(operator.pow, (0.9, t))
    rest = graph.call_function(operator.sub, (1, power))
    graph.output((end(graph, rest),))
    for node in graph.nodes:
        node.meta.update(example_value=number, stack_trace=line)
    return torch.fx.GraphModule(torch.nn.Module(), graph), power, rest


def users(node):
    return [user.target for user in node.users]


def test_what_leaves_is_rounded():
    gm, power, rest = made_graph(lambda _graph, rest: rest)
    corrections.widen(gm)
    (result,) = gm(torch.tensor(1.0))
    assert result.dtype is torch.float32
    assert users(power) == [operator.sub] and users(rest) == ["to"]


def test_what_is_written_is_not_widened():
    """A sum in place would go into a rounded copy."""

    def end(graph, rest):
        graph.call_method("add_", (rest, 1.0))
        return rest

    gm, power, rest = made_graph(end)
    corrections.widen(gm)
    assert users(power) == ["to"]
    (result,) = gm(torch.tensor(1.0))
    assert result.item() == pytest.approx(1.1)
