"""Waiting for streams, as AOTAutograd writes it: `control_deps(before,
subgraph, *values)`, whose subgraph holds the operator of a stream or event and
gives the values on. The order of a graph's nodes says as much to the engine,
so the nodes of the subgraph take its place.

Dynamo of torch 2.11 leaves methods of streams in its graph, which AOTAutograd
would call on the real objects: they become operators first, as later versions
write them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

# ---- methods of Dynamo's graph ----


def _index(node: Any) -> int | None:
    """Of a stream or event among the objects that the frame has noted."""
    name = getattr(getattr(node, "target", None), "__name__", "")
    if name != "get_external_object_by_index":
        return None
    return int(node.args[0])


# Method -> operator, and where its arguments stand: the object, what it takes.
_METHODS = {
    "wait_stream": ("wait_stream", (0, 1)),
    "wait_event": ("wait_event", (1, 0)),
    "record_event": ("record_event", (1, 0)),
}


def _operator_of(node: Node) -> tuple[Any, tuple[int, ...]] | None:
    name, order = _METHODS.get(str(node.target), ("", ()))
    found = [_index(a) for a in node.args]
    if node.op != "call_method" or len(found) != 2 or None in found or not name:
        return None
    op = getattr(getattr(torch.ops.streams, name), "default", None)
    return op, tuple(found[i] for i in order)  # type: ignore[misc]


def write_operators(gm: GraphModule) -> None:
    """Methods of streams in Dynamo's graph become operators; the graph is
    made anew where there were some."""
    changed = []
    for node in gm.graph.nodes:
        found = _operator_of(node) if node.op == "call_method" else None
        if found is not None and not node.users:
            changed.append((node, *found))
    for node, op, args in changed:
        with gm.graph.inserting_before(node):
            gm.graph.call_function(op, args).meta = dict(node.meta)
        objects = [a for a in node.args if isinstance(a, Node)]
        gm.graph.erase_node(node)
        for unused in objects:
            if not unused.users and unused in gm.graph.nodes:
                gm.graph.erase_node(unused)
    if changed:
        gm.recompile()


# ---- control_deps ----


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
