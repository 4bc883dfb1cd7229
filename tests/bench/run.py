"""Side by side: eager, Inductor and torchair, in one run; OpenVINO and ONNX
Runtime too, where they are installed.

    python tests/bench/run.py              every model but the largest
    python tests/bench/run.py --quick      a few models, no Inductor
    python tests/bench/run.py --full       everything, machine limits too

Each measurement runs in a fresh process, with PyTorch's caches off and, for
torchair, without a compiler in PATH. Backend and eager are timed in turns in
that process, since the speed of a shared machine drifts: the ratio is the
figure to trust. Writes build/bench.json, and prints tables.
"""

import argparse
import json
import math
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from backends import BACKENDS, OURS
from calls import CASES as CALLS
from models import MODELS
from outside import missing
from regions import DTYPES, WORKLOADS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIMIT = 400  # seconds for one measurement
QUICK_MODELS = (
    "tiny-64",
    "tiny-cache",
    "params-144",
    "lnres-4096x1024",
    "mlp-train",
    "llama-15m-decode",
    "minilm-f32",
)
REGION_COLUMNS = {
    "kernel_ms": "kernels",  # Inductor's into memory kept for it
    "bare_ms": "callables",  # that Dynamo calls
    "ms": "whole calls",
}
LARGE = ("llama-1b-decode", "chain-16M")


# ---- running ----------------------------------------------------------------


def measure(threads, *arguments):
    """The result of one child, or what went wrong with it."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        try:
            child = subprocess.run(
                [sys.executable, str(HERE / "child.py"), *arguments],
                env=_environment(folder, threads, arguments),
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return _failure(arguments, f"no result after {LIMIT} s")
    for line in reversed(child.stdout.splitlines()):
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    lines = child.stderr.strip().splitlines() or [f"exit {child.returncode}"]
    return _failure(arguments, lines[-1][:300])


def _environment(folder, threads, arguments):
    changes = {
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "OMP_NUM_THREADS": str(threads),
        "PYTHONWARNINGS": "ignore",
        "TMPDIR": folder,
        # Beside a registered accelerator, Dynamo's code looks for its stream
        # in every call; `make test` installs torch_npu into the same .venv.
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    if _limits:
        changes["BENCH_LIMITS"] = str(_limits[0])
    if any(name in arguments for name in OURS):
        changes["PATH"] = folder  # no compiler at run time
    return os.environ | changes


def _failure(arguments, why):
    names = dict(zip(("kind", "model", "backend"), arguments, strict=False))
    return names | {"failed": why}


def plan(args):
    """The arguments of every child, in order."""
    backends = args.backends.split(",") if args.backends else _backends(args)
    backends = [name for name in backends if not _says_missing(name)]
    for model in args.models.split(",") if args.models else _models(args):
        for backend in backends:
            # The floor of tracing has nothing to time.
            seconds = 0 if backend.startswith("aot-nop") else args.seconds
            yield "model", model, backend, str(seconds)
    for backend in backends:
        if backend in OURS:
            yield "recompiles", backend
    if "torchair-reduce-overhead" in backends:
        yield "lengths", "torchair-reduce-overhead"
        for model in CALLS:
            yield (
                "calls",
                model,
                "torchair-reduce-overhead",
                str(args.seconds),
            )
    if args.models or args.quick:
        return
    for workload in WORKLOADS:
        for dtype in DTYPES:
            yield "regions", workload, dtype, str(args.seconds / 4)


def _says_missing(backend):
    """Whether a backend is left out, which a line on stderr then says."""
    if needs := " ".join(missing(backend)):
        print(f"no {backend}: pip install {needs}", file=sys.stderr)
    return bool(missing(backend))


def _backends(args):
    if args.quick:
        return ("aot-nop", *OURS)
    return [name for name in BACKENDS if name != "eager"]


def _models(args):
    if args.quick:
        return QUICK_MODELS
    return [name for name in MODELS if args.full or name not in LARGE]


_limits = []  # limits.c as a program, where there is a compiler


def build_limits(folder):
    program = Path(folder) / "limits"
    flags = ["-O3", "-march=native", "-std=gnu11", "-pthread"]
    compiler = shlex.split(os.environ.get("CC", "cc"))
    command = [*compiler, *flags, str(HERE / "limits.c")]
    try:
        subprocess.run([*command, "-o", str(program)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no limits of the machine: {error}", file=sys.stderr)
        return
    _limits.append(program)


def machine_limits():
    """What the machine can do: memory, caches, arithmetic (limits.c)."""
    if not _limits:
        return None
    return json.loads(subprocess.check_output([str(_limits[0])], text=True))


# ---- printing ---------------------------------------------------------------


def table(title, rows, columns, cell):
    """A table on the terminal; cell(row, column) gives its text."""
    cells = [[cell(row, column) or "" for column in columns] for row in rows]
    first = max(map(len, rows), default=0)
    widths = [
        max([len(column), *(len(line[i]) for line in cells)]) + 2
        for i, column in enumerate(columns)
    ]
    print(f"\n{title}\n{'':{first}}" + _line(columns, widths))
    for row, line in zip(rows, cells, strict=True):
        print(f"{row:{first}}" + _line(line, widths))


def _line(cells, widths):
    return "".join(
        f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )


def print_models(results):
    found = {
        (r["model"], r["backend"]): r
        for r in results
        if r["kind"] == "model" and not r.keys() & {"failed", "skipped"}
    }
    skipped = {(r["model"], r["backend"]) for r in results if "skipped" in r}
    rows = list(dict.fromkeys(model for model, _ in found))
    columns = list(dict.fromkeys(backend for _, backend in found))

    def show(form):
        def text(*key):
            if key in found:
                return form(found[key])
            return "–" if key in skipped else "failed"

        return text

    timed = [name for name in columns if not name.startswith("aot-nop")]
    table(
        "milliseconds (times the speed of eager, in turns)",
        rows,
        timed,
        show(lambda r: f"{r['ms']:.3f} ({r['speedup']:.2f})"),
    )
    reading = [
        m
        for m in rows
        if any("read_share" in found.get((m, b), {}) for b in columns)
    ]
    if reading:
        table(
            "share of the rate of reading memory, in that process (eager's)",
            reading,
            timed,
            show(_share_text),
        )
    table(
        "compile, seconds (of which the engine)",
        rows,
        columns,
        show(_compile_text),
    )
    table(
        "error against float64 / of eager (times the root mean square of "
        "eager's; training: of 50 losses against eager)",
        rows,
        timed,
        show(_error_text),
    )


def _share_text(r):
    if "read_share" not in r:
        return ""
    share, eager = r["read_share"], r["eager_read_share"]
    return f"{share:.0%} ({eager:.0%}) of {r['read_gb_s']:.1f} GB/s"


def _compile_text(r):
    engine = r["engine"].get("engine_s")
    text = f"{r['compile_s']:.2f}"
    return text if engine is None else f"{text} ({engine:.3f})"


def _error_text(r):
    if "loss_error" in r:
        text = f"{r['loss_error']:.1e}"
    else:
        text = f"{r['error']:.1e} / {r['eager_error']:.1e}"
        if r["eager_spread"] > 0:
            text += f" ({r['spread'] / r['eager_spread']:.2f})"
    hosts = r["engine"].get("hosts")
    return f"{text}, {hosts} HOST" if hosts else text


def print_regions(results):
    found = [r for r in results if r["kind"] == "region"]
    if not found:
        return
    points = {
        f"{r['name']} {r['dtype']} {p['size']}": p
        for r in found
        for p in r["points"]
    }
    backends = list(next(iter(points.values()))["ms"])
    for key, what in REGION_COLUMNS.items():

        def cell(row, column, key=key):
            ms = points[row][key]
            return f"{ms[column] * 1e3:.1f} ({_ratio(ms, column):.2f})"

        table(
            f"fused regions, {what}: µs (times the speed of Inductor)",
            list(points),
            backends,
            cell,
        )
        _print_geomeans(points, key, what)


def _print_geomeans(points, key, what):
    """Of all points of a dtype, and the point where we do worst."""
    for column in OURS:
        for dtype in DTYPES:
            ratios = {
                row: _ratio(p[key], column)
                for row, p in points.items()
                if f" {dtype} " in row
            }
            if not ratios:
                continue
            mean, least = _geomean(ratios.values()), min(ratios, key=ratios.get)
            print(
                f"{column}, {what}, {dtype}: {mean:.2f} x Inductor, "
                f"{ratios[least]:.2f} at {least}"
            )


def _ratio(ms, column):
    return ms["inductor"] / ms[column]


def _geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def print_calls(results):
    found = {
        r["model"]: r
        for r in results
        if r["kind"] == "calls" and "failed" not in r
    }
    columns = ("eager", "whole", "guards", "code", "result", "own")

    def cell(row, column):
        return f"{found[row].get(column, 0.0):.2f}"

    if found:
        table("parts of a call, µs (shortest)", list(found), columns, cell)


def print_rest(results):
    for r in results:
        if "failed" in r:
            name = " ".join(str(r[k]) for k in list(r) if k != "failed")
            print(f"FAILED {name}: {r['failed']}")
        elif r["kind"] == "recompiles":
            print(f"{r['backend']}: {r['compiles']} compile for 20 batch sizes")
        elif r["kind"] == "lengths":
            ratio = r["all_bytes"] / r["longest_bytes"]
            print(f"memory of 12 lengths: {ratio:.2f} x that of the longest")


# ---- command line -----------------------------------------------------------


def refuse_unknown(options, name, asked, known):
    """A name that is not known would be a failed row for each backend."""
    unknown = [x for x in (asked or "").split(",") if x and x not in known]
    if unknown:
        options.error(
            f"{name}: no {', '.join(unknown)}; there are {', '.join(known)}"
        )


def main():
    options = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--quick", action="store_true")
    options.add_argument("--full", action="store_true")
    options.add_argument("--models", help="comma-separated, no regions then")
    options.add_argument("--backends", help="comma-separated")
    options.add_argument("--seconds", type=float, default=2.0, help="a timing")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--json", default=ROOT / "build" / "bench.json")
    args = options.parse_args()
    refuse_unknown(options, "--models", args.models, MODELS)
    refuse_unknown(options, "--backends", args.backends, BACKENDS)

    report = {
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "threads": args.threads,
        "machine": platform.processor() or platform.machine(),
        "results": [],
    }
    with tempfile.TemporaryDirectory(prefix="limits") as folder:
        build_limits(folder)
        if args.full:
            report["limits"] = machine_limits()
        for arguments in plan(args):
            began = time.time()
            report["results"].append(measure(args.threads, *arguments))
            print(
                f"{time.time() - began:6.1f} s  {' '.join(arguments[:3])}",
                file=sys.stderr,
                flush=True,
            )
            _write(Path(args.json), report)
    print_models(report["results"])
    print_regions(report["results"])
    print_calls(report["results"])
    print_rest(report["results"])
    print(f"\nwritten: {args.json}")
    return any("failed" in r for r in report["results"])


def _write(path, report):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
