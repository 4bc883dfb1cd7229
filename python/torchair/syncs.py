"""Waiting for streams, as AOTAutograd writes it: `control_deps(before,
subgraph, *values)`, whose subgraph holds the operator of a stream or event and
gives the values on. The order of a graph's nodes says as much to the engine,
so the nodes of the subgraph take its place."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node


def unwrap(gm: GraphModule) -> bool:
    """True: there were some."""
    found = [n for n in gm.graph.nodes if is_wrapped(n.target)]
    for node in found:  # they name those before them
        node.args = ((), *node.args[1:])
    for node in found:
        _inline(gm, node)
    return bool(found)


def is_wrapped(target: Any) -> bool:
    return (
        isinstance(target, torch._ops.HigherOrderOperator)
        and target.name() == "control_deps"
    )


def _inline(gm: GraphModule, node: Node) -> None:
    place: Any = node.args[1]
    part: Graph = getattr(gm, place.target).graph
    inputs = [n for n in part.nodes if n.op == "placeholder"]
    values: Any = zip(inputs, node.args[2:], strict=True)
    with gm.graph.inserting_before(node):
        given: Any = gm.graph.graph_copy(part, dict(values))
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(given[user.args[1]])
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)
    if not place.users:
        gm.graph.erase_node(place)
