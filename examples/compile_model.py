"""Compile a model, see what became of it, and how exact it is.

python examples/compile_model.py
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

import torchair


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 256)
        self.norm = nn.LayerNorm(256)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return F.softmax(self.head(self.norm(F.gelu(self.up(x)))), dim=-1)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.manual_seed(0)
    model = Classifier().eval()
    x = torch.randn(8, 64)

    # The default mode is max-autotune. The other, reduce-overhead, rounds
    # where eager rounds: mode="reduce-overhead" here, or in a configuration.
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    fast = torch.compile(model, backend="torchair", dynamic=True)
    careful = torch.compile(
        model, backend=torchair.get_npu_backend(compiler_config=config)
    )

    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        for name, run in (
            ("eager", model),
            ("reduce-overhead", careful),
            ("max-autotune", fast),
        ):
            error = (run(x).double() - exact).abs().max().item()
            print(f"{name:16} largest error against float64 {error:.1e}")
        for batch in (3, 17, 100):  # one program serves all sizes
            y = fast(torch.randn(batch, 64))
            print(f"batch {batch}: {tuple(y.shape)}")

        print("\nwhat was compiled:")
        print(torchair.explain(model, x))


if __name__ == "__main__":
    main()
