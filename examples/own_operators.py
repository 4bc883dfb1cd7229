"""An operator of your own, three ways: a formula, a kernel, a converter.

Each runs eagerly, in reduce-overhead and in max-autotune mode, and gives the
same.
"""

import argparse

import torch

import torchair

# 1. From a formula: eager kernel, meta function, fusion from one text.
gate = torchair.ops.define(
    "example::gate(Tensor a, Tensor b) -> Tensor", body="a * sigmoid(b) + 1"
)

# 2. With a kernel: schema, kernel, meta function; x is written.
library = torch.library.Library("example", "FRAGMENT")
library.define("shift(Tensor(a!) x, Tensor y) -> Tensor")


def shift(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(y)
    return y * 2


library.impl("shift", shift, "CPU")
library.impl("shift", lambda x, y: torch.empty_like(y), "Meta")


# 3. With a converter: max-autotune takes these nodes instead of the kernel.
@torchair.register_fx_node_ge_converter(torch.ops.example.shift.default)
def convert_shift(x, y):
    ge = torchair.ge
    moved = ge.custom_op("Add", x, y)
    ge.custom_op("Assign", x, moved, True, False)
    return ge.custom_op("Muls", y, 2.0)


def model(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.example.shift(x, gate(x, y)) + x


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    x, y = torch.ones(4, 8), torch.full((4, 8), 0.5)
    mine = x.clone()
    want = model(mine, y)
    for mode in ("reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        config = torchair.CompilerConfig()
        config.mode = mode
        backend = torchair.get_npu_backend(compiler_config=config)
        ours = x.clone()
        got = torch.compile(model, backend=backend)(ours, y)
        same = torch.allclose(got, want) and torch.allclose(ours, mine)
        print(mode, "gives", "the same" if same else "something else")


if __name__ == "__main__":
    main()
