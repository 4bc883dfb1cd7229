"""A capture's log becomes one program.

Of the log comes one FX graph without views of its own results and without
mutation: written down where the log is plain (direct.py), else traced on fake
tensors under functionalisation. What the graph has to leave in memory,
tensors of before that were changed and results that somebody can see, comes
last, as copy_ into its inputs; the engine computes most of these in place. A
replay is then one call with always the same inputs.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import compat
from ..backend import compile_graph
from ..capture import CaptureOptions
from ..config import CompilerConfig
from .direct import graph_of
from .memory import Memory, Window, to_cpu
from .pieces import Piece, created, pieces
from .record import Entry, Recorder, fresh_windows
from .sizes import mapped

aten = torch.ops.aten
Value = torch.Tensor


# ---- operators called as they are ----

_calls: weakref.WeakValueDictionary[int, Opaque] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class Opaque:
    """One call of torchair::captured: what it does and what comes out."""

    def __init__(
        self,
        call: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        outs: Sequence[Window],
    ) -> None:
        self.call, self.outs = call, list(outs)
        self.number = next(_numbers)
        _calls[self.number] = self


_library = torch.library.Library("torchair", "FRAGMENT")
_library.define("captured(Tensor[] inputs, int number) -> Tensor[]")


def _captured(inputs: list[torch.Tensor], number: int) -> list[torch.Tensor]:
    return _calls[number].call(inputs)


def _captured_sizes(
    inputs: list[torch.Tensor], number: int
) -> list[torch.Tensor]:
    return [
        torch.empty_strided(w.size, w.stride, dtype=w.dtype, device="cpu")
        for w in _calls[number].outs
    ]


_library.impl("captured", _captured, "CPU")
_library.impl("captured", _captured, "BackendSelect")
torch.library.register_fake("torchair::captured", _captured_sizes)
captured = torch.ops.torchair.captured.default
torch.fx.node.has_side_effect(captured)


def _laid_out(t: torch.Tensor, w: Window, copy: bool) -> torch.Tensor:
    """t with the strides it was captured with: a value may have others."""
    if t.stride() == w.stride:
        return t.clone() if copy else t
    made = torch.empty_strided(w.size, w.stride, dtype=t.dtype)
    return made.copy_(t)


def _call_entry(entry: Entry) -> Opaque:
    """The entry's operator on tensors of the engine. Arguments are looked up
    at each call: NPUGraph.update changes them."""
    windows = entry.windows()
    written = [windows.index(w) for w in entry.written]
    fresh = fresh_windows(entry)

    def call(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        tensors = [
            _laid_out(t, w, i in written)
            for i, (t, w) in enumerate(zip(inputs, windows, strict=True))
        ]
        for i, t in entry.rebound.items():
            tensors[i] = t
        given = iter(tensors)
        args, kwargs = mapped(
            (entry.args, entry.kwargs), Window, lambda _: next(given)
        )
        found = entry.func(*args, **kwargs)
        known = {id(t) for t in tensors}
        leaves = [
            t
            for t in torch.utils._pytree.tree_leaves(found)
            if isinstance(t, torch.Tensor) and id(t) not in known
        ]
        return leaves[: len(fresh)] + [tensors[i] for i in written]

    return Opaque(call, fresh + entry.written)


# ---- values ----


def _piece_of(base: Value, at: Window, w: Window) -> Value:
    """Window w as part of the value of window `at`."""
    if w == at:
        return base
    if at.dtype != w.dtype:
        raise RuntimeError(
            f"a tensor of {w.dtype} on memory that holds {at.dtype}"
        )
    found = base.as_strided(w.size, w.stride, w.offset - at.offset)
    if w.conj:
        found = torch._conj(found)
    return torch._neg_view(found) if w.neg else found


def _order(strides: Sequence[int]) -> list[int]:
    """Dimensions, outermost first."""
    return sorted(range(len(strides)), key=lambda i: -strides[i])


def _same_layout(w: Window, strides: Sequence[int]) -> bool:
    """Does what is a view of the one exist of the other? A value without the
    gaps of its memory will do."""
    dense = [0] * len(strides)
    step = 1
    for i in reversed(_order(w.stride)):
        dense[i] = step
        step *= w.size[i]
    return step == 0 or all(
        n == 1 or found in (a, b)
        for n, found, a, b in zip(w.size, strides, w.stride, dense, strict=True)
    )


# ---- the trace ----


class Run:
    """A log on values, fake or real: from those of the inputs to those of
    `outs` and of the inputs that it changes."""

    def __init__(
        self, log: list[Entry], inputs: list[Piece], outs: list[Window]
    ) -> None:
        self.log, self.inputs, self.outs = log, inputs, outs
        self.own = set(created(log))
        self.bases: dict[Memory, list[Window]] = {
            m: [m.root] for m in self.own if m.root is not None
        }
        for piece in inputs:
            self.bases.setdefault(piece.base.memory, []).append(piece.base)
        self.opaque: list[Opaque] = []
        self.values: dict[Window, Value] = {}

    def __call__(self, *given: Value) -> list[Value]:
        for piece, value in zip(self.inputs, given, strict=False):
            self.values[piece.base] = value
            for w in piece.windows:
                self.values[w] = _piece_of(value, piece.base, w)
        for entry in self.log:
            self._entry(entry)
        changed = [p.base for p in self.inputs if p.written]
        found = [self._value(w) for w in [*self.outs, *changed]]
        self.values.clear()
        return found

    def _value(self, w: Window) -> Value:
        found = self.values.get(w)
        if found is None:
            root = w.memory.root
            if root is None or root == w:
                raise RuntimeError("a tensor the capture has not seen made")
            found = _piece_of(self._value(root), root, w)
            self.values[w] = found
        return found

    def _entry(self, entry: Entry) -> None:
        if entry.opaque:
            self._call(entry)
            return
        if entry.is_view and not self._wanted(entry):
            return
        args, kwargs = mapped((entry.args, entry.kwargs), Window, self._value)
        self._bind(entry.outs, entry.func(*args, **kwargs))
        for memory in {w.memory for w in entry.written}:
            for base in self.bases.get(memory, ()):
                self._restore(base)

    def _restore(self, base: Window) -> None:
        """A write may leave a value with other strides than its memory has
        (functionalisation gives it those of the result), and what is a view
        of the one need not be one of the other."""
        value = self._value(base)
        found = compat.functional_strides(value)
        if found is not None and not _same_layout(base, found):
            inside = value.permute(_order(base.stride))
            layout = torch.contiguous_format
            aten.clone.out(inside, memory_format=layout, out=inside)

    def _wanted(self, entry: Entry) -> bool:
        """Not a view that is an input itself, or only led to inputs."""
        source = entry.windows()[0]
        return source.memory in self.own or source in self.values

    def _bind(self, outs: Any, values: Any) -> None:
        if isinstance(outs, Window):
            self.values.setdefault(outs, values)
        elif isinstance(outs, (tuple, list)):
            for w, v in zip(outs, values, strict=True):
                self._bind(w, v)

    def _call(self, entry: Entry) -> None:
        made = entry.call or _call_entry(entry)
        assert isinstance(made, Opaque)
        self.opaque.append(made)
        inputs = [self._value(w) for w in entry.windows()]
        results = captured(inputs, made.number)
        fresh = fresh_windows(entry)
        for w, v in zip(fresh, results, strict=False):
            self.values[w] = v
        for w, v in zip(entry.written, results[len(fresh) :], strict=True):
            self._value(w).copy_(v)


_tracing = threading.Lock()  # torch traces for one thread at a time


def _epilogue(gm: torch.fx.GraphModule, targets: list[int]) -> None:
    """Result i goes into placeholder targets[i]."""
    graph = gm.graph
    holders = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(iter(reversed(graph.nodes)))
    for value, index in zip(output.args[0], targets, strict=True):
        if value is holders[index]:
            continue
        with graph.inserting_before(output):
            node = graph.call_function(
                aten.copy_.default, (holders[index], value)
            )
        node.meta["val"] = holders[index].meta["val"]
    output.args = ((),)
    output.meta["val"] = ()
    gm.recompile()


class Captured:
    """A log's program and the tensors it is called with at each replay. The
    log may change: `compile` once more."""

    def __init__(self, recorder: Recorder, config: CompilerConfig) -> None:
        self.log, self.config = recorder.log, config
        self.options = CaptureOptions(pool=recorder.pool.handle)
        targets = list(recorder.live())
        self.outs = [w for w, _ in targets]
        self.results = [t for _, t in targets]
        self.compile(pieces(self.log, recorder.refuse))

    def compile(self, found: list[Piece] | None = None) -> None:
        inputs = pieces(self.log, _refuse) if found is None else found
        with torch.inference_mode(False):  # tensors anybody may write to
            given = [p.base.on(_storage(p.base)) for p in inputs]
            tensors = [to_cpu(t) for t in given + self.results]
            self._compile(inputs, tensors)

    def _compile(
        self, inputs: list[Piece], tensors: list[torch.Tensor]
    ) -> None:
        opaque: list[Opaque] = []
        gm = graph_of(self.log, inputs, self.outs)
        if gm is None:
            run = Run(self.log, inputs, self.outs)
            gm, opaque = _traced(run, tensors), run.opaque
        changed = [i for i, p in enumerate(inputs) if p.written]
        _epilogue(gm, [*range(len(inputs), len(tensors)), *changed])
        program = compile_graph(
            gm, tensors, self.config, "capture", self.options
        )
        self.program: Callable[..., Any] = program
        self.inputs, self.opaque, self.graph = tensors, opaque, gm

    def __call__(self) -> None:
        self.program(list(self.inputs))


def _refuse(message: str) -> NoReturn:
    raise RuntimeError(f"NPUGraph update: {message}")


def build(recorder: Recorder, config: CompilerConfig) -> Captured | None:
    """The program of a log; None where there is nothing to do."""
    return Captured(recorder, config) if recorder.log else None


def _traced(run: Run, tensors: list[torch.Tensor]) -> torch.fx.GraphModule:
    with _tracing, FakeTensorMode():
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            for t in tensors
        ]
        return compat.trace_functional(run, fakes)


def _storage(w: Window) -> torch.UntypedStorage:
    assert w.memory.kept is not None
    return w.memory.kept
