"""Operators that become what a Python function of them does, once the passes
over the FX graph have run: dumps and patterns see the operator, the engine
fuses its parts with their neighbours."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

Body = Callable[..., Any]
_bodies: dict[Any, tuple[Body, Callable[[Node], bool]]] = {}


def _always(_node: Node) -> bool:
    return True


def register(
    op: Any, body: Body, when: Callable[[Node], bool] = _always
) -> None:
    """Nodes of the overload, those of which `when` says so, become those of
    body, which takes its arguments and gives a tuple of tensors."""
    _bodies[op] = body, when


def expand(gm: GraphModule) -> None:
    """The graph with the bodies in place."""
    if not _bodies:
        return
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in _bodies:
            body, when = _bodies[node.target]
            if when(node):
                _replace(gm, node, body)


def _replace(gm: GraphModule, node: Node, body: Callable[..., Any]) -> None:
    operands = node.all_input_nodes
    inner = _traced(node, operands, body)
    inputs = [n for n in inner.graph.nodes if n.op == "placeholder"]
    known = dict(zip(inputs, operands, strict=True))
    with gm.graph.inserting_before(node):
        results: Any = gm.graph.graph_copy(inner.graph, known)
    for made in known.values():
        if made not in operands:
            made.meta.setdefault("stack_trace", node.meta.get("stack_trace"))
            for key in ("lane", "scope", "cores", "after"):
                if key in node.meta:
                    made.meta[key] = node.meta[key]
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise RuntimeError(f"{user} uses all results of {node}")
        user.replace_all_uses_with(results[user.args[1]])
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _traced(
    node: Node, operands: list[Node], body: Callable[..., Any]
) -> GraphModule:
    """The body on the node's arguments, as a graph of its tensors."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    values = [n.meta["val"] for n in operands]

    def run(*tensors: Any) -> Any:
        given = dict(zip(operands, tensors, strict=True))
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), given.__getitem__
        )
        return body(*args, **kwargs)

    mode: Any = torch._guards.detect_fake_mode(values)
    with mode, enable_python_dispatcher():
        made = make_fx(run)(*values)
    made.graph.eliminate_dead_code()
    return made
