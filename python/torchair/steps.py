"""What a watched run shows of its steps: time, memory traffic, arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Value:
    """A tensor that a step reads or gives."""

    name: str  # in the engine's graph
    op: str  # "" for an input
    at: str
    tags: tuple[str, ...]  # FX nodes
    dtype: str
    shape: tuple[int, ...]
    bytes: int  # without the gaps between strides


@dataclass
class Step:
    """bytes: of what it reads and gives, each once; flops: multiplications
    and additions of contractions, one for each element that anything else
    gives."""

    index: int
    kind: str  # region, call, host, view
    label: str
    us: float
    reads: list[Value] = field(default_factory=list)
    gives: list[Value] = field(default_factory=list)
    once: bool = False  # a run that is not watched has it from the first one

    @property
    def at(self) -> str:
        return next((v.at for v in self.gives if v.at), "")

    @property
    def bytes(self) -> int:
        if self.kind == "view":
            return 0
        given = sum(v.bytes for v in self.gives)
        read = [v.bytes for v in self.reads]
        if read and self.label.split(".")[0] in _LOOKUPS:
            read[0] = min(read[0], given)  # a few rows of a table
        return given + sum(read)

    @property
    def flops(self) -> int:
        if self.kind in ("view", "host"):
            return 0
        return sum(_flops(v, self) for v in self.gives)

    def _peak(self, limits: dict[str, float]) -> float:
        """Flops a second that the step could have."""
        pairs = self.kind == "call" and self.reads
        if pairs and self.reads[0].dtype == "bf16" and limits["pair_flops"]:
            return limits["pair_flops"]
        return limits["flops"]

    def as_dict(self, limits: dict[str, float] | None = None) -> dict[str, Any]:
        """limits: of `_native.limits`. share: the larger of the step's shares
        of the two, that of `bound`."""
        rate = 1e-3 / self.us if self.us else 0.0
        share, bound = 0.0, ""
        if limits is not None:
            share, bound = max(
                (self.bytes * rate * 1e9 / limits["read"], "memory"),
                (self.flops * rate * 1e9 / self._peak(limits), "flops"),
            )
        return {
            "share": round(share, 4),
            "bound": bound,
            "index": self.index,
            "kind": self.kind,
            "label": self.label,
            "at": self.at,
            "us": round(self.us, 2),
            "once": self.once,
            "bytes": self.bytes,
            "flops": self.flops,
            "gb_s": round(self.bytes * rate, 2),
            "gflop_s": round(self.flops * rate, 2),
        }


_LOOKUPS = {"embedding", "index", "index_select", "gather", "index_copy"}
_PRODUCTS = {
    "mm": 0,
    "bmm": 0,
    "addmm": 1,
    "baddbmm": 1,
    "linear": 0,
    "quantised_mm": 0,
    "_grouped_mm": 0,
}


def _flops(value: Value, step: Step) -> int:
    """Of one result."""
    op = value.op.split(".")[0].rpartition("::")[2]
    count = math.prod(value.shape)
    shapes = [v.shape for v in step.reads]
    if op in _PRODUCTS and len(shapes) > _PRODUCTS[op]:
        inner = shapes[_PRODUCTS[op]]
        return 2 * count * (inner[-1] if inner else 1)
    if "convolution" in op and len(shapes) > 1 and shapes[1]:
        return _of_convolution(op, count, shapes)
    backward = op.endswith("backward")  # five products, keys behind the queries
    keys = shapes[1 + backward] if len(shapes) > 1 + backward else ()
    if "attention" in op and value is step.gives[0] and len(keys) > 1:
        return (10 if backward else 4) * count * keys[-2]
    return count


def _of_convolution(op: str, count: int, shapes: list[tuple[int, ...]]) -> int:
    """(input, weight) -> places; transposed: each number of the input is met by
    a window; weight: (big, small) -> each weight by all places of small."""
    if op == "convolution_weight":
        return 2 * count * math.prod(shapes[1]) // max(shapes[1][1], 1)
    met = shapes[0] if op == "convolution_transposed" else (count,)
    return 2 * math.prod(met) * math.prod(shapes[1][1:])


class _Clock:
    """When steps of a GPU begin and end there: the host only starts them. It
    gets ahead while the GPU waits, so that no step waits for the host."""

    CYCLES = 200_000_000  # some 0.1 s

    def __init__(self) -> None:
        self._marks: list[Any] = []
        torch.cuda._sleep(self.CYCLES)

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def microseconds(self) -> list[float]:
        """Between the first mark and the second one, the third and the fourth,
        and so on."""
        torch.cuda.synchronize()
        pairs = zip(self._marks[::2], self._marks[1::2], strict=True)
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]


class Recorder:
    """Program.watch that keeps the steps of the last run; `finish` when it is
    over."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._reads: list[Value] = []
        self._clock: _Clock | None = None
        self._timed: list[Step] = []  # by the clock

    def __call__(
        self,
        index: int,
        kind: str,
        label: str,
        done: bool,
        once: bool,
        seconds: float,
        values: tuple[Any, ...],
    ) -> None:
        if index == 0 and not done:
            self.steps, self._timed, self._clock = [], [], None
        on_gpu = any(v[4].is_cuda for v in values)
        if on_gpu and not done and self._clock is None:
            self._clock = _Clock()
        if done and self._clock is not None:
            self._clock.mark()
        found = [_value(v) for v in values]
        if done:
            if not seconds:  # a view, or computed in its place by others
                kind = "view"
            us, reads = seconds * 1e6, self._reads
            self.steps.append(Step(index, kind, label, us, reads, found, once))
            if self._clock is not None:
                self._timed.append(self.steps[-1])
            return
        self._reads = found
        if self._clock is not None:
            self._clock.mark()

    def finish(self) -> None:
        """Steps of a GPU get the times that they had there."""
        if self._clock is None:
            return
        times = self._clock.microseconds()
        for step, us in zip(self._timed, times, strict=True):
            step.us = us
        self._clock = None


def _value(seen: Any) -> Value:
    name, op, at, tags, tensor = seen
    return Value(
        name,
        op or "",
        at or "",
        tags,
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        tensor.numel() * tensor.element_size(),
    )
