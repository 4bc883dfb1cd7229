"""Backends in turns in one process: for differences of a few per cent, which
run.py, a process for each backend, cannot see on a machine that drifts.

    python tests/bench/turns.py bert-f32 openvino,torchair-max-autotune
    python tests/bench/turns.py resnet50 torchair-max-autotune,eager --turns 40

A turn is the median of CALLS calls behind one that warms the caches. Prints all
turns of each backend in ms, so that phases of the machine show, their median,
and the median of what the first one takes over what this one takes, turn by
turn. Inference only: a case that writes its inputs is refused.
"""

import argparse
import statistics
import time

import torch
from backends import BACKENDS
from models import MODELS
from outside import missing

CALLS = 6


def turn(call, inputs):
    """Milliseconds."""
    call(*inputs)
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call(*inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measure(case, names, turns):
    """{name: milliseconds of its turns}"""
    calls = {name: BACKENDS[name](case.target) for name in names}
    found = {name: [] for name in names}
    with torch.no_grad():
        for call in calls.values():
            for _ in range(3):
                call(*case.inputs)
        for _ in range(turns):
            for name, call in calls.items():
                found[name].append(turn(call, case.inputs))
    return found


def lines(found):
    first = next(iter(found.values()))
    for name, times in found.items():
        pairs = zip(first, times, strict=True)
        speed = statistics.median(a / b for a, b in pairs)
        median = statistics.median(times)
        yield f"{name}: {median:.1f} ms, {speed:.3f} x the first one's speed"
        yield "    " + " ".join(f"{ms:.1f}" for ms in times)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("backends", help="names with commas between")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    names = asked.backends.split(",")
    for name in names:
        if name not in BACKENDS:
            parser.error(f"no backend {name!r}: one of {', '.join(BACKENDS)}")
        if lacking := missing(name):
            parser.error(f"{name} needs: pip install {' '.join(lacking)}")
    torch.set_num_threads(asked.threads)
    case = MODELS[asked.model]()
    if case.step or case.drive or case.writes:
        parser.error(f"{asked.model} is no call that can be repeated as it is")
    print("\n".join(lines(measure(case, names, asked.turns))))


if __name__ == "__main__":
    main()
