"""A training step of an encoder with dropout, of attention and hidden values.

    python tests/bench/bench_cuda_dropout.py [--dropout=0]

Forward and backward of twelve layers of BERT base's sizes, 16 x 128 tokens, in
milliseconds by events: medians of rounds in turns. Beside each way is the loss
from one seed, and how many nodes torch runs.
"""

import argparse
import copy
import statistics

import gpu
import torch
from torch import nn

import torchair

WIDTH, HEADS, LAYERS = (768, 12, 12) if gpu.FOUND else (32, 2, 2)
BATCH, TOKENS, WORDS = (16, 128, 1000) if gpu.FOUND else (2, 8, 50)


class Encoder(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.drop = nn.Dropout(p)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, p, "gelu", batch_first=True
            )
            for _ in range(LAYERS)
        )
        self.end = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        x = self.drop(self.words(ids))
        for layer in self.layers:
            x = layer(x)
        return self.end(x)


def stepping(model, call, ids):
    def step():
        model.zero_grad()
        y = call(ids).flatten(0, 1).float()
        loss = nn.functional.cross_entropy(y, ids.flatten())
        loss.backward()
        return loss.detach()

    return step


def ways(p, dtype):
    """(name, step, nodes that torch runs) of copies of one model."""
    torch.manual_seed(0)
    model = Encoder(p).to(gpu.DEVICE, dtype)
    ids = torch.randint(WORDS, (BATCH, TOKENS), device=gpu.DEVICE)
    yield "eager", stepping(model, model, ids), 0
    for mode in ("reduce-overhead", "max-autotune"):
        mine = copy.deepcopy(model)
        call = torch.compile(mine, backend="torchair", mode=mode)
        step = stepping(mine, call, ids)
        step()
        text = str(torchair.explain(call))
        yield mode, step, text.count("it draws random numbers")


def report(p, dtype):
    steps = list(ways(p, dtype))
    losses = {}
    for name, step, _ in steps:
        for _ in range(3):
            step()
        torch.manual_seed(7)
        losses[name] = step().item()
    spent = {name: [] for name, *_ in steps}
    for _ in range(gpu.rounds(9)):
        for name, step, _ in steps:
            spent[name].append(gpu.milliseconds(step, (), 5))
    for name, _, drawn in steps:
        ms = statistics.median(spent[name])
        what = f"{str(dtype)[6:]}, dropout {p}"
        print(
            f"{what:24} {name:16} {ms:8.3f} ms  loss {losses[name]:.6f}"
            f"  {drawn} lines of draws outside"
        )
        gpu.note("dropout", what, name, ms=ms, loss=losses[name])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dropout", type=float, default=0.1)
    asked = parser.parse_args()
    print(gpu.about())
    for dtype in (torch.float32, torch.bfloat16):
        report(asked.dropout, dtype)


if __name__ == "__main__":
    main()
