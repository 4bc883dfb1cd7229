"""Inductor's compiled graphs inside a capture.

Their code computes without the dispatcher, so there is nothing to record but
the call: it becomes one operator, which torch calls at each replay. What its
results look like is found out by a call on zeros.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import compat
from . import reads
from .record import Entry, Recorder


class _Graph:
    """Stands where an operator does: a compiled graph, with its inputs as
    arguments."""

    is_view = False

    def __init__(self, plain: Any, graph: Any) -> None:
        self.plain, self.graph = plain, graph

    def __call__(self, *inputs: Any) -> Any:
        return self.plain(self.graph, list(inputs))

    def __str__(self) -> str:
        return "inductor"


def _zeros(t: torch.Tensor) -> torch.Tensor:
    """Like t, and an index within any bounds."""
    return torch.empty_strided(
        t.shape, t.stride(), dtype=t.dtype, device=t.device
    ).zero_()


def _results(
    mode: Recorder, graph: _Graph, given: tuple[Any, ...]
) -> list[Any]:
    trial = {id(t): _zeros(t) for t in given if isinstance(t, torch.Tensor)}
    state = torch.default_generator.get_state()
    made = graph(*(trial.get(id(t), t) for t in given))
    torch.default_generator.set_state(state)
    pairs = [(t, trial[id(t)]) for t in given if isinstance(t, torch.Tensor)]
    return [
        mode.result(t, pairs) if isinstance(t, torch.Tensor) else t
        for t in made
    ]


def _record(mode: Recorder, graph: _Graph, inputs: list[Any]) -> list[Any]:
    stream = mode.stream()
    if stream is None:
        return list(graph(*inputs))
    given = tuple(inputs)
    inputs.clear()
    with _disable_current_modes():
        outs = _results(mode, graph, given)
    entry = Entry(
        graph, mode.windows(given), {}, mode.windows(outs), stream, opaque=True
    )
    entry.written = [
        entry.args[i] for i in sorted(graph.graph.mutated_input_idxs)
    ]
    mode.add(entry)
    return outs


def _patch(kind: Any) -> None:
    plain = kind.__call__

    @functools.wraps(plain)
    def call(self: Any, inputs: Any) -> Any:
        mode = reads.recorder()
        if mode is None:
            return plain(self, inputs)
        return _record(mode, _Graph(plain, self), inputs)

    call._torchair_plain = plain  # type: ignore[attr-defined]
    kind.__call__ = call


def watch() -> None:
    """Once Inductor is loaded, its graphs are looked at when they are called;
    to be called when a capture begins and when something was compiled."""
    found = sys.modules.get("torch._inductor.output_code")
    kind = getattr(found, "CompiledFxGraph", None)
    if kind is not None and not hasattr(kind.__call__, "_torchair_plain"):
        _patch(kind)


compat.on_compile_end(watch)
