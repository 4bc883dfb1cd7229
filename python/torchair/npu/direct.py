"""A capture's log as a graph, without tracing it.

Torch's tracer runs each operator through four modes, 2 ms apiece. The log has
what it would find out: which operators, on which memory, with which sizes. So
nodes are written down as they are, and writes are made functional here: the
value of a window is a node, a new value of a part is scattered into the
memory it is a part of, and other windows on that memory are derived again.

Only plain cases are taken: what is written is row-major, its operator has a
functional form with the same result, the views between are of the table
below. `graph_of` gives None for any other log, which is traced then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from .. import compat, forms
from .memory import Window
from .pieces import Piece, created
from .record import Entry, tensors_of
from .sizes import mapped

aten = torch.ops.aten


class _Unusual(Exception):
    """The log has to be traced."""


# ---- views undone: (source's node, new node of the view, source, arguments)
# -> new node of the source ----


def _scatter(op: Any) -> Callable[..., Any]:
    def undo(
        graph: Graph, old: Node, new: Node, source: Window, rest: Any
    ) -> Any:
        return graph.call_function(op, (old, new, *rest))

    return undo


def _shape(graph: Graph, _old: Node, new: Node, source: Window, _: Any) -> Any:
    if not source.dense():
        raise _Unusual
    return graph.call_function(aten.view.default, (new, list(source.size)))


def _permute(
    graph: Graph, _old: Node, new: Node, source: Window, rest: Any
) -> Any:
    order = [d % len(source.size) for d in rest[0]]
    back = [order.index(d) for d in range(len(order))]
    return graph.call_function(aten.permute.default, (new, back))


def _again(op: Any) -> Callable[..., Any]:
    """The view is its own inverse."""

    def undo(graph: Graph, _old: Node, new: Node, _: Window, rest: Any) -> Any:
        return graph.call_function(op, (new, *rest))

    return undo


def _same(_graph: Graph, _old: Node, new: Node, _: Window, _rest: Any) -> Node:
    return new


_UNDO: dict[Any, Callable[..., Any]] = {
    aten.slice.Tensor: _scatter(aten.slice_scatter.default),
    aten.select.int: _scatter(aten.select_scatter.default),
    aten.diagonal.default: _scatter(aten.diagonal_scatter.default),
    aten.as_strided.default: _scatter(aten.as_strided_scatter.default),
    aten.view.default: _shape,
    aten.unsqueeze.default: _shape,
    aten.squeeze.dim: _shape,
    aten.squeeze.default: _shape,
    aten.permute.default: _permute,
    aten.transpose.int: _again(aten.transpose.int),
    aten.t.default: _again(aten.t.default),
    aten.detach.default: _same,
    aten.alias.default: _same,
}


# Operators that give a view and do not say so.
_HIDDEN = {aten._unsafe_view.default: aten.view.default}


# ---- the graph ----


class _View:
    """How a window comes from another one."""

    def __init__(
        self,
        source: Window,
        func: Any,
        rest: Any,
        outs: list[Window] | None = None,
    ) -> None:
        self.source, self.func, self.rest = source, func, rest
        self.outs = outs  # where the view has several results


class _Builder:
    def __init__(self, log: list[Entry], inputs: list[Piece]) -> None:
        self.graph, self.mode = Graph(), FakeTensorMode()
        self.own = set(created(log))
        self.views: dict[Window, _View] = {}
        self.base: dict[Window, Window] = {}  # what has a value of its own
        self.version: dict[Window, int] = {}  # of a base: how often written
        self.nodes: dict[Window, tuple[Node, int]] = {}
        self.metas: dict[Window, torch.Tensor] = {}  # of a base
        for piece in inputs:
            self._input(piece)
        for entry in log:
            self._entry(entry)

    # ---- values ----

    def value(self, w: Window) -> Node:
        base = self.base.get(w)
        if base is None:
            return self._late(w)
        node, version = self.nodes.get(w, (None, -1))
        if node is None or version != self.version[base]:
            view = self.views[w]
            args = (self.value(view.source), *view.rest)
            node = self.graph.call_function(view.func, args)
            if view.outs is not None:
                node.meta["val"] = [self._fake(x) for x in view.outs]
                item = node, view.outs.index(w)
                node = self.graph.call_function(operator.getitem, item)
            self._set(w, node)
        return node

    def _late(self, w: Window) -> Node:
        """Part of what an operator has made, seen without a view of the log."""
        root = w.memory.root
        if root is None or root == w or root not in self.base:
            raise _Unusual
        self._strided(w, root)
        return self.value(w)

    def _strided(self, w: Window, base: Window) -> None:
        if w.dtype != base.dtype or w.conj or w.neg:
            raise _Unusual
        rest = (list(w.size), list(w.stride), w.offset - base.offset)
        self._view(w, _View(base, aten.as_strided.default, rest))

    def _view(self, w: Window, view: _View) -> None:
        self.views[w] = view
        self.base[w] = self.base[view.source]

    def _start(self, w: Window, node: Node) -> None:
        self.base[w], self.version[w] = w, 0
        self._set(w, node)

    def _set(self, w: Window, node: Node) -> Node:
        node.meta["val"] = self._fake(w)
        self.nodes[w] = node, self.version[self.base[w]]
        return node

    def _fake(self, w: Window) -> torch.Tensor:
        if w.conj or w.neg:
            raise _Unusual
        base = self.base.get(w, w)
        memory = self.metas.get(base)
        if memory is None:
            memory = torch.empty(0, dtype=torch.uint8, device="meta")
            self.metas[base] = memory
        meta = torch.empty(0, dtype=w.dtype, device="meta")
        meta.set_(memory.untyped_storage(), w.offset, w.size, w.stride)
        return FakeTensor(self.mode, meta, torch.device("cpu"))

    # ---- the log ----

    def _input(self, piece: Piece) -> None:
        if piece.written and not piece.base.dense():
            raise _Unusual
        at = len(self.graph.nodes)
        self._start(piece.base, self.graph.placeholder(f"arg{at}_1"))
        for w in piece.windows:
            if w != piece.base:
                self._strided(w, piece.base)

    def _entry(self, entry: Entry) -> None:
        if entry.opaque:
            raise _Unusual
        if entry.written:
            self._write(entry)
        elif entry.is_view or entry.func in _HIDDEN:
            self._look(entry)
        else:
            args = mapped((entry.args, entry.kwargs), Window, self.value)
            node = self.graph.call_function(entry.func, *args)
            self._bind(entry.outs, node)

    def _bind(self, outs: Any, node: Node) -> None:
        if isinstance(outs, Window):
            if outs.memory.root != outs or outs in self.base:
                raise _Unusual  # an argument, or a part of one
            self._start(outs, node)
            return
        if not isinstance(outs, (tuple, list)):
            raise _Unusual
        node.meta["val"] = type(outs)(
            self._fake(w) if isinstance(w, Window) else w for w in outs
        )
        for i, w in enumerate(outs):
            if isinstance(w, Window):
                item = self.graph.call_function(operator.getitem, (node, i))
                self._bind(w, item)

    def _look(self, entry: Entry) -> None:
        source, outs = entry.args[0], entry.outs
        if not isinstance(source, Window) or entry.kwargs:
            raise _Unusual
        if source not in self.base and source.memory not in self.own:
            return  # only led to inputs
        if source not in self.base:
            self._late(source)
        func = _HIDDEN.get(entry.func, entry.func)
        view = _View(source, func, entry.args[1:])
        if not isinstance(outs, Window):
            view.outs = list(outs)
        for w in view.outs or [outs]:
            if w not in self.base:
                self._view(w, view)

    def _write(self, entry: Entry) -> None:
        func = forms.functional(entry.func)
        count = len(entry.written)
        if func is None or len(set(entry.written)) != count:
            raise _Unusual
        names = {a.name for a in entry.func._schema.arguments if a.is_out}
        if len(entry.args) > len(func._schema.arguments):
            raise _Unusual  # out= by position
        kwargs = {k: v for k, v in entry.kwargs.items() if k not in names}
        targets = entry.written
        found = self._results(func, entry.args, kwargs)
        if [_kind(w) for w in targets] != found:
            raise _Unusual
        args = mapped((entry.args, kwargs), Window, self.value)
        node = self.graph.call_function(func, *args)
        if count == 1 and not _gives_list(func):
            self._change(targets[0], node)
            return
        node.meta["val"] = tuple(self._fake(w) for w in targets)
        items = [
            self.graph.call_function(operator.getitem, (node, i))
            for i in range(count)
        ]
        for w, item in zip(targets, items, strict=True):
            item.meta["val"] = self._fake(w)
            self._change(w, item)

    def _results(self, func: Any, args: Any, kwargs: Any) -> list[Any]:
        """Kinds of what the functional form gives."""
        fargs, fkwargs = mapped((args, kwargs), Window, self._fake)
        with self.mode:
            found = func(*fargs, **fkwargs)
        return [(tuple(t.shape), t.dtype) for t in tensors_of(found)]

    def _change(self, w: Window, node: Node) -> None:
        """`node` is the new value of w, and so of the memory around it."""
        if w not in self.base:
            self._late(w)
        base = self.base[w]
        if not base.dense():
            raise _Unusual
        node.meta["val"] = self._fake(w)
        known = [(w, node)] if w.dense() else []
        while w != base:
            view = self.views[w]
            undo = _UNDO.get(view.func)
            if undo is None:
                raise _Unusual
            old = self.value(view.source)
            w = view.source
            node = undo(self.graph, old, node, w, view.rest)
            node.meta["val"] = self._fake(w)
            if w.dense():
                known.append((w, node))
        self.version[base] += 1
        for w, node in known:
            self._set(w, node)


def _gives_list(func: Any) -> bool:
    return isinstance(func._schema.returns[0].type, torch.ListType)


def _kind(w: Window) -> Any:
    return w.size, w.dtype


def graph_of(
    log: list[Entry], inputs: list[Piece], outs: list[Window]
) -> GraphModule | None:
    """The graph of a log: placeholders for the inputs and then for the outs,
    whose results are the values of the outs and of the inputs it changes."""
    try:
        made = _Builder(log, inputs)
        values = [made.value(w) for w in outs]
    except _Unusual:
        return None
    changed = [made.value(p.base) for p in inputs if p.written]
    return _finish(made, outs, [*values, *changed])


def _finish(
    made: _Builder, outs: list[Window], values: list[Node]
) -> GraphModule:
    graph = made.graph
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    first = next(n for n in graph.nodes if n not in set(holders))
    with graph.inserting_before(first):
        for i, w in enumerate(outs):
            node = graph.placeholder(f"arg{len(holders) + i}_1")
            node.meta["val"] = _alone(made.mode, w)
    graph.output(values)
    return compat.graph_module(graph)


def _alone(mode: Any, w: Window) -> torch.Tensor:
    with mode:
        return torch.empty_strided(w.size, w.stride, dtype=w.dtype)
