"""torchair.explain: what was compiled, and the reason for what was not."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import backend, compiled, page
from .config import CompilerConfig
from .steps import Recorder


@dataclass
class GraphReport:
    """One graph of the model."""

    name: str
    kind: str
    nodes: int
    fallback: str
    import_ms: float
    compile_ms: float
    hosts: list[dict[str, str]] = field(default_factory=list)
    collectives: list[str] = field(default_factory=list)
    regions: list[dict[str, str]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)  # what they changed
    lists: list[int] = field(default_factory=list)  # steps of each
    notes: list[str] = field(default_factory=list)  # the device's, of them
    steps: list[dict[str, Any]] = field(default_factory=list)  # of one run
    limits: dict[str, float] = field(default_factory=dict)  # _native.limits
    weights: list[dict[str, Any]] = field(default_factory=list)  # weights.*
    weight_lines: list[str] = field(default_factory=list, repr=False)
    wrapper: str = ""  # why calls go through AOTAutograd's; "": they do not
    mode: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # options said
    by_torch: int = 0  # calls that torch has run as a whole


@dataclass
class Explanation:
    """print() it, or take as_dict()."""

    graphs: list[GraphReport] = field(default_factory=list)
    graph_breaks: dict[str, int] = field(default_factory=dict)
    recompiles: list[str] = field(default_factory=list)
    error: str = ""
    pages: list[dict[str, Any]] = field(default_factory=list, repr=False)
    calls: dict[str, int] = field(default_factory=dict)  # of the function

    def html(self, path: str) -> str:
        """Writes a page that needs no network: the graphs, their fused
        regions, memory and times. Gives the path."""
        return page.write(path, "torchair.explain", self.pages, self.notes())

    save_html = html

    def notes(self) -> list[str]:
        """What does not belong to one graph."""
        breaks = [
            f"graph break: {t} ({n}x)" for t, n in self.graph_breaks.items()
        ]
        again = [f"recompile: {text}" for text in self.recompiles]
        return breaks + again + ([self.error] if self.error else [])

    def as_dict(self) -> dict[str, Any]:
        return {
            "graphs": [vars(g) for g in self.graphs],
            "graph_breaks": self.graph_breaks,
            "recompiles": self.recompiles,
            "error": self.error,
            "calls": self.calls,
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{len(self.graphs)} graph(s)"
        if self.error:
            yield f"error: {self.error}"
        for text, count in self.graph_breaks.items():
            yield f"graph break ({count}x): {text}"
        for text in self.recompiles:
            yield f"recompile: {text}"
        if self.calls:
            ways = (f"{way} {n}x" for way, n in self.calls.items())
            yield f"calls of the function: {', '.join(ways)}"
        for g in self.graphs:
            yield from _graph_lines(g)


def _graph_lines(g: GraphReport) -> Iterator[str]:
    yield ""
    yield (
        f"{g.name}: {g.nodes} nodes, imported in {g.import_ms:.1f} ms, "
        f"compiled in {g.compile_ms:.1f} ms"
    )
    said = ", ".join(f"{path}={value}" for path, value in g.settings.items())
    yield f"  mode {g.mode}" + (f", options {said}" if said else "")
    if g.fallback:
        yield f"  torch runs this graph ({g.by_torch}x): {g.fallback}"
        if not g.stats:
            return
    yield from _counted(map(_region_line, g.regions))
    yield from _counted(f"  call {text}" for text in g.calls)
    for text in g.weight_lines:
        yield f"  {text}"
    if g.options:
        yield f"  options: {', '.join(g.options)}"
    if len(g.lists) > 1:
        yield f"  lists of steps: {', '.join(map(str, g.lists))}"
    for text in g.notes:
        yield f"  list {text}"
    yield from _counted(f"  copy {text}" for text in g.copies)
    for text in g.collectives:
        yield f"  collective {text}"
    yield from _step_lines(g.steps, g.limits)
    yield "  calls: " + (
        f"through AOTAutograd: {g.wrapper}"
        if g.wrapper
        else "the program, directly"
    )
    yield from _size_lines(g.stats)
    if g.stats.get("capture"):
        yield f"  captures: {_captures(g.stats['capture'])}"
        yield from _host_lines(g.stats["capture"].get("hosts", ()))
    counted = Counter((h["op"], h["reason"]) for h in g.hosts)
    where = {(h["op"], h["reason"]): h["at"] for h in g.hosts}
    for (op, reason), count in counted.items():
        at = where[op, reason]
        yield (
            f"  HOST {op} ({count}x): {reason}" + (f" (at {at})" if at else "")
        )


def _counted(lines: Iterable[str]) -> Iterator[str]:
    """Layers of a model are alike: each once, its first line with how often."""
    for text, count in Counter(lines).items():
        line, end, more = text.partition("\n")
        yield line + (f" ({count}x)" if count > 1 else "") + end + more


def _region_line(region: dict[str, Any]) -> str:
    limit = region.get("threads")
    limited = f" ({limit} threads)" if limit else ""
    at = f"\n    at {region['at']}" if region["at"] else ""
    return f"  region {region['ops']}{limited}{at}"


_SHOWN = 8  # steps, and of those with one label together


def _step_lines(
    steps: list[dict[str, Any]], limits: dict[str, float]
) -> Iterator[str]:
    """The slowest ones of each run; the others as one line."""
    first = [s for s in steps if s["once"]]
    steps = [s for s in steps if not s["once"]]
    total = sum(s["us"] for s in steps) or 1.0
    slowest = sorted(steps, key=lambda s: -s["us"])[:_SHOWN]
    if first:
        us = sum(s["us"] for s in first)
        yield f"  at the first run only: {len(first)} steps, {us:.0f} us"
    if slowest:
        yield f"  one run, step by step: {total:.0f} us; the slowest steps:"
    for s in slowest:
        share = f"{s['share']:4.0%} of {s['bound']:6}  " if limits else ""
        yield (
            f"    {s['us']:8.1f} us {s['us'] / total:4.0%} "
            f"{s['gb_s']:7.1f} GB/s {s['gflop_s']:8.1f} GFLOP/s  {share}"
            f"{s['kind']} {s['label']}" + (f" at {s['at']}" if s["at"] else "")
        )
    if slowest and limits:
        yield (
            f"    limits of {limits['threads']} threads: "
            f"{limits['read'] / 1e9:.1f} GB/s read, the best 16 MB of four "
            f"passes over 128; {limits['flops'] / 1e9:.1f} GFLOP/s of f32"
            + _pair_limit(limits)
            + ", of multiply-adds in registers. More than 100%: from a cache"
        )
    yield from _label_lines(steps, total)


def _label_lines(steps: list[dict[str, Any]], total: float) -> Iterator[str]:
    """What steps with one label take together, where some have one."""
    times: dict[str, list[float]] = {}
    for s in steps:
        times.setdefault(f"{s['kind']} {s['label']}", []).append(s["us"])
    if len(steps) <= _SHOWN or len(times) == len(steps):
        return
    yield "  together:"
    for name, us in sorted(times.items(), key=lambda t: -sum(t[1]))[:_SHOWN]:
        share = sum(us) / total
        yield f"    {sum(us):8.1f} us {share:4.0%} {name} ({len(us)}x)"


def _pair_limit(limits: dict[str, float]) -> str:
    pairs = limits["pair_flops"]
    return f", {pairs / 1e9:.1f} of bf16" if pairs else ""


_USUAL = ("warmup", "captured", "replayed")


def _host_lines(lines: Sequence[str]) -> Iterator[str]:
    """HOST nodes that a graph of the GPU has, and why it lacks others."""
    for line, count in Counter(lines).items():
        op, _, what = line.partition(": ")
        yield f"  captured {op} ({count}x): {what}"


def _size_lines(stats: dict[str, Any]) -> Iterator[str]:
    if stats.get("specialisations", 0) < 2:
        return
    gone = stats["dropped"]
    yield f"  sizes: {stats['specialisations']} classes are kept" + (
        f", {gone} went, the longest unused first (sizes.limit)" if gone else ""
    )


def _captures(stats: dict[str, Any]) -> str:
    """What the calls were, and why they were not replays; the words are of
    include/air_calls.def."""
    calls = [
        f"{word} {stats[word]}x" + ("" if word in _USUAL else f" ({why})")
        for word, why in _native_calls()
        if stats.get(word)
    ]
    kept = f"{stats['graphs']} kept"
    copied = stats["copied_bytes"]
    return ", ".join(
        [
            kept,
            *calls,
            *([f"{copied} bytes of inputs copied"] if copied else []),
        ]
    )


def _native_limits() -> dict[str, float] | None:
    from ._native import limits

    return limits()


def _native_calls() -> list[tuple[str, str]]:
    from ._native import call_classes

    return call_classes()


def _parse(text: str, report: GraphReport) -> None:
    """The engine's "key: value" lines; details are indented below theirs."""
    last = ""
    for line in text.splitlines():
        key, _, value = line.partition(": ")
        last = last if line.startswith("  ") else key
        if key == "region":
            report.regions.append({"ops": value, "at": "", "note": ""})
        elif line.startswith("  threads: "):
            _limit(report, last, line.strip().partition(": ")[2])
        elif line.startswith("  at:") and report.regions:
            report.regions[-1]["at"] = line[5:].strip()
        elif line.startswith("  ") and report.regions:
            report.regions[-1]["note"] = line.strip()
        elif key == "call":
            report.calls.append(value)
        elif key == "copy":
            report.copies.append(value)
        elif key == "lists":
            report.lists = list(map(int, value.split()))
        elif key == "list":
            report.notes.append(value)


def _limit(report: GraphReport, kind: str, limit: str) -> None:
    """Of the region or call that was read last."""
    if kind == "region":
        report.regions[-1]["threads"] = limit
    elif kind == "call":
        report.calls[-1] += f" ({limit} threads)"


def report_of(record: compiled.Record) -> GraphReport:
    """What is known of a graph without running it again."""
    out = GraphReport(
        record.name,
        record.kind,
        record.nodes,
        record.fallback,
        record.import_s * 1e3,
        record.compile_s * 1e3,
        [
            {"op": h.op, "reason": h.reason, "at": h.location}
            for h in record.hosts
        ],
        [f"{c.op}: {c.reason}" for c in record.comms],
        options=record.asked.words(),
        wrapper=record.wrapper,
        weights=record.weights.as_dicts(),
        weight_lines=list(record.weights.lines()),
        mode=record.mode,
        settings=record.settings,
        by_torch=record.by_torch,
    )
    program = record.program() if record.program else None
    if program is not None:
        out.stats = program.stats()
        with contextlib.suppress(RuntimeError):
            _parse(program.text(2), out)
    return out


class _Watch:
    """What Dynamo counts while the model runs."""

    def __init__(self) -> None:
        from torch._dynamo.utils import counters

        self.counters = counters
        self.before = Counter(counters["graph_break"])

    def breaks(self) -> dict[str, int]:
        found = Counter(self.counters["graph_break"]) - self.before
        return {text.split("\n")[0]: n for text, n in found.items()}


def explain(
    model: Any,
    *args: Any,
    compiler_config: CompilerConfig | None = None,
    **kwargs: Any,
) -> Explanation:
    """What becomes of the model, with the reasons; never raises.

    A function or module is compiled and runs three times on the arguments: a
    graph that is compiled in the second run is a recompile that every such
    pair of calls pays for; the third run is watched, step by step, for times.
    Where a result needs a gradient, a weighted sum of it is differentiated,
    so that backward graphs show.

    What torch.compile returned is reported as it is, with its own options and
    with the counts of the calls it has had, which go on: it runs once on the
    arguments, then once watched. Without arguments nothing runs. With
    compiler_config the function behind it is compiled anew.
    """
    if compiler_config is None and compiled.is_compiled(model):
        return _of_compiled(model, args, kwargs)
    out = Explanation()
    compile_model: Any = torch.compile
    held: list[compiled.Record] = []
    programs: list[Any] = []
    try:
        watch = _Watch()
        made = compile_model(
            model,
            backend=backend.get_npu_backend(compiler_config=compiler_config),
        )
        with backend.collect(held, programs):
            differentiate(made(*args, **kwargs))
            once = len(held)
            made(*args, **kwargs)
        out.graph_breaks = watch.breaks()
        out.recompiles = [
            f"{r.name} was compiled by a second call with the same arguments"
            for r in held[once:]
        ]
    except Exception as error:  # explained, not raised
        out.error = f"{type(error).__name__}: {error}"
    _report_all(out, held, lambda: made(*args, **kwargs))
    return out


def _of_compiled(model: Any, args: Any, kwargs: Any) -> Explanation:
    out = Explanation()
    fn = compiled.function_of(model)
    owner = getattr(fn, "_torchair_owner", None)
    before = {r.key: r.runs() for r in backend.records}
    programs: list[Any] = []
    watch = _Watch()
    run = (lambda: model(*args, **kwargs)) if args or kwargs else None
    try:
        with backend.collect([], programs):
            differentiate(run() if run else None)
    except Exception as error:
        out.error = f"{type(error).__name__}: {error}"
    held = [r for r in owner.records if r.alive()] if owner else []
    if not held:  # compiled by another owner, or not dispatched: what has run
        held = [r for r in backend.records if r.runs() > before.get(r.key, 0)]
    out.graph_breaks = watch.breaks()
    if hasattr(fn, "_torchair_dispatcher"):
        found = fn._torchair_dispatcher.stats()
        out.calls = {way: n for way, n in found.items() if n}
    if not held and not out.error:
        out.error = (
            "no graph of this function has come to torchair: compile it with "
            "one of its backends, and call it, or give explain its arguments"
        )
    _report_all(out, held, run)
    return out


def _report_all(
    out: Explanation,
    held: list[compiled.Record],
    run: Callable[[], Any] | None,
) -> None:
    """run: for the times of steps; None: there are none."""
    for record in held:
        try:
            out.graphs.append(report_of(record))
        except Exception as error:
            out.error = out.error or f"{type(error).__name__}: {error}"
    if run is None or out.error:
        return
    try:
        _watched_run(out, held, run)
    except Exception as error:
        out.error = f"{type(error).__name__}: {error}"


def _watched_run(
    out: Explanation,
    held: list[compiled.Record],
    run: Callable[[], Any],
) -> None:
    """Fills in steps and pages."""
    recorders = {}
    for record in held:
        program = record.program() if record.program else None
        if program is not None:
            recorders[record.name] = program.watch = Recorder()
    try:
        differentiate(run())
    finally:
        for record in held:
            program = record.program() if record.program else None
            if program is not None:
                program.watch = None
    limits = _native_limits() if recorders else None
    for record, report in zip(held, out.graphs, strict=True):
        recorder = recorders.get(record.name)
        if recorder:
            recorder.finish()
        steps = recorder.steps if recorder else []
        report.limits = limits or {}
        report.steps = [s.as_dict(limits) for s in steps if s.kind != "view"]
        out.pages.append(page.graph(record, report, steps))


def differentiate(result: Any) -> list[torch.Tensor]:
    """Gradients of a sum of what needs one, each element times a normal
    number; no .grad changes. (The plain sum of a normalised row is a constant:
    its gradient is rounding errors, which nothing can be compared with.)"""
    leaves = torch.utils._pytree.tree_leaves(result)
    with_grad = [
        t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not with_grad:
        return []
    with torch.enable_grad():
        total = torch.stack([_weighted(t) for t in with_grad]).sum()
    inputs = _leaf_inputs(total)
    if not inputs:
        return []
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    return [g for g in found if g is not None]


def _weighted(t: torch.Tensor) -> torch.Tensor:
    if t.numel() == 1:
        return t.float().sum()
    seeded = torch.Generator("cpu").manual_seed(0)
    factors = torch.randn(t.shape, generator=seeded, device="cpu")
    return (t.float() * factors.to(t.device)).sum()


def _leaf_inputs(total: Any) -> list[torch.Tensor]:
    """Tensors whose gradients would be accumulated: found from the graph, so
    that no .grad of the user changes."""
    seen, found, queue = set(), [], [total.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        queue += [n for n, _ in node.next_functions]
    return found
