"""An operator of your own inside a compiled model.

The engine has no row for it, so it becomes a HOST node: the engine calls your
function in its place, on the same memory, and compiles everything around it.

    python examples/custom_op.py
"""

import argparse

import torch

import torchair


@torch.library.custom_op("example::running_max", mutates_args=())
def running_max(x: torch.Tensor) -> torch.Tensor:
    return torch.cummax(x, dim=-1).values


@running_max.register_fake
def _(x):
    return torch.empty_like(x)


def model(x, weight):
    return torch.sigmoid(running_max(x * 2 + 1)) @ weight


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.manual_seed(0)
    x, weight = torch.randn(4, 16), torch.randn(16, 3)
    compiled = torch.compile(model, backend="torchair")
    torch.testing.assert_close(compiled(x, weight), model(x, weight))
    print("equal to eager\n")
    print(torchair.explain(model, x, weight))


if __name__ == "__main__":
    main()
