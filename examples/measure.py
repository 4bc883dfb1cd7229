"""Compile with a backend by name, and measure it against eager."""

import contextlib
import copy
import statistics
import sys
import time
from dataclasses import dataclass

import torch

MODES = ("reduce-overhead", "max-autotune")


class Unavailable(RuntimeError):
    """Something the example needs is not installed; the message says what."""


# ---- backends ---------------------------------------------------------------


def add_backend_option(parser):
    parser.add_argument(
        "--backend",
        default="torchair",
        help="torchair (default), none for eager, or any torch.compile backend",
    )
    parser.add_argument("--mode", choices=MODES, help="of torchair")


def compiler(backend, mode=None):
    """A function that compiles a module or function with this backend."""
    if backend == "none":
        return lambda target, **options: target
    if backend == "torchair":
        _torchair()

    def compile(target, **options):
        if mode is not None:
            options["mode"] = mode
        return torch.compile(target, backend=backend, **options)

    return compile


def _torchair():
    try:
        import torchair  # registers the backend
    except ImportError as error:
        raise Unavailable(
            f"torchair is not installed ({error}); run `make venv` and use "
            ".venv/bin/python, or try --backend aot_eager"
        ) from error
    return torchair


# ---- time -------------------------------------------------------------------


def take_turns(functions, seconds=2.0, least=5):
    """Times functions in turns, since a shared machine's speed drifts.

    Returns a row a turn: seconds of a call of each function.
    """
    calls = [max(1, int(0.02 / _time(f, 2))) for f in functions]
    turns = []
    end = time.perf_counter() + seconds
    while len(turns) < least or time.perf_counter() < end:
        turn = zip(functions, calls, strict=True)
        turns.append([_time(function, n) for function, n in turn])
    return turns


def medians(turns):
    """One (milliseconds, speed-up over the first) a function: the speed-up of
    the ratios within a turn."""
    return [
        (
            statistics.median(column) * 1e3,
            statistics.median(turn[0] / turn[i] for turn in turns),
        )
        for i, column in enumerate(zip(*turns, strict=True))
    ]


def in_turns(functions, seconds=2.0, least=5):
    """medians of take_turns"""
    return medians(take_turns(functions, seconds, least))


def _time(function, calls):
    began = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - began) / calls


def timed_call(function):
    """The result and the seconds."""
    began = time.perf_counter()
    result = function()
    return result, time.perf_counter() - began


# ---- accuracy ---------------------------------------------------------------


def error(result, exact):
    """Largest difference over the largest value of the exact result."""
    exact = exact.double()
    return float((result.double() - exact).abs().max() / exact.abs().max())


def spread(result, exact):
    """The same of the root of the mean square: no single element decides."""
    exact = exact.double()
    mean = (result.double() - exact).square().mean().sqrt()
    return float(mean / exact.abs().max())


# ---- what is measured -------------------------------------------------------


class Inference:
    """A module called on inputs; its error is that of the output."""

    def __init__(self, title, module, inputs):
        self.title, self.module, self.inputs = title, module, inputs

    def call(self, module):
        """A function of nothing that does the work once."""

        def run():
            with torch.no_grad():
                return module(*self.inputs)

        return run

    def result(self, module):
        return self.call(module)()


class Training:
    """A module's loss and its gradients, whose error is what counts."""

    def __init__(self, title, module, tokens):
        self.title, self.module, self.tokens = title, _Loss(module), tokens

    def call(self, module):
        def run():
            module.zero_grad(set_to_none=True)
            module(self.tokens).backward()

        return run

    def result(self, module):
        self.call(module)()
        return torch.cat([p.grad.flatten() for p in module.parameters()])


class _Loss(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model.loss(tokens)


# ---- the table --------------------------------------------------------------

COLUMNS = (
    ("", 17),
    ("ms", 9),
    ("speed-up", 9),
    ("compile s", 10),
    ("engine s", 9),
    ("error v f64", 12),
    ("nodes", 6),
    ("HOST", 5),
)
HEADER = "  " + "".join(
    f"{name:>{width}}" if i else f"{name:<{width}}"
    for i, (name, width) in enumerate(COLUMNS)
)


@dataclass
class Row:
    name: str
    ms: float
    speedup: float
    error: float
    compile_s: float | None = None
    engine_s: float | None = None
    nodes: int | None = None
    hosts: int | None = None

    def __str__(self):
        cells = (
            f"{self.ms:.2f}",
            f"{self.speedup:.2f}",
            _cell(self.compile_s, ".2f"),
            _cell(self.engine_s, ".3f"),
            f"{self.error:.1e}",
            _cell(self.nodes, "d"),
            _cell(self.hosts, "d"),
        )
        widths = [width for _, width in COLUMNS]
        return f"  {self.name:<{widths[0]}}" + "".join(
            f"{cell:>{width}}"
            for cell, width in zip(cells, widths[1:], strict=True)
        )


def _cell(value, form):
    return "–" if value is None else format(value, form)


def compare(work, backend, mode, seconds):
    """Two rows: eager's, and the backend's."""
    torch._dynamo.reset()
    exact = work.result(copy.deepcopy(work.module).double())
    compiled = compiler(backend, mode)(work.module)
    with engine_report() as report:
        result, first = timed_call(lambda: work.result(compiled))
    functions = [work.call(work.module), work.call(compiled)]
    (eager_ms, _), (ms, speedup) = in_turns(functions, seconds)
    return (
        Row("eager", eager_ms, 1.0, error(work.result(work.module), exact)),
        Row(
            mode or backend,
            ms,
            speedup,
            error(result, exact),
            first - ms / 1e3,
            **report,
        ),
    )


@contextlib.contextmanager
def engine_report():
    """Fills a dict: seconds in the engine and nodes of the graphs it got."""
    report = {}
    torchair = sys.modules.get("torchair.backend")
    if torchair is None:
        yield report
        return
    records, programs = [], []
    with torchair.collect(records, programs):
        yield report
    if records:
        hosts = sum(_on_host(record) for record in records)
        report["engine_s"] = sum(r.import_s + r.compile_s for r in records)
        report["engine_s"] += sum(p.stats()["specialise_s"] for p in programs)
        report["nodes"] = sum(record.nodes for record in records) - hosts
        report["hosts"] = hosts


def _on_host(record):
    return record.nodes if record.fallback else len(record.hosts)


# ---- command lines ----------------------------------------------------------


def run(main):
    """Calls main; what is missing ends the program with its message only."""
    try:
        return main()
    except Unavailable as missing:
        print(f"{sys.argv[0]}: {missing}", file=sys.stderr)
        return 2
