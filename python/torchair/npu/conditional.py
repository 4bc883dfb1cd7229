"""Conditional nodes: captured operators that a replay runs if a tensor says
so. They are called one by one, by torch, between the two parts of the
program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import compat
from .memory import Window
from .pieces import Piece, created, pieces
from .record import Entry, Recorder
from .trace import Opaque, Run

if TYPE_CHECKING:
    from .graphs import NPUGraph


class _Open:
    """A conditional node under way: the log around it."""

    def __init__(self, outer: list[Entry], pred: Window) -> None:
        self.outer, self.pred = outer, pred


def _recorder(graph: NPUGraph, what: str) -> Recorder:
    if graph._recorder is None:
        raise RuntimeError(f"{what} outside of the graph's capture")
    return graph._recorder


def begin(graph: NPUGraph, pred: torch.Tensor) -> None:
    recorder = _recorder(graph, "begin_capture_to_if_node()")
    if pred.dtype != torch.bool or pred.numel() != 1:
        raise RuntimeError(
            "the condition must be a bool tensor of one element, got "
            f"{pred.dtype}{list(pred.shape)}"
        )
    recorder.open.append(_Open(recorder.log, recorder.window(pred)))
    recorder.log = []


def end(graph: NPUGraph) -> None:
    recorder = _recorder(graph, "end_capture_to_conditional_node()")
    if not recorder.open:
        raise RuntimeError(
            "end_capture_to_conditional_node() without "
            "begin_capture_to_if_node()"
        )
    body = recorder.log
    node: _Open = recorder.open.pop()
    recorder.log = node.outer
    if body:
        recorder.add(_entry(recorder, body, node.pred))


def _entry(recorder: Recorder, body: list[Entry], pred: Window) -> Entry:
    """The body as one operator: from the condition and what the body reads,
    to what it makes and what it changes."""
    inputs = pieces(body, recorder.refuse)
    made = [m for m in created(body) if not m.ref.expired()]
    outs = [m.root for m in made if m.root is not None]
    entry = Entry(
        _IfNode(),
        (pred, [p.base for p in inputs]),
        {},
        outs,
        body[0].stream,
    )
    entry.written = [p.base for p in inputs if p.written]
    entry.opaque = True
    run = Run(body, inputs, outs)
    entry.call = Opaque(_body(run, inputs, outs), outs + entry.written)
    return entry


class _IfNode:
    """Stands where an operator does."""

    is_view = False

    def __str__(self) -> str:
        return "if"


def _body(run: Run, inputs: list[Piece], outs: list[Window]) -> Any:
    def call(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        given = [
            t.clone() if p.written else t
            for p, t in zip(inputs, tensors[1:], strict=True)
        ]
        if bool(tensors[0]):
            found = run(*given)
            run.opaque.clear()  # of this call
            return found
        return [
            torch.zeros(()).new_zeros(w.size, dtype=w.dtype) for w in outs
        ] + [g for g, p in zip(given, inputs, strict=True) if p.written]

    return call


def _cond(
    mode: Recorder, pred: Any, true_fn: Any, false_fn: Any, operands: Any
) -> Any:
    """torch.cond inside a capture: two nodes, one for each branch, that leave
    their results at the same place."""
    if not isinstance(pred, torch.Tensor):
        return (true_fn if pred else false_fn)(*operands)
    graph = mode.owner()
    with mode:
        begin(graph, pred)
        results, spec = tree_flatten(true_fn(*operands))
        results = [_own(x) for x in results]
        end(graph)
        begin(graph, torch.logical_not(pred))
        others, other_spec = tree_flatten(false_fn(*operands))
        if spec != other_spec:
            mode.refuse("the branches of torch.cond give different structures")
        for x, y in zip(results, others, strict=True):
            _place(mode, x, y)
        end(graph)
    return tree_unflatten(results, spec)


def _own(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _place(mode: Recorder, x: Any, y: Any) -> None:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        if x is not y and x != y:
            mode.refuse("the branches of torch.cond give different values")
        return
    if x.shape != y.shape or x.dtype != y.dtype:
        mode.refuse(
            "the branches of torch.cond give different tensors: "
            f"{x.dtype}{list(x.shape)} and {y.dtype}{list(y.shape)}"
        )
    x.copy_(y)


torch.ops.higher_order.cond.py_impl(Recorder)(compat.untraced(_cond))
