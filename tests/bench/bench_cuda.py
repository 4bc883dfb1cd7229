"""What a call of a small graph costs the host on a GPU, and that the engine
ran it: `python tests/bench/bench_cuda.py`. Medians of runs taken in turns."""

import statistics
import time

import torch

import torchair
from torchair import backend

CALLS, ROUNDS = 400, 9


def cost(fn, *args):
    """Host seconds of a call; the GPU is waited for outside."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(CALLS):
        fn(*args)
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return spent / CALLS


def compiled(fn, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=made)


def small(x):
    return torch.relu(x) * 2 + x


def main():
    x = torch.randn(256, device="cuda")
    ways = {"eager": small}
    for mode in ("max-autotune", "reduce-overhead"):
        ways[mode] = compiled(small, mode)
    with torch.no_grad():
        begin = time.perf_counter()
        for fn in ways.values():
            for _ in range(3):
                fn(x)
        print(f"first calls: {time.perf_counter() - begin:.2f} s")
        spent = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, fn in ways.items():
                spent[name].append(cost(fn, x))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            small(x)
        spent["torch.cuda.CUDAGraph.replay"] = [
            cost(graph.replay) for _ in range(ROUNDS)
        ]
    for record in backend.records:
        print(record.name, "fallback:", record.fallback or "none")
    for name, values in spent.items():
        print(f"{name:30s} {statistics.median(values) * 1e6:7.2f} us a call")


if __name__ == "__main__":
    main()
