"""What the benches of a GPU share: its clock, and figures as lines of JSON.

Without a GPU the CPU stands in, so that a script can be tried before a machine
is there; such figures say so (device cpu) and mean nothing.
"""

import json
import os
import time

import torch

FOUND = torch.cuda.is_available()
DEVICE = "cuda" if FOUND else "cpu"
FIGURES = "TORCHAIR_BENCH_FIGURES"  # lines of JSON are appended to this file


def rounds(usual):
    return int(os.environ.get("TORCHAIR_BENCH_ROUNDS", usual))


def synchronize():
    if FOUND:
        torch.cuda.synchronize()


def milliseconds(fn, args, calls):
    """Of a call, by events."""
    if not FOUND:
        begin = time.perf_counter()
        for _ in range(calls):
            fn(*args)
        return (time.perf_counter() - begin) / calls * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        fn(*args)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls


def host_microseconds(fn, args, calls):
    """Of a call, for the host; the GPU is waited for outside."""
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        fn(*args)
    spent = time.perf_counter() - begin
    synchronize()
    return spent / calls * 1e6


def graph_of(fn, *args):
    """Replays torch's own CUDA graph of one call; of the CPU, the call."""
    if not FOUND:
        return lambda *_: fn(*args)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            fn(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = fn(*args)

    def replay(*_):
        graph.replay()
        return found

    return replay


def about():
    name = torch.cuda.get_device_name() if FOUND else "none: the CPU"
    return {"gpu": name, "device": DEVICE, "torch": torch.__version__}


def note(bench, name, way, **figures):
    """One figure, for cuda_figures.py."""
    path = os.environ.get(FIGURES)
    if not path:
        return
    row = {"bench": bench, "name": name, "way": way, **figures, **about()}
    with open(path, "a") as lines:
        lines.write(json.dumps(row) + "\n")
