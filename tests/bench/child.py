"""One measurement in a process of its own; run.py starts it.

    python child.py model minilm-f32 torchair-max-autotune 3.0
    python child.py regions "w2 swiglu" f32 1.0
    python child.py recompiles torchair-max-autotune

The last line printed is "RESULT " and a JSON object.
"""

import contextlib
import copy
import importlib
import json
import os
import resource
import subprocess
import sys
import time

import calls
import examples_path  # noqa: F401
import measure
import models
import outside
import regions
import torch
from backends import BACKENDS, OURS

# ---- whole models -----------------------------------------------------------


def model(name, backend, seconds):
    case = models.MODELS[name]()
    result = {"kind": "model", "model": name, "backend": backend}
    if why := outside.refuses(backend, case):
        return result | {"skipped": why}
    result["toolchain_s"] = _compile_something(BACKENDS[backend])
    part = _training if case.step else _inference
    with contextlib.ExitStack() as stack:
        if not case.step:
            stack.enter_context(torch.no_grad())
        result |= part(name, case, BACKENDS[backend], float(seconds))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return result | {"peak_rss_mb": usage.ru_maxrss / 1024}


def _compile_something(compile):
    """The first compile of a process pays for tools and imports: apart."""
    with torch.no_grad():
        function = compile(lambda x: x * 3 + 1)
        return measure.timed_call(lambda: function(torch.ones(32)))[1]


def _inference(name, case, compile, seconds):
    functions = [_call(case, f) for f in (case.target, compile(case.target))]
    with measure.engine_report() as engine:
        output, first = measure.timed_call(functions[1])
    output = output.clone()
    with _reading(case) as reading:
        result = _times(functions, first, seconds)
    result |= reading(result)
    exact, eager = _exact(case), functions[0]()
    return result | {
        "engine": engine,
        "error": measure.error(output, exact),
        "eager_error": measure.error(eager, exact),
        "spread": measure.spread(output, exact),
        "eager_spread": measure.spread(eager, exact),
    }


@contextlib.contextmanager
def _reading(case):
    """Gives, of a timing, the share of what the machine reads from memory, as
    limits.c finds right before and right after it, the better of the two."""
    program = os.environ.get("BENCH_LIMITS") if case.reads else None
    rates = []

    def measure_rate():
        if program:
            command = [program, "read", os.environ["OMP_NUM_THREADS"]]
            rates.append(float(subprocess.check_output(command)))

    def shares(times):
        if not rates:
            return {}
        most = case.reads / max(rates) * 1e-6  # ms
        return {
            "read_bytes": case.reads,
            "read_gb_s": max(rates),
            "read_share": most / times["ms"],
            "eager_read_share": most / times["eager_ms"],
        }

    measure_rate()
    yield shares
    measure_rate()


def _call(case, function):
    if case.drive:
        return lambda: case.drive(function)
    return lambda: function(*case.inputs)


def _exact(case):
    """In float64; the big bfloat16 models in float32, which is exact there."""
    target = case.target
    if not isinstance(target, torch.nn.Module):
        return target(*map(_double, case.inputs))
    low = next(target.parameters()).dtype == torch.bfloat16
    wide = torch.float32 if low else torch.float64
    inputs = [t.to(wide) if t.is_floating_point() else t for t in case.inputs]
    target = copy.deepcopy(target).to(wide)
    return case.drive(target) if case.drive else target(*inputs)


def _double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


def _training(name, case, compile, seconds):
    """Two models with the same weights train in turns."""
    twin = models.MODELS[name]()
    eager = case.step(case.target, BACKENDS["eager"])
    compiled = twin.step(compile(twin.target), compile)
    with measure.engine_report() as engine:
        loss, first = measure.timed_call(compiled)
    losses = [loss] + [compiled() for _ in range(49)]
    expected = [eager() for _ in range(50)]
    result = _times([eager, compiled], first, seconds)
    return result | {
        "engine": engine,
        "loss_error": max(
            abs(float(a) - float(b)) / abs(float(b))
            for a, b in zip(losses, expected, strict=True)
        ),
    }


def _times(functions, first, seconds):
    for function in functions:
        function()
    (eager_ms, _), (ms, speedup) = measure.in_turns(functions, seconds)
    return {
        "eager_ms": eager_ms,
        "ms": ms,
        "speedup": speedup,
        "compile_s": first - ms / 1e3,
    }


# ---- fused regions ----------------------------------------------------------


def region(name, dtype, seconds):
    """One workload at all sizes: eager, Inductor and ours in turns."""
    backends = ("eager", "inductor", *OURS)
    points = []
    for size in regions.SIZES:
        function, inputs = regions.build(name, size, dtype)
        points.append(
            {"size": size}
            | _region_point(function, inputs, backends, float(seconds))
        )
    return {"kind": "region", "name": name, "dtype": dtype, "points": points}


def _region_point(function, inputs, backends, seconds):
    """Milliseconds of three things, each of them in turns: calls through
    torch.compile, bare callables, and what computes."""
    exact = _flat(function(*(t.double() for t in inputs)))
    with torch.no_grad():
        found = [_bare(function, inputs, backend) for backend in backends]
        torch._dynamo.reset()
        whole = [
            _closed(BACKENDS[backend](_twin(function), dynamic=False), inputs)
            for backend in backends
        ]
        errors = [measure.error(_flat(call()), exact) for call in whole]
        del exact
        columns = {
            "ms": whole,
            "bare_ms": [bare for bare, _ in found],
            "kernel_ms": [kernel for _, kernel in found],
        }
        point = {
            column: [ms for ms, _ in measure.in_turns(calls, seconds)]
            for column, calls in columns.items()
        } | {"error": errors}
    return {
        column: dict(zip(backends, values, strict=True))
        for column, values in point.items()
    }


def _closed(function, inputs):
    return lambda: function(*inputs)


def _twin(function):
    """A copy, for Dynamo keeps what it compiled with the code object."""
    code = function.__code__.replace(co_name=function.__name__)
    return type(function)(code, function.__globals__)


def _flat(results):
    results = results if isinstance(results, tuple) else (results,)
    return torch.cat([r.flatten() for r in results])


def _bare(function, inputs, backend):
    """What Dynamo would call, without guards and without its bytecode; and
    what computes, into memory that is kept for the results."""
    if backend == "eager":
        call = _closed(function, inputs)
        return call, call
    call = _closed(*_callable(function, inputs, backend))
    if backend == "inductor":
        return call, _inductor_kernels(call)
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return call, _our_program(function, inputs, results, backend)


def _callable(function, inputs, backend):
    """A backend's callable, and what Dynamo calls it with."""
    from torch._dynamo import lookup_backend

    found = []
    name, _, mode = backend.partition("-")

    def keep(graph, examples):
        options = {"mode": mode} if mode else {}
        made = lookup_backend(name)(graph, examples, **options)

        def call(*arguments):
            found[:] = made, arguments
            return made(*arguments)

        return call

    torch._dynamo.reset()
    torch.compile(function, backend=keep, dynamic=False)(*inputs)
    return found


def _our_program(function, inputs, results, backend):
    """A program that writes its results where the caller keeps them."""
    from torchair.backend import collect

    def write(results, *inputs):
        found = function(*inputs)
        found = found if isinstance(found, tuple) else (found,)
        for result, value in zip(results, found, strict=True):
            result.copy_(value)

    programs = []
    with collect([], programs):
        _, arguments = _callable(write, (results, *inputs), backend)
    return _closed(programs[0], arguments)


def _inductor_kernels(call):
    """Calls the compiled kernels that `call` calls, on the same memory."""
    modules = [vars(module) for module in sys.modules.values()]
    module = [m for m in modules if any(map(_is_kernel, m))][-1]
    kernels = {name: f for name, f in module.items() if _is_kernel(name)}
    calls = []

    def recorder(kernel):
        def record(*arguments):
            calls.append((kernel, arguments))
            kernel(*arguments)

        return record

    module.update({name: recorder(f) for name, f in kernels.items()})
    call()
    module.update(kernels)
    if len(calls) == 1:
        return _closed(*calls[0])

    def run():
        for kernel, arguments in calls:
            kernel(*arguments)

    return run


def _is_kernel(name):
    return name.startswith("cpp_fused")


# ---- recompiles -------------------------------------------------------------


def recompiles(backend):
    """A model compiled for any size, called with twenty batch sizes."""
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    target = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)
    ).eval()
    compiled = BACKENDS[backend](target, dynamic=True)
    worst = 0.0
    with torch.no_grad():
        for batch in range(2, 22):
            x = torch.randn(batch, 64)
            worst = max(worst, measure.error(compiled(x), target(x)))
    return {
        "kind": "recompiles",
        "backend": backend,
        "compiles": counters["stats"]["unique_graphs"],
        "difference": worst,
    }


# ---- what calls cost -------------------------------------------------------


def call_parts(name, backend, seconds):
    parts = calls.parts(name, backend, float(seconds))
    return {"kind": "calls", "model": name, "backend": backend} | parts


# ---- memory of a capture for each of many sizes -----------------------------


def lengths(backend):
    """Bytes of the graph pool after a capture of the longest of twelve lengths
    of one dynamic graph, and after captures of all."""
    from torchair.backend import collect

    torch.manual_seed(0)
    target = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)
    ).eval()
    compiled = BACKENDS[backend](target, dynamic=True)
    programs, mapped = [], []
    with torch.no_grad(), collect([], programs):
        for chosen in ((768,), range(64, 769, 64)):
            for length in chosen:
                compiled(torch.randn(length, 64))
            pool = programs[-1].stats()["capture"]["pool"]
            mapped.append(pool["mapped_bytes"])
    return {
        "kind": "lengths",
        "backend": backend,
        "captures": pool["captures"],
        "longest_bytes": mapped[0],
        "all_bytes": mapped[1],
    }


KINDS = {
    "model": model,
    "regions": region,
    "recompiles": recompiles,
    "lengths": lengths,
    "calls": call_parts,
}


def main(kind, *arguments):
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    began = time.perf_counter()
    importlib.import_module("torch._dynamo")
    imported = time.perf_counter() - began
    result = KINDS[kind](*arguments) | {
        "import_s": imported,
        "torch": torch.__version__,
    }
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
