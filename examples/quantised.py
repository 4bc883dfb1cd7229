"""A model's linear weights as 8 and 4 bits: what is lost, what is won.

    python examples/quantised.py [--width 2048] [--hidden 8192] [--layers 4]

The MLP of a Llama block decodes one token with its own weights (bfloat16),
with int8 and with int4, in turns.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import torchair


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.rms_norm(x, x.shape[-1:])
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def compiled(model: nn.Module, quantise: str | None):
    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    config.weights.quantise = quantise
    config.weights.smallest = 1
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(model, backend=backend), config


def seconds(run, x: torch.Tensor) -> float:
    begin = time.perf_counter()
    run(x)
    return time.perf_counter() - begin


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        *(Block(args.width, args.hidden) for _ in range(args.layers))
    ).bfloat16()
    x = torch.randn(1, args.width).bfloat16()
    want = model(x).double()
    runs = {}
    for how in (None, "int8", "int4"):
        runs[how], config = compiled(model, how)
        got = runs[how](x).double()
        lost = (got - want).norm() / want.norm()
        print(f"{how or 'bfloat16'}: differs from eager by {lost:.2%}")
        if how:
            found = torchair.explain(model, x, compiler_config=config)
            for line in found.graphs[0].weight_lines[:4]:
                print("  " + line)
    times = {how: [] for how in runs}
    for _ in range(args.turns):
        for how, run in runs.items():
            times[how].append(seconds(run, x))
    base = statistics.median(times[None])
    for how, found in times.items():
        median = statistics.median(found)
        print(
            f"{how or 'bfloat16':8} {median * 1e3:8.2f} ms a token, "
            f"{base / median:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
