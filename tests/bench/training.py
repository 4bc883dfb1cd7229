"""Training steps side by side: the table of docs/training.md.

    python tests/bench/training.py                  every model
    python tests/bench/training.py mlp gpt          some of them
    python tests/bench/training.py --memory 200     and what that many steps add

The rows compile more and more of a step: nothing, the model, optimizer.step
too, all of it in one function, forward and backward as one graph. They train
copies of one model in turns in this process, one turn a step. The time is of
the CPU, summed over threads, and the one that a third of the turns stay below:
what else runs on the machine moves it little. Losses of 50 steps are compared
with eager's. What torch makes of a compiled Adam has its bias corrections in
f32, with Inductor: other steps by 7e-6, of which 50 steps make what they will;
a rectifier at 0 and batch norm of few values make much of any rounding.
"""

import argparse
import copy
import gc
import itertools
import resource
import time
from functools import partial

import torch
import torch.nn.functional as F
from backends import BACKENDS
from models import Gpt, SimpleMLP
from torch import nn

OURS, THEIRS = "torchair-max-autotune", "inductor"
STEPS = 50  # of which losses are compared


# ---- models: (model, batches, optimizer) -------------------------------------


class Block(nn.Module):
    """Of ResNet-18: two convolutions of 3 x 3 and what skips them."""

    def __init__(self, channels, width, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.down = None
        if stride != 1 or channels != width:
            self.down = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False),
                nn.BatchNorm2d(width),
            )

    def forward(self, x):
        skip = x if self.down is None else self.down(x)
        x = F.relu(self.norm(self.first(x)))
        return F.relu(self.norm2(self.second(x)) + skip)


class ResNet18(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        layers = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
        channels = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers.append(Block(channels, width, stride))
            layers.append(Block(width, width, 1))
            channels = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(512, classes)

    def forward(self, x, labels):
        return F.cross_entropy(self.head(self.body(x).mean((2, 3))), labels)


class Classifier(nn.Module):
    """An encoder like BERT's with its embeddings, and a class a sentence."""

    def __init__(self, words=8000, width=256, layers=4, classes=2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(128, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, 0.0, "gelu", batch_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, ids, labels):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places))
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x[:, 0]), labels)


def mlp():
    teacher = torch.randn(784, 10)
    images = torch.randn(STEPS, 64, 784)
    batches = [(x, (x @ teacher).argmax(-1)) for x in images]
    return SimpleMLP(), batches, partial(torch.optim.Adam, lr=1e-3)


def gpt():
    batches = [(ids,) for ids in torch.randint(0, 256, (STEPS, 8, 65))]
    return Gpt(), batches, partial(torch.optim.AdamW, lr=1e-3)


def resnet18():
    images = torch.randn(8, 8, 3, 64, 64)
    batches = [(x, torch.randint(0, 10, (8,))) for x in images]
    rule = partial(torch.optim.SGD, lr=1e-3, momentum=0.9, weight_decay=1e-4)
    return ResNet18(), batches, rule


def bert():
    batches = [
        (torch.randint(0, 8000, (16, 64)), torch.randint(0, 2, (16,)))
        for _ in range(STEPS)
    ]
    return Classifier(), batches, partial(torch.optim.AdamW, lr=2e-5)


MODELS = {
    "mlp": (mlp, "MLP (784, 512, 512, 10; batch 64), Adam"),
    "gpt": (gpt, "GPT of 4 layers (8 x 64 tokens), AdamW"),
    "resnet18": (resnet18, "ResNet-18 (8 images of 64 x 64), SGD"),
    "bert": (bert, "encoder of 4 layers (16 x 64 tokens), AdamW"),
}


# ---- ways to train: way(compile, model, rule) gives step(batch) -------------


def eager(_compile, model, rule):
    return _loop(model, rule, rule.step)


def compile_model(compile, model, rule):
    return _loop(compile(model), rule, rule.step)


def compile_both(compile, model, rule):
    return _loop(compile(model), rule, compile(rule.step))


def compile_step(compile, model, rule):
    return compile(_loop(model, rule, rule.step))


def compile_joint(compile, model, rule):
    def gradients(*batch):
        loss = model(*batch)
        loss.backward()
        return loss.detach()

    gradients, update = compile(gradients), compile(rule.step)

    def step(*batch):
        rule.zero_grad(set_to_none=True)
        loss = gradients(*batch)
        update()
        return loss

    return step


def _loop(forward, rule, update):
    def step(*batch):
        rule.zero_grad(set_to_none=True)
        loss = forward(*batch)
        loss.backward()
        update()
        return loss.detach()

    return step


WAYS = {
    "eager": (None, eager),
    "the model compiled": (OURS, compile_model),
    "and `optimizer.step`": (OURS, compile_both),
    "the whole step in one function": (OURS, compile_step),
    "forward and backward as one graph, and `optimizer.step`": (
        OURS,
        compile_joint,
    ),
    "Inductor: the model and `optimizer.step`": (THEIRS, compile_both),
    "Inductor: one graph, and `optimizer.step`": (THEIRS, compile_joint),
}


def prepare(make, ways):
    """name -> step of no arguments; every way starts from the same weights."""
    torch.manual_seed(0)
    model, batches, optimizer = make()
    steps = {}
    for name, (backend, way) in ways.items():
        mine = copy.deepcopy(model)
        compile = BACKENDS[backend] if backend else None
        step = way(compile, mine, optimizer(mine.parameters()))
        source = itertools.cycle(batches)
        steps[name] = partial(_one, step, source)
    return steps


def _one(step, source):
    return step(*next(source))


# ---- measuring --------------------------------------------------------------


def measure(steps, turns):
    """name -> milliseconds, name -> losses."""
    times = {name: [] for name in steps}
    losses = {name: [] for name in steps}
    for turn in range(STEPS + turns):
        for name, step in steps.items():
            start = time.process_time()
            loss = step()
            spent = time.process_time() - start
            if turn < STEPS:
                losses[name].append(float(loss))
            else:
                times[name].append(spent)
    third = turns // 3
    return {n: sorted(t)[third] * 1e3 for n, t in times.items()}, losses


def worst(losses, reference):
    return max(
        abs(a - b) / max(1.0, abs(b))
        for a, b in zip(losses, reference, strict=True)
    )


def resident():
    """Megabytes of this process now."""
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 1e6


def growth(step, steps):
    """Megabytes that `steps` steps add, once as many as a tenth were done."""
    for _ in range(max(5, steps // 10)):
        step()
    before = resident()
    for _ in range(steps):
        step()
    return resident() - before


def report(title, steps, arguments):
    times, losses = measure(steps, arguments.turns)
    base = times["eager"]
    print(f"\n{title}\n\n| | ms | | losses |\n|---|---|---|---|")
    for name, ms in times.items():
        error = worst(losses[name], losses["eager"])
        ratio = "" if name == "eager" else f"{base / ms:.2f} ×"
        print(f"| {name} | {ms:.2f} | {ratio} | {error:.1e} |")
    if arguments.memory:
        print()
    for name, step in steps.items() if arguments.memory else ():
        added = growth(step, arguments.memory)
        print(f"{arguments.memory} steps, {name}: {added:+.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", type=int, default=0, metavar="STEPS")
    parser.add_argument("--no-inductor", action="store_true")
    arguments = parser.parse_args()
    for name in arguments.models:
        if name not in MODELS:
            parser.error(f"{name} is none of {', '.join(MODELS)}")
    torch.set_num_threads(arguments.threads)
    torch._dynamo.config.trace_autograd_ops = True
    # All ways compile the same code of torch.optim.
    torch._dynamo.config.recompile_limit = 64
    ways = {
        name: way
        for name, way in WAYS.items()
        if not (arguments.no_inductor and way[0] == THEIRS)
    }
    for name in arguments.models or MODELS:
        torch._dynamo.reset()
        make, title = MODELS[name]
        report(title, prepare(make, ways), arguments)


if __name__ == "__main__":
    main()
