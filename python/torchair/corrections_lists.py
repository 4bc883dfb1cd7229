"""corrections.py for optimizers with foreach=True, whose numbers are lists.

Dynamo writes such a step as operators over lists, many of them in place:
`_foreach_sub_(corrections, 1)`. Where a list begins as powers of numbers and
all that is written to it is plain arithmetic of numbers, each element becomes
a chain of operators of its own, in double.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

_PREFIX = "_foreach_"
_PLAIN = {
    "pow": torch.pow,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "neg": torch.neg,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
}
# What may read an element by itself: it gives something new.
_READS = {operator.gt, operator.ge, operator.lt, operator.le, torch.where}

Ask = Callable[[Node], bool]


def _name_of(node: Node) -> str:
    """ "sub_" of torch._foreach_sub_, "" of what is no operator of lists."""
    name = getattr(node.target, "__name__", "")
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""


def _elements(node: Node) -> Iterator[Node]:
    for x in node.args:
        if isinstance(x, (list, tuple)):
            yield from (e for e in x if isinstance(e, Node))


class _Plan:
    """Which elements are computed in double, by which nodes."""

    def __init__(self, begins: Ask, is_number: Ask) -> None:
        self.begins = begins
        self.is_number = is_number
        self.wide: set[Node] = set()
        self.nodes: list[Node] = []

    def take(self, node: Node) -> bool:
        """False: an element is used in a way that is not known."""
        name = _name_of(node)
        read = not self.wide.isdisjoint(node.all_input_nodes)
        if not name:
            return not read or node.target in _READS
        if name.endswith("_"):
            return self._in_place(node, name)
        if (read or self.begins(node)) and self._is_plain(node, name):
            self.nodes.append(node)
            self.wide.update(node.users)
        return True

    def _in_place(self, node: Node, name: str) -> bool:
        written = node.args[0]
        if not isinstance(written, (list, tuple)):
            return self.wide.isdisjoint(node.all_input_nodes)
        if self.wide.isdisjoint(written):
            return True
        self.nodes.append(node)
        return (
            self.wide.issuperset(written)
            and not node.users
            and self._is_plain(node, name.removesuffix("_"))
        )

    def _is_plain(self, node: Node, name: str) -> bool:
        return (
            name in _PLAIN
            and not node.kwargs
            and all(self.is_number(e) for e in _elements(node))
            and all(u.target is operator.getitem for u in node.users)
        )


class _Rewrite:
    def __init__(self, gm: GraphModule, plan: _Plan) -> None:
        self.graph = gm.graph
        self.plan = plan
        self.value: dict[Node, Node] = {}  # of an element, at this point

    def run(self) -> None:
        chosen = set(self.plan.nodes)
        for node in list(self.graph.nodes):
            if node in chosen:
                self._widen(node)
            elif not self.value.keys().isdisjoint(node.all_input_nodes):
                self._round(node)
        for node in reversed(self.plan.nodes):
            for user in list(node.users):
                self.graph.erase_node(user)
            self.graph.erase_node(node)

    def _call(self, before: Node, *call: Any) -> Node:
        with self.graph.inserting_before(before):
            made = self.graph.create_node(*call)
        for key in "stack_trace", "nn_module_stack":
            if key in before.meta:
                made.meta[key] = before.meta[key]
        return made

    def _double(self, node: Node, x: Any) -> Any:
        if not isinstance(x, Node):
            return x
        if x in self.value:
            return self.value[x]
        cast = "call_method", "to", (x, torch.float64)
        return self._call(node, *cast)

    def _widen(self, node: Node) -> None:
        name = _name_of(node)
        function = _PLAIN[name.removesuffix("_")]
        lists: list[Any] = [
            x for x in node.args if isinstance(x, (list, tuple))
        ]
        made = []
        for i in range(len(lists[0])):
            args = [
                x[i] if isinstance(x, (list, tuple)) else x for x in node.args
            ]
            args = [self._double(node, x) for x in args]
            made.append(
                self._call(node, "call_function", function, tuple(args))
            )
        if name.endswith("_"):
            self.value.update(zip(lists[0], made, strict=True))
        for user in node.users:
            self.value[user] = made[user.args[1]]  # type: ignore[index]

    def _round(self, node: Node) -> None:
        """For who wants an element as it would have been."""
        for x in node.all_input_nodes:
            if x in self.value:
                cast = "call_method", "to", (self.value[x], torch.float32)
                node.replace_input_with(x, self._call(node, *cast))


def widen(gm: GraphModule, begins: Ask, is_number: Ask) -> bool:
    """Was anything changed? begins: is it a power in a line of torch.optim?"""
    plan = _Plan(begins, is_number)
    if not all(plan.take(node) for node in gm.graph.nodes) or not plan.nodes:
        return False
    _Rewrite(gm, plan).run()
    return True
