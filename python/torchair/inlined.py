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
    """Nodes of the operator, those of which `when` says so, become those of
    body, which takes its arguments and gives a tensor, a tuple of tensors, or
    of such tuples. Graphs among the arguments are given as they are."""
    _bodies[op] = body, when


def call_like(node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    """A node that says of itself what `node` does, its value computed from
    those of its arguments."""
    made = node.graph.call_function(target, args, kwargs)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    made.meta = {**node.meta, "val": target(*values, **kwargs)}
    return made


def expand(gm: GraphModule) -> None:
    """The graph with the bodies in place."""
    if not _bodies:
        return
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target in _bodies:
            body, when = _bodies[node.target]
            if when(node):
                _replace(gm, node, body)


def _graphs(gm: GraphModule, nodes: list[Node]) -> dict[Node, GraphModule]:
    """Of operands: those that are graphs."""
    found = {
        n: operator.attrgetter(str(n.target))(gm)
        for n in nodes
        if n.op == "get_attr"
    }
    return {n: x for n, x in found.items() if isinstance(x, GraphModule)}


def _replace(gm: GraphModule, node: Node, body: Callable[..., Any]) -> None:
    graphs = _graphs(gm, node.all_input_nodes)
    operands = [n for n in node.all_input_nodes if n not in graphs]
    inner = _traced(node, operands, graphs, body)
    _take_constants(gm, node, inner)
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
    _hand_over(gm, node, results)


def _take_constants(gm: GraphModule, node: Node, inner: GraphModule) -> None:
    for constant in inner.graph.find_nodes(op="get_attr"):
        name = f"_{node.name}_{constant.target}"
        setattr(gm, name, getattr(inner, str(constant.target)))
        constant.target = name


def _hand_over(gm: GraphModule, node: Node, results: Any) -> None:
    """The node's users read the results."""
    if isinstance(results, Node):
        results.meta["val"] = node.meta["val"]  # as it lies in memory
        node.replace_all_uses_with(results)
        gm.graph.erase_node(node)
        return
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise RuntimeError(f"{user} uses all results of {node}")
        result = results[user.args[1]]
        if isinstance(result, (tuple, list)):
            _hand_over(gm, user, result)
            continue
        if isinstance(result, Node) and "val" in user.meta:
            result.meta["val"] = user.meta["val"]  # as it lies in memory
        user.replace_all_uses_with(result)
        gm.graph.erase_node(user)
    gm.graph.erase_node(node)


def _traced(
    node: Node,
    operands: list[Node],
    graphs: dict[Node, GraphModule],
    body: Callable[..., Any],
) -> GraphModule:
    """The body on the node's arguments, as a graph of its tensors."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    values = [n.meta["val"] for n in operands]

    def run(*tensors: Any) -> Any:
        given: dict[Node, Any] = dict(zip(operands, tensors, strict=True))
        args, kwargs = torch.fx.node.map_arg(
            (node.args, node.kwargs), (given | graphs).__getitem__
        )
        return body(*args, **kwargs)

    mode: Any = torch._guards.detect_fake_mode(values)
    with mode, enable_python_dispatcher():
        made = make_fx(run)(*values)
    made.graph.eliminate_dead_code()
    return made
