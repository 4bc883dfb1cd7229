"""Products with weights of 8 and 4 bits on a GPU, beside bfloat16's:
`python tests/bench/bench_cuda_words.py --sizes 4096x14336 --rows 1,64,512`.

Microseconds of a product, of several that are read one after another so that
no cache holds them; GB/s of what is read of the weight; the error, root mean
square over that of the result, from float64 of what the stored numbers stand
for. The last line says whether results are right.
"""

import argparse
import functools
import statistics

import examples_path  # noqa: F401
import gpu
import torch

import torchair
from torchair import quantised

ROUNDS, CALLS = gpu.rounds(5), 20
BYTES = 1 << 29  # of the weights of a call, as bfloat16
ROWS = "1,4,8,16,32,64,128,256,512,2048"
KINDS = {  # bits, numbers that share a scale (0: a row), zeros
    "bf16": None,
    "int8": (8, 0, False),
    "int8/64": (8, 64, False),
    "int4/32": (4, 32, False),
    "int4/64": (4, 64, False),
    "int4/128": (4, 128, False),
    "int4/32 zeros": (4, 32, True),
}


def stored(weight, bits, group, zeros):
    """Operands of the operator, and what they stand for."""
    if bits == 8 and group:
        split = weight.float().unflatten(1, (-1, group))
        scale = split.abs().amax(-1) / 127
        q = (split / scale[..., None]).round().to(torch.int8).flatten(1)
    else:
        made = quantised.store(weight, bits, group)
        q, scale = made.weight, made.scale
    zero = torch.randn_like(scale) / 100 if zeros else None
    return q, scale, zero, quantised.dequantise(q, scale, zero, bits)


def compiled(fn):
    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    return torch.compile(
        fn, backend=torchair.get_npu_backend(compiler_config=config)
    )


def product(kind, weights, x):
    if kind is None:
        return [x @ w.t() for w in weights]
    mm = functools.partial(torch.ops.air.quantised_mm, x)
    return [mm(q, s, z, None, kind[0], True) for q, s, z in weights]


def measure(kind, rows, depth, width, weights):
    if kind is None:
        operands, wide = weights, weights[0]
    else:
        made = [stored(w, *kind) for w in weights]
        operands, wide = [m[:3] for m in made], made[0][3]
    x = torch.randn(rows, depth, device=gpu.DEVICE, dtype=torch.bfloat16)
    fn = compiled(functools.partial(product, kind, operands))
    for _ in range(4):
        y = fn(x)
    want = x.double() @ wide.double().t()
    error = (y[0].double() - want).square().mean().sqrt() / want.std()
    spent = statistics.median(
        gpu.milliseconds(fn, (x,), CALLS) for _ in range(ROUNDS)
    )
    read = sum(
        t.nbytes
        for t in (operands[0] if kind else (operands[0],))
        if t is not None
    )
    return spent * 1e3 / len(weights), read, error.item()


@torch.no_grad()
def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sizes", default="4096x14336,14336x4096")
    options.add_argument("--rows", default=ROWS)
    options.add_argument("--kinds", default=",".join(KINDS))
    options = options.parse_args()
    torch.manual_seed(0)
    wrong = 0
    for size in options.sizes.split(","):
        depth, width = map(int, size.split("x"))
        count = min(64, max(1, BYTES // (2 * depth * width)))
        weights = [
            torch.randn(width, depth, device=gpu.DEVICE, dtype=torch.bfloat16)
            for _ in range(count)
        ]
        for rows in map(int, options.rows.split(",")):
            beside = None
            for name in options.kinds.split(","):
                us, read, error = measure(
                    KINDS[name], rows, depth, width, weights
                )
                beside = beside or us
                wrong += error > 6e-3
                print(
                    f"{size} {rows:4d} rows {name:14s} {us:8.1f} us"
                    f" {read / us / 1e3:7.0f} GB/s {beside / us:5.2f} x"
                    f" error {error:.1e}",
                    flush=True,
                )
                gpu.note("words", f"{size}, {rows} rows", name, us=us)
    print("all right" if not wrong else f"{wrong} ARE WRONG")


if __name__ == "__main__":
    main()
