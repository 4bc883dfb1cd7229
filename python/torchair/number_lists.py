"""Lists of numbers in torch.optim: one plain operator for each number.

On a GPU, and with foreach=True, optimizers have the numbers of their steps in
lists, and compute with these by `_foreach_pow` and its kin, most of them in
place. Written out without writes they are what corrections.py knows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node

_NAMES = ("pow", "neg", "add", "sub", "mul", "div", "sqrt", "reciprocal")
_NEW: dict[Any, Any] = {
    getattr(torch, f"_foreach_{name}"): getattr(torch, name) for name in _NAMES
}
_WRITES: dict[Any, Any] = {
    getattr(torch, f"_foreach_{name}_"): getattr(torch, name) for name in _NAMES
}


def write_out(gm: GraphModule, wanted: Callable[[Node], bool]) -> None:
    """gm: Dynamo's; wanted: of a node, is it to be written out?"""
    if not any(
        n.target is torch._foreach_pow and wanted(n) for n in gm.graph.nodes
    ):
        return
    now: dict[Node, Node] = {}  # what a number of a list is since its writes
    for node in list(gm.graph.nodes):
        node.args = torch.fx.map_arg(node.args, lambda n: now.get(n, n))
        node.kwargs = torch.fx.map_arg(node.kwargs, lambda n: now.get(n, n))
        if node.kwargs or not wanted(node):
            continue
        if node.target in _NEW:
            _write_new(node, now)
        elif node.target in _WRITES:
            _write_over(node, now)
    _erase(gm, now)
    gm.recompile()


def _erase(gm: GraphModule, items: Iterable[Node]) -> None:
    for item in items:
        made: Any = item.args[0]
        gm.graph.erase_node(item)
        if not made.users:
            gm.graph.erase_node(made)


def _write_new(node: Node, now: dict[Node, Node]) -> None:
    items: dict[Any, Node] = {
        u.args[1]: u for u in node.users if u.target is operator.getitem
    }
    if len(items) != len(node.users) or not all(map(is_number, items.values())):
        return
    for i, item in items.items():
        now[item] = _plain(node, _NEW[node.target], i, item)


def _write_over(node: Node, now: dict[Node, Node]) -> None:
    """Only of numbers that the graph has made, in such a list."""
    members: Any = node.args[0]
    made = {new: old for old, new in now.items()}
    if node.users or not all(m in made for m in members):
        return
    after = [
        _plain(node, _WRITES[node.target], i, m) for i, m in enumerate(members)
    ]
    now.update({made[m]: new for m, new in zip(members, after, strict=True)})
    node.graph.erase_node(node)


def _plain(at: Node, function: Any, i: int, like: Node) -> Node:
    """One number of the list, before node `at`."""
    args = tuple(a[i] if isinstance(a, (list, tuple)) else a for a in at.args)
    with at.graph.inserting_before(at):
        made = at.graph.call_function(function, args)
    made.meta = {**at.meta, "example_value": like.meta["example_value"]}
    return made


def is_number(value: Any) -> bool:
    """A tensor of f32 without axes, in Dynamo's graph."""
    known = value.meta.get("example_value") if isinstance(value, Node) else None
    if not isinstance(known, torch.Tensor):
        return False
    return known.dtype is torch.float32 and known.dim() == 0
