"""Models by more and more threads: where a machine has many cores.

    python tests/bench/scaling.py                       a few models, all cores
    python tests/bench/scaling.py --models bert-f32,mlp-train --threads 1,4,16

Eager, max-autotune and what else --backends names take turns, in a process
for each model and number of threads, which is forked so that PyTorch is
imported once. Prints ms of a call, and times the speed of eager.
"""

import argparse
import os
import sys
import traceback
from functools import partial

import examples_path  # noqa: F401
import measure
import torch
from backends import BACKENDS
from models import MODELS

import torchair  # noqa: F401  registers the backend

USUAL = (
    "chain-16M,lnres-4096x1024,softmax-4096x1024,mlp-train,gpt-train,resnet50,"
    "minilm-f32,minilm-bf16,bert-f32,llama-15m-decode,llama-1b-decode"
)


def functions(cases, backends):
    for case, backend in zip(cases, backends, strict=True):
        compile = BACKENDS[backend]
        if case.step:
            yield case.step(compile(case.target), compile)
        elif case.drive:
            yield partial(case.drive, compile(case.target))
        else:
            yield partial(compile(case.target), *case.inputs)


def timed(name, threads, backends, seconds):
    torch.set_num_threads(threads)
    cases = [MODELS[name]() for _ in backends]  # with the same weights
    with torch.set_grad_enabled(cases[0].step is not None):
        calls = list(functions(cases, backends))
        for call in calls:
            call()  # compiles
            call()
        found = measure.medians(measure.take_turns(calls, seconds))
    cells = (f"{ms:9.3f} ({speed:5.2f})" for ms, speed in found)
    print(f"{name:20} {threads:3} " + "  ".join(cells), flush=True)


def in_child(function, *args):
    """Runs it in a fork; 1 where it failed, having said why."""
    child = os.fork()
    if not child:
        try:
            function(*args)
        except Exception:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--models", default=USUAL)
    parser.add_argument("--threads", default=str(cores))
    parser.add_argument("--backends", default="torchair-max-autotune")
    parser.add_argument("--seconds", type=float, default=2)
    asked = parser.parse_args()
    backends = ["eager", *asked.backends.split(",")]
    print(f"{cores} cores; ms (times eager): " + ", ".join(backends))
    failed = 0
    for name in asked.models.split(","):
        for threads in map(int, asked.threads.split(",")):
            job = (timed, name, threads, backends, asked.seconds)
            failed += in_child(*job) != 0
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
