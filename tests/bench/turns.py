"""Backends in turns in one process: for differences of a few per cent, which
run.py, a process for each backend, cannot see on a machine that drifts.

    python tests/bench/turns.py bert-f32 openvino,torchair-max-autotune
    python tests/bench/turns.py resnet50 torchair-frozen,eager --seconds 40

Prints, for each, the median, the median of its speed over the first one's turn
by turn, and all turns in ms, so that phases of the machine show. Inference
only: a case that writes its inputs is refused.
"""

import argparse
from functools import partial

import examples_path  # noqa: F401
import measure
import torch
from backends import BACKENDS
from models import MODELS
from outside import missing


def lines(names, turns):
    columns = zip(*turns, strict=True)
    found = zip(names, measure.medians(turns), columns, strict=True)
    for name, (ms, speed), column in found:
        yield f"{name}: {ms:.1f} ms, {speed:.3f} x the first one's speed"
        yield "    " + " ".join(f"{s * 1e3:.1f}" for s in column)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("backends", help="names with commas between")
    parser.add_argument("--seconds", type=float, default=20)
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
    calls = [partial(BACKENDS[n](case.target), *case.inputs) for n in names]
    with torch.no_grad():
        for call in calls:
            call()  # compiles
        turns = measure.take_turns(calls, asked.seconds)
    print("\n".join(lines(names, turns)))


if __name__ == "__main__":
    main()
