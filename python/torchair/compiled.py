"""What torch.compile returned, and the graphs that its calls have compiled.

Dynamo compiles inside of a call that goes its way (dispatch.py), so whose call
that is says whose graph it is; a backward graph is its forward's owner's.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from . import switches, weights
from .capture import CaptureOptions

Call = Callable[..., Any]
_local = threading.local()


@dataclass
class Record:
    """What became of one graph; `torchair.explain` shows it."""

    name: str
    kind: str  # forward, backward, inference
    nodes: int = 0
    hosts: list[Any] = field(default_factory=list)
    comms: list[Any] = field(default_factory=list)  # collectives
    fallback: str = ""  # why torch runs the whole graph
    import_s: float = 0.0
    compile_s: float = 0.0
    program: weakref.ref[Any] | None = None
    capture: CaptureOptions | None = None  # None: every call is a plain run
    wrapper: str = ""  # why AOTAutograd's is around it; "": it is not
    asked: switches.Asked = field(default_factory=switches.Asked)
    rewrites: dict[str, int] = field(default_factory=dict)  # by FX passes
    weights: weights.Report = field(default_factory=weights.Report)
    number: int = 0  # of the process, from 0
    mode: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # said, by path
    by_torch: int = 0  # calls that torch has run as a whole
    part: int = 0  # of a graph of several GPUs; 0: the first or only one
    parts: list[Record] = field(default_factory=list)  # the others

    @property
    def key(self) -> tuple[int, int]:
        return self.number, self.part

    def part_of(self, part: int) -> Record:
        """The record of another part of the graph, in which nothing is yet."""
        return replace(
            self,
            name=f"{self.name}_part{part}",
            nodes=0,
            hosts=[],
            comms=[],
            fallback="",
            program=None,
            asked=copy.deepcopy(self.asked),
            rewrites={},
            part=part,
            parts=[],
        )

    def alive(self) -> bool:
        """Can it still be called?"""
        return self.program is None or self.program() is not None

    def runs(self) -> int:
        """Calls so far."""
        program = self.program() if self.program else None
        own = 0 if program is None else int(program.stats()["runs"])
        return own + self.by_torch


class Owner:
    """A compiled function. records: of its graphs."""

    def __init__(self) -> None:
        self.records: list[Record] = []


def owning(slow: Call, owner: Owner) -> Call:
    """slow; what is compiled in its calls belongs to the owner."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before = current()
        _local.owner = owner
        try:
            return slow(*args, **kwargs)
        finally:
            _local.owner = before

    return call


def current() -> Owner | None:
    """Whose call this thread is in."""
    return getattr(_local, "owner", None)


def is_compiled(model: Any) -> bool:
    """Has torch.compile made it, or model.compile() changed it?"""
    if isinstance(model, torch.nn.Module):
        kind = torch._dynamo.eval_frame.OptimizedModule
        return isinstance(model, kind) or model._compiled_call_impl is not None
    made = hasattr(model, "_torchdynamo_orig_callable")
    return made and not getattr(model, "_torchdynamo_disable", False)


def function_of(model: Any) -> Any:
    """The function before which the dispatcher stands."""
    if not isinstance(model, torch.nn.Module):
        return model
    if model._compiled_call_impl is not None:
        return model._compiled_call_impl
    return vars(model).get("forward")
