"""Milliseconds of attention alone on a GPU: eager, and the engine's in
max-autotune, in turns; medians by events, and relative errors against float64.

    python tests/bench/bench_cuda_attention.py

Rows are of [batch, heads, queries and keys, width]; mask: none, causal (a
flag), padding (a mask of bools for each batch), bias (of queries and keys).
"""

import itertools
import statistics

import gpu
import torch
import torch.nn.functional as F
from bench_cuda_models import ours

SIZES = (
    ((1, 12, 197, 64), (16, 12, 128, 64), (8, 12, 512, 64), (2, 8, 4096, 64))
    if gpu.FOUND
    else ((1, 2, 16, 8),)
)
KINDS = "none", "causal", "padding", "bias"
ROUNDS, CALLS = gpu.rounds(5), 20


def mask_of(kind, size):
    batch, heads, rows, _ = size
    if kind == "padding":
        lengths = torch.randint(rows // 2, rows + 1, (batch, 1))
        return (torch.arange(rows) < lengths)[:, None, None].to(gpu.DEVICE)
    if kind == "bias":
        return torch.randn(1, heads, rows, rows, device=gpu.DEVICE)
    return None


def show(size, kind, dtype, precision):
    torch.set_float32_matmul_precision(precision)
    torch._dynamo.reset()
    q, k, v = (torch.randn(size, device=gpu.DEVICE, dtype=dtype) for _ in "qkv")
    mask = mask_of(kind, size)
    if mask is not None and mask.is_floating_point():
        mask = mask.to(dtype)

    def attend(q, k, v, mask):
        return F.scaled_dot_product_attention(
            q, k, v, mask, 0, kind == "causal"
        )

    args = [q, k, v, mask]
    wide = [
        x.double() if x is not None and x.dtype == dtype else x for x in args
    ]
    want = attend(*wide)
    made = {"eager": attend, "max-autotune": ours(attend, "max-autotune")}
    spent, said = {}, []
    for way, fn in made.items():
        found = fn(*args)
        error = ((found.double() - want).norm() / want.norm()).item()
        spent[way] = []
        said.append(f"{error:.1e}")
    for _ in range(ROUNDS):
        for way, fn in made.items():
            spent[way].append(gpu.milliseconds(fn, args, CALLS))
    ms = [statistics.median(times) for times in spent.values()]
    name = f"{str(dtype)[6:]} {precision} {size} {kind}"
    print(
        f"{name:50s} {ms[0]:8.4f} {ms[1]:8.4f} {ms[0] / ms[1]:5.2f}  "
        + " ".join(said),
        flush=True,
    )
    for way, value in zip(spent, ms, strict=True):
        gpu.note("attention", name, way, ms=value)


def main():
    print(gpu.about())
    kinds = (
        (torch.float32, "highest"),
        (torch.float32, "high"),
        (torch.bfloat16, "highest"),
    )
    with torch.no_grad():
        for size, kind, (dtype, precision) in itertools.product(
            SIZES, KINDS, kinds
        ):
            show(size, kind, dtype, precision)


if __name__ == "__main__":
    main()
