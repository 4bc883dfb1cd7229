"""Concatenations, where torch runs the graph: row `remove_cat` of passes.py.

What only a cat along dimension 0 reads is computed into its place in the
result by the operator's out= form. Where dtypes differ the cat converts, and
stays. The engine places operands of a cat by itself.
"""

from __future__ import annotations

import itertools
import operator
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from . import events, forms, lanes, schema

aten = torch.ops.aten


def remove_cats(gm: GraphModule) -> bool:
    """True: there were some."""
    graph = gm.graph
    found = [c for c in _cats(graph) if _fits(graph, c)]
    events.found_cats(len(found))
    for cat in found:
        _replace(graph, cat)
    return bool(found)


def _cats(graph: Graph) -> list[Node]:
    return list(graph.find_nodes(op="call_function", target=aten.cat.default))


def _fits(graph: Graph, cat: Node) -> bool:
    parts: Any = cat.args[0]
    value = cat.meta.get("val")
    dim = schema.argument(cat, 1, "dim", 0)
    if len(parts) < 2 or not isinstance(value, torch.Tensor):
        return False
    if dim not in (0, -value.dim()):
        return False
    sizes = [p.meta["val"].shape[0] for p in parts if _is_part(p, cat, value)]
    if len(sizes) < len(parts):
        return False
    return all(_size(graph, n) is not None for n in [*sizes, *value.shape[1:]])


def _is_part(part: Any, cat: Node, value: torch.Tensor) -> bool:
    if not isinstance(part, Node) or list(part.users) != [cat]:
        return False
    func, own = part.target, part.meta.get("val")
    if not isinstance(func, torch._ops.OpOverload) or part in part.args:
        return False
    once = list(cat.args[0]).count(part) == 1  # type: ignore[arg-type]
    return (
        once
        and isinstance(own, torch.Tensor)
        and own.dtype == value.dtype
        and own.dim() == value.dim()
        and lanes.lane_of(part) == lanes.lane_of(cat)
        and not any(r.alias_info for r in func._schema.returns)
        and forms.with_out(func) is not None
    )


def _size(graph: Graph, n: Any) -> Any:
    """A number, or the input of the graph that is it; None: it is computed."""
    if isinstance(n, int):
        return n
    for node in graph.find_nodes(op="placeholder"):
        if str(node.meta.get("val")) == str(n):
            return node
    return None


def _replace(graph: Graph, cat: Node) -> None:
    parts: Any = cat.args[0]
    first = min(parts, key=list(graph.nodes).index)
    with graph.inserting_before(first):
        lengths = [_size(graph, p.meta["val"].shape[0]) for p in parts]
        ends = list(itertools.accumulate(lengths, partial(_sum, graph)))
        whole = _empty(graph, cat, ends[-1])
        starts = [0, *ends[:-1]]
        places = [
            _call(graph, p, aten.slice.Tensor, whole, 0, start, end)
            for p, start, end in zip(parts, starts, ends, strict=True)
        ]
    for part, place in zip(parts, places, strict=True):
        part.target = forms.with_out(part.target)
        part.kwargs = {**part.kwargs, "out": place}
    # what reads the result must come after the last part
    with graph.inserting_before(cat):
        done = _call(graph, cat, aten.alias.default, whole)
    cat.replace_all_uses_with(done)
    graph.erase_node(cat)


def _sum(graph: Graph, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    node = graph.call_function(operator.add, (a, b))
    values = [x.meta["val"] if isinstance(x, Node) else x for x in (a, b)]
    node.meta["val"] = values[0] + values[1]
    return node


def _empty(graph: Graph, cat: Node, rows: Any) -> Node:
    value = cat.meta["val"]
    sizes = [rows, *(_size(graph, n) for n in value.shape[1:])]
    node = graph.call_function(
        aten.empty.memory_format,
        (sizes,),
        {"dtype": value.dtype, "device": value.device},
    )
    node.meta = dict(cat.meta)
    return node


def _call(graph: Graph, like: Node, func: Any, *args: Any) -> Node:
    node = graph.call_function(func, args)
    node.meta = dict(like.meta)
    return node
