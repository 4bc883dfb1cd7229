"""What a call of a small graph costs the host on a GPU, and that the engine
ran it: `python tests/bench/bench_cuda.py`. Medians of runs taken in turns."""

import statistics
import time

import gpu
import torch

import torchair
from torchair import backend

CALLS, ROUNDS = 400, gpu.rounds(9)


def cost(fn, *args):
    """Host microseconds of a call."""
    return gpu.host_microseconds(fn, args, CALLS)


def compiled(fn, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=made)


def small(x):
    return torch.relu(x) * 2 + x


def main():
    x = torch.randn(256, device=gpu.DEVICE)
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
        graph = gpu.graph_of(small, x)
        spent["torch.cuda.CUDAGraph.replay"] = [
            cost(graph) for _ in range(ROUNDS)
        ]
    for record in backend.records:
        print(record.name, "fallback:", record.fallback or "none")
    for name, values in spent.items():
        middle = statistics.median(values)
        print(f"{name:30s} {middle:7.2f} us a call")
        gpu.note("host", "three pointwise", name, host_us=middle)


if __name__ == "__main__":
    main()
