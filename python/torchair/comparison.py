"""torchair.compare: node by node, is what was compiled as exact as eager?

Every graph of the model runs three times on the same inputs: by torch, by
torch in float64, and as the engine's program, which is watched. Fused regions
stay fused; what lives in their registers is written to memory as well, so that
it can be looked at, and `same_bits` says whether the program that nobody looks
at gives the same results.
"""

from __future__ import annotations

import contextlib
import copy
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from . import backend, checks, compiled, page
from .config import CompilerConfig, settings
from .origin import location_of
from .report import differentiate, report_of
from .schema import draws
from .steps import Recorder

_WIDE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}


@dataclass
class Row:
    """A tensor of the FX graph. Errors are norms of the difference to float64,
    divided by the norm of float64's value; for integers and booleans the share
    of elements that differ from eager's. None: not known, see `note`."""

    graph: str
    node: str
    target: str
    at: str
    dtype: str
    shape: tuple[int, ...]
    step: str = ""  # what computed it: "region add+relu", "call mm"
    eager_error: float | None = None
    compiled_error: float | None = None
    eager_max: float | None = None  # largest absolute difference
    compiled_max: float | None = None
    worse: bool = False
    note: str = ""


@dataclass
class Comparison:
    """print() it, or take as_dict(), or html(path)."""

    rows: list[Row] = field(default_factory=list)
    same_bits: bool | None = None  # as the program that is not watched
    fallbacks: list[str] = field(default_factory=list)
    factor: float = 2.0
    pages: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def first_worse(self) -> Row | None:
        """The first node that is worse than eager, in the order of the run."""
        return next((r for r in self.rows if r.worse), None)

    def as_dict(self) -> dict[str, Any]:
        first = self.first_worse
        return {
            "first_worse": None if first is None else vars(first),
            "same_bits": self.same_bits,
            "fallbacks": self.fallbacks,
            "rows": [vars(r) for r in self.rows],
        }

    def __str__(self) -> str:
        return "\n".join([*self._head(), "", *_table(self.rows)])

    def html(self, path: str) -> str:
        """Writes a page that needs no network, with the graphs beside the
        errors. Gives the path."""
        notes = list(self._head())
        return page.write(path, "torchair.compare", self.pages, notes)

    save_html = html

    def _head(self) -> Iterator[str]:
        seen = [r for r in self.rows if r.compiled_error is not None]
        yield f"{len(self.rows)} values, {len(seen)} compared with float64"
        yield from (f"torch ran {text}" for text in self.fallbacks)
        if self.same_bits is False:
            yield (
                "the program rounds differently when it is watched: fused "
                "regions keep more digits than they write"
            )
        first = self.first_worse
        if first is None:
            yield f"no value is more than {self.factor} x as far off as eager's"
        else:
            yield (
                f"first worse than eager: {first.node} ({first.target}) at "
                f"{first.at}, {first.dtype}{list(first.shape)}, computed by "
                f"{first.step}: error {_figure(first.compiled_error)}, eager's "
                f"{_figure(first.eager_error)}"
            )


def _figure(x: float | None) -> str:
    return "-" if x is None else f"{x:.2e}"


def _table(rows: list[Row]) -> Iterator[str]:
    head = ("node", "at", "type", "eager", "compiled", "ratio", "step")
    lines = [head]
    for r in rows:
        mark = "! " if r.worse else ""
        lines.append(
            (
                mark + r.node,
                r.at,
                f"{r.dtype}{list(r.shape)}",
                _figure(r.eager_error),
                _figure(r.compiled_error),
                _ratio(r),
                r.step + (f" ({r.note})" if r.note else ""),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(6)]
    for line in lines:
        cells = [c.ljust(w) for c, w in zip(line, widths, strict=False)]
        yield "  ".join([*cells, line[6]]).rstrip()


def _ratio(row: Row) -> str:
    if row.eager_error is None or row.compiled_error is None:
        return "-"
    if row.compiled_error <= row.eager_error:
        return "<= 1"
    if row.eager_error == 0:
        return "inf"
    return f"{row.compiled_error / row.eager_error:.2f}"


# ---- one graph ----


class _Graph:
    """Takes the place of a program: runs it and compares its values."""

    def __init__(
        self, out: Comparison, record: Any, gm: GraphModule, program: Any
    ) -> None:
        self.out = out
        self.name = record.name
        self.record = record
        self.gm = gm
        self.program = program
        self.seen: dict[str, tuple[str, torch.Tensor]] = {}
        self.recorder = Recorder()

    def __call__(self, *args: Any) -> Any:
        inputs = [_copy(a) for a in args]
        state = _random_states()
        self.seen.clear()
        self.program.watch = self._see
        try:
            result = self.program(*args)
        finally:
            self.program.watch = None
        after = _random_states()
        _set_random_states(state)
        with torch.no_grad():
            rows = list(self._rows(inputs))
        self.out.rows += rows
        self.out.pages.append(self._page(rows))
        _set_random_states(after)
        return result

    def _page(self, rows: list[Row]) -> dict[str, Any]:
        shown = page.graph(
            self.record, report_of(self.record), self.recorder.steps
        )
        shown["compare"] = [vars(r) for r in rows]
        return shown

    def _see(self, *step: Any) -> None:
        self.recorder(*step)
        _index, kind, label, done, _once, _seconds, values = step
        if done:
            for value in values:
                for tag in value[3]:
                    self.seen[tag] = (f"{kind} {label}", value[4].clone())

    def _rows(self, inputs: list[Any]) -> Iterator[Row]:
        run = _Twice(self.gm, inputs)
        for node, eager, exact in run.values():
            if isinstance(eager, torch.Tensor):
                yield self._row(node, eager, exact, run.notes.get(node, ""))

    def _row(
        self, node: Node, eager: torch.Tensor, exact: torch.Tensor, note: str
    ) -> Row:
        row = Row(
            self.name,
            node.name,
            str(node.target),
            location_of(node) or "",
            str(eager.dtype).removeprefix("torch."),
            tuple(eager.shape),
            note=note,
        )
        found = self.seen.get(node.name)
        if found is None:
            row.note = note or "merged with other nodes: not computed"
            return row
        row.step, mine = found
        if mine.shape != eager.shape:
            row.note = f"the engine has it as {list(mine.shape)}"
            return row
        if mine.dtype != eager.dtype:
            row.note = f"the engine holds it as {mine.dtype}"
        row.eager_error, row.eager_max = _error(eager, exact)
        row.compiled_error, row.compiled_max = _error(mine, exact)
        floor = max(row.eager_error, _roundoff(eager.dtype))
        row.worse = not row.compiled_error <= self.out.factor * floor
        return row


def _roundoff(dtype: torch.dtype) -> float:
    plain = dtype.is_floating_point or dtype.is_complex
    return torch.finfo(dtype).eps / 2 if plain else 0.0


def _error(value: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """(relative error, largest absolute difference)"""
    if value.numel() == 0:
        return 0.0, 0.0
    if not (exact.is_floating_point() or exact.is_complex()):
        differs = value != exact
        return differs.double().mean().item(), float(differs.any())
    value = value.to(exact.dtype)
    same = (value == exact) | (value.isnan() & exact.isnan())
    away = torch.where(same, 0, value - exact).abs()
    norm = torch.where(exact.isfinite(), exact, 0).norm().item()
    error = away.norm().item()
    if math.isnan(error):
        return math.inf, math.inf
    return (error / norm if norm > 0 else error), away.max().item()


def _random_states() -> list[torch.Tensor]:
    """Of the default generators: the CPU's, then each GPU's in use."""
    gpus = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = torch.cuda.get_rng_state_all() if gpus else []
    return [torch.get_rng_state(), *states]


def _set_random_states(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(states[1:])


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


class _Twice:
    """Runs a graph by torch, each node in its own dtypes and in float64.

    Integers and booleans, which stand for decisions, and random numbers are
    eager's in both; so is what float64 has no kernel for.
    """

    def __init__(self, gm: GraphModule, inputs: list[Any]) -> None:
        self.gm = gm
        self.inputs = iter(inputs)
        self.plain: dict[Node, Any] = {}
        self.wide: dict[Node, Any] = {}
        self.notes: dict[Node, str] = {}
        self.last: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(gm.graph.nodes):
            fresh = [n for n in node.all_input_nodes if n not in seen]
            seen.update(fresh)
            self.last[node] = fresh

    def values(self) -> Iterator[tuple[Node, Any, Any]]:
        for node in self.gm.graph.nodes:
            if node.op == "output":
                return
            self._run(node)
            if node.op == "call_function":
                yield node, self.plain[node], self.wide[node]
            for done in self.last[node]:
                del self.plain[done], self.wide[done]

    def _run(self, node: Node) -> None:
        if node.op == "placeholder":
            value = next(self.inputs)
            self.plain[node], self.wide[node] = value, _widen(value)
            return
        if node.op == "get_attr":
            value = self.gm
            for name in str(node.target).split("."):
                value = getattr(value, name)
            self.plain[node], self.wide[node] = _copy(value), _widen(value)
            return
        call: Any = node.target
        args, kwargs = _load(node, self.plain)
        value = call(*args, **kwargs)
        self.plain[node] = value
        self.wide[node] = self._wide(node, call, value)

    def _wide(self, node: Node, call: Any, value: Any) -> Any:
        if call is operator.getitem and node.args[0] in self.notes:
            self.notes[node] = self.notes[node.args[0]]  # type: ignore
        if draws(node):
            self.notes[node] = "random: eager's values are taken for exact"
            return _widen(value)
        args, kwargs = tree_map(_wide_dtype, _load(node, self.wide))
        try:
            exact = call(*args, **kwargs)
        except (RuntimeError, TypeError) as why:
            self.notes[node] = f"not in float64: {str(why).splitlines()[0]}"
            return _widen(value)
        return tree_map(_pick, exact, value)


def _load(node: Node, env: dict[Node, Any]) -> Any:
    return torch.fx.node.map_arg((node.args, dict(node.kwargs)), env.get)


def _widen(value: Any) -> Any:
    return tree_map(
        lambda x: (
            x.to(_WIDE.get(x.dtype, x.dtype), copy=True)
            if isinstance(x, torch.Tensor)
            else x
        ),
        value,
    )


def _wide_dtype(value: Any) -> Any:
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _pick(exact: Any, eager: Any) -> Any:
    """The exact value, or eager's where it stands for a decision."""
    if not isinstance(eager, torch.Tensor):
        return eager
    if not (eager.is_floating_point() or eager.is_complex()):
        return eager
    return exact if exact.shape == eager.shape else _widen(eager)


# ---- the model ----


def compare(
    model: Any,
    *args: Any,
    compiler_config: CompilerConfig | None = None,
    factor: float = 2.0,
    **kwargs: Any,
) -> Comparison:
    """Runs the model eagerly, in float64 and compiled, and compares every
    value of its graphs; `first_worse` of the result is the first node whose
    error is more than `factor` times eager's (or than one rounding).

    model: a module or function, called as model(*args, **kwargs). Where a
    result needs a gradient a weighted sum of it is differentiated, so that the
    graphs of the backward pass are compared too; no .grad changes. Tensors
    among the arguments and buffers of the model are as they were afterwards.
    Needs memory for all values of a graph at once. Raises what the model
    raises.
    """
    checks.calls(model, "compare: model")
    out = Comparison(factor=factor)
    config = settings(compiler_config)
    plain = _run(model, args, kwargs, config, None)
    with _records() as found:
        watched = _run(model, args, kwargs, config, out)
    out.fallbacks = [
        f"graph {r.name}: {r.fallback}" for r in found if r.fallback
    ]
    out.same_bits = len(plain) == len(watched) and all(
        map(_same_bits, plain, watched)
    )
    return out


@contextlib.contextmanager
def _records() -> Iterator[list[compiled.Record]]:
    found: list[compiled.Record] = []
    with backend.collect(found, []):
        yield found


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(
        a.nan_to_num() if a.is_floating_point() else a,
        b.nan_to_num() if b.is_floating_point() else b,
    )


def _run(
    model: Any,
    args: Any,
    kwargs: Any,
    config: CompilerConfig,
    out: Comparison | None,
) -> list[torch.Tensor]:
    """Results and gradients; out: where what a watched run shows goes."""
    compile_model: Any = torch.compile
    torch._dynamo.reset()
    state = _random_states()
    args, kwargs = copy.deepcopy((_detached(args), _detached(kwargs)))
    run = compile_model(
        model, backend=backend.get_npu_backend(compiler_config=config)
    )
    wrap = None if out is None else _wrapper(out)
    with _kept_buffers(model), backend.wrapping(wrap):
        result = run(*args, **kwargs)
        grads = differentiate(result)
    _set_random_states(state)
    torch._dynamo.reset()
    found = [*tree_leaves(result), *grads]
    return [x.detach() for x in found if isinstance(x, torch.Tensor)]


def _wrapper(out: Comparison) -> Any:
    def wrap(record: Any, gm: GraphModule, program: Any) -> Any:
        return _Graph(out, record, gm, program)

    return wrap


def _detached(values: Any) -> Any:
    """Leaves, which can be copied; what needs a gradient still does."""
    return tree_map(
        lambda x: (
            x.detach().requires_grad_(x.requires_grad)
            if isinstance(x, torch.Tensor)
            else x
        ),
        values,
    )


@contextlib.contextmanager
def _kept_buffers(model: Any) -> Iterator[None]:
    buffers = (
        list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    )
    before = [b.clone() for b in buffers]
    yield
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)
