"""In place again, where torch runs the graph: rows `write_inputs` and
`write_intermediates` of passes.py. The engine does both by itself.

AOTAutograd's graphs are functional; what a function updates in place comes as
an operator and a `copy_` into the input at the end. An operator may write into
its first argument where that is as large as its result and nothing reads the
memory later. Views of a memory count as that memory, so whatever could see a
difference is a reader. With several streams, all who touch the memory must
belong to one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_leaves

from . import forms, lanes
from .schema import mutates

aten = torch.ops.aten
_COPY = aten.copy_.default
# A part put into a whole: the view that is the part.
_SCATTERS = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}
_UNSAFE = {aten._unsafe_view.default, aten.reshape.default}


class Memories:
    """Which nodes may lie in the same memory, and who uses it when."""

    def __init__(self, graph: Graph) -> None:
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.first: dict[Node, Node] = {}  # whose memory a node lies in
        for node in graph.nodes:
            self.first[node] = self._first(node)
        self.members: dict[Node, list[Node]] = {}
        for node, first in self.first.items():
            self.members.setdefault(first, []).append(node)

    def _first(self, node: Node) -> Node:
        source = _aliased(node) if node.op == "call_function" else None
        return node if source is None else self.first[source]

    def merge(self, node: Node, source: Node) -> None:
        """The node's memory is the source's now."""
        first, other = self.first[source], self.first[node]
        for member in self.members.pop(other):
            self.first[member] = first
            self.members[first].append(member)

    def replace(self, node: Node, new: list[Node]) -> None:
        """`new` stand where the node stood, in its memory."""
        first, place = self.first.pop(node), self.place.pop(node)
        self.members[first].remove(node)
        for n in new:
            self.first[n], self.place[n] = first, place
            self.members[first].append(n)

    def of_outside(self, node: Node) -> bool:
        return self.first[node].op != "call_function"

    def users(self, node: Node) -> Iterator[Node]:
        """Of its memory, but for those that are only views of it."""
        first = self.first[node]
        for member in self.members[first]:
            for user in member.users:
                if self.first.get(user) is not first or not _is_view(user):
                    yield user

    def read_after(self, node: Node, at: Node) -> bool:
        """Does anything but `at` use the node's memory from there on?"""
        return any(
            user is not at and self.place[user] > self.place[at]
            for user in self.users(node)
        )

    def one_lane(self, node: Node, at: Node) -> bool:
        lane = lanes.lane_of(at)
        touched = [*self.members[self.first[node]], *self.users(node)]
        return all(
            lanes.lane_of(n) == lane for n in touched if n.op == "call_function"
        )

    def given_once(self, node: Node, at: Node) -> bool:
        first = self.first[node]
        given = tree_leaves((at.args, at.kwargs))
        nodes = [x for x in given if isinstance(x, Node)]
        return sum(self.first[n] is first for n in nodes) == 1


def _aliased(node: Node) -> Node | None:
    """The argument in whose memory the result may lie."""
    if node.target is operator.getitem or node.target in _UNSAFE:
        return node.all_input_nodes[0]
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(r.alias_info for r in schema.returns):
        return None
    for i, a in enumerate(schema.arguments):
        if a.alias_info is not None:
            given = node.args[i] if i < len(node.args) else None
            found = tree_leaves((given, node.kwargs.get(a.name)))
            for x in found:
                if isinstance(x, Node):
                    return x
    return None


def _is_view(node: Node) -> bool:
    return _aliased(node) is not None and not mutates(node)


def _alike(a: Node, b: Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    return (
        isinstance(x, torch.Tensor)
        and isinstance(y, torch.Tensor)
        and x.dtype == y.dtype
        and x.device == y.device
        and str(x.shape) == str(y.shape)
        and str(x.stride()) == str(y.stride())
        and torch._prims_common.is_non_overlapping_and_dense_or_false(x)
    )


def _target(node: Node) -> Node | None:
    """The argument an operator could write its result into."""
    func = node.target
    if not isinstance(func, torch._ops.OpOverload) or not node.args:
        return None
    target = node.args[0]
    if not isinstance(target, Node) or not _alike(target, node):
        return None
    has_form = func in _SCATTERS or _in_place(func) is not None
    return target if has_form else None


def _in_place(func: Any) -> Any:
    if any(r.alias_info for r in func._schema.returns):
        return None  # a view
    found = forms.in_place(func)
    if found is None or torch.Tag.inplace_view in found.tags:
        return None
    return found


def _write(memories: Memories, node: Node) -> None:
    """The node writes into its first argument."""
    func: Any = node.target
    view = _SCATTERS.get(func)
    if view is None:
        node.target = _in_place(func)
        memories.merge(node, node.args[0])  # type: ignore[arg-type]
        return
    graph = node.graph
    base, part, *rest = node.args
    with graph.inserting_before(node):
        where = graph.call_function(view, (base, *rest), dict(node.kwargs))
        copy = graph.call_function(_COPY, (where, part))
    for new in (where, copy):
        new.meta = {k: v for k, v in node.meta.items() if k != "val"}
        new.meta["val"] = part.meta["val"]  # type: ignore[union-attr]
    assert isinstance(base, Node)
    node.replace_all_uses_with(base)
    memories.merge(node, base)
    memories.replace(node, [where, copy])
    graph.erase_node(node)


def keep_old_values(graph: Graph) -> None:
    """A clone for what a copy_ takes from an input that another copy_ has
    written before: two inputs swapped, whose clone looked like nothing."""
    memories, written = Memories(graph), set()
    copies = graph.find_nodes(op="call_function", target=_COPY)
    for copy in copies:
        into, value = copy.args[:2]
        if isinstance(value, Node) and memories.first[value] in written:
            with graph.inserting_before(copies[0]):
                clone = graph.call_function(aten.clone.default, (value,))
            clone.meta = dict(value.meta)
            copy.args = (into, clone)
        assert isinstance(into, Node)
        written.add(memories.first[into])


# ---- inputs ----


def write_inputs(gm: GraphModule) -> bool:
    """An input that a copy_ would update at the end is written by the
    operators that compute its new value. True: there were some."""
    found = False
    for copy in gm.graph.find_nodes(op="call_function", target=_COPY):
        memories = Memories(gm.graph)
        chain = _chain(memories, copy)
        if chain is None:
            continue
        for node in chain:
            _write(memories, node)
        copy.replace_all_uses_with(copy.args[0])
        gm.graph.erase_node(copy)
        found = True
    return found


def _chain(memories: Memories, copy: Node) -> list[Node] | None:
    """What makes the value of a copy_ out of its target, the first first."""
    into, version = copy.args[:2]
    assert isinstance(into, Node)
    if version is into:
        return []  # a copy of itself
    if into.op != "placeholder":
        return None
    if not isinstance(version, Node) or _is_result(memories, version):
        return None
    chain: list[Node] = []
    while version is not into:
        source = _target(version)
        if source is None or not _may_write(memories, source, version, copy):
            return None
        chain.append(version)
        version = source
    return chain[::-1]


def _may_write(
    memories: Memories, source: Node, node: Node, copy: Node
) -> bool:
    later = (
        user
        for user in memories.users(source)
        if user not in (node, copy)
        and memories.place[user] > memories.place[node]
    )
    return (
        next(later, None) is None
        and memories.given_once(source, node)
        and memories.one_lane(source, node)
    )


def _is_result(memories: Memories, node: Node) -> bool:
    return any(user.op == "output" for user in memories.users(node))


# ---- intermediates ----


def write_intermediates(gm: GraphModule) -> bool:
    """Operators write into what only they read. True: there were some."""
    found, memories = False, Memories(gm.graph)
    for node in list(gm.graph.nodes):
        if node.op != "call_function":
            continue
        source = _target(node)
        if source is None:
            continue
        if (
            not memories.of_outside(source)
            and not memories.read_after(source, node)
            and memories.given_once(source, node)
            and memories.one_lane(source, node)
        ):
            _write(memories, node)
            found = True
    return found
