"""Milliseconds of a call of models on a GPU, in turns: eager, torch's own
CUDA graphs, Inductor, and the two modes. Medians of 5 times 20 calls.

    python tests/bench/bench_cuda_models.py [NAME ...]    # parts of names
    --inductor=default,reduce-overhead,max-autotune       # or "" for none
    --warm      only compiles, a process a model, so that Inductor's caches are
                filled by all cores

Errors are against float64 of the same weights, relative, of at most two inputs
of the batch, ours beside eager's. Needs transformers and torchvision.
"""

import argparse
import copy
import statistics
import subprocess
import sys
import time

import gpu
import torch
from torch import nn

import torchair
from torchair import backend

ROUNDS, CALLS = gpu.rounds(5), 20


class Encoder(nn.Module):
    """Of a transformers model the last hidden state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids)[0]


def bert(width, layers, dtype):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=4 * width,
    )
    return Encoder(BertModel(config, add_pooling_layer=False)).to(dtype)


def tokens(batch):
    return torch.randint(0, 1000, (batch, 128))


def images(batch, dtype):
    return torch.randn(batch, 3, 224, 224).to(dtype)


def resnet():
    from torchvision.models import resnet50

    return resnet50()


def vit():
    from torchvision.models import vit_b_16

    model = vit_b_16()
    nn.init.normal_(model.heads.head.weight, std=0.02)  # zeros otherwise
    return model.bfloat16()


MODELS = {
    "MiniLM bf16": (lambda: bert(384, 6, torch.bfloat16), tokens, (1, 64)),
    "BERT base bf16": (lambda: bert(768, 12, torch.bfloat16), tokens, (1, 32)),
    "ResNet-50 f32": (resnet, lambda n: images(n, torch.float32), (1, 64)),
    "ViT-B/16 bf16": (vit, lambda n: images(n, torch.bfloat16), (1, 32)),
}


def ours(model, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(model, backend=made)


def ways(model, x, inductor):
    yield "eager", lambda: model
    yield "CUDA graph", lambda: gpu.graph_of(model, x)
    for mode in inductor:
        yield (
            f"Inductor {mode}",
            lambda mode=mode: torch.compile(model, mode=mode),
        )
    for mode in ("reduce-overhead", "max-autotune"):
        yield mode, lambda mode=mode: ours(model, mode)


def prepared(name, make, x):
    """The function, and seconds of its first call."""
    torch._dynamo.reset()
    begin = time.perf_counter()
    fn = make()
    fn(x)
    gpu.synchronize()
    first = time.perf_counter() - begin
    for _ in range(4):
        found = fn(x)
    return fn, first, found[:2].double()


@torch.no_grad()
def show(name, batch, model, x, inductor):
    exact = copy.deepcopy(model).double()
    wide = x[:2].double() if x.is_floating_point() else x[:2]
    want = exact(wide)
    del exact
    made, notes = {}, {}
    backend.records.clear()
    for way, make in ways(model, x, inductor):
        fn, first, found = prepared(way, make, x)
        made[way] = fn
        error = ((found - want).norm() / want.norm()).item()
        notes[way] = {"first_s": first, "error": error}
    hosts = [len(r.hosts) for r in backend.records]
    torchs = [r.fallback for r in backend.records if r.fallback]
    spent = {way: [] for way in made}
    for _ in range(ROUNDS):
        for way, fn in made.items():
            spent[way].append(gpu.milliseconds(fn, (x,), CALLS))
    print(f"{name}, batch {batch}: HOST {hosts} {torchs}")
    for way, times in spent.items():
        ms, said = statistics.median(times), notes[way]
        print(
            f"  {way:25s} {ms:8.3f} ms  first {said['first_s']:.1f} s,"
            f" error {said['error']:.1e}"
        )
        gpu.note("models", f"{name} x {batch}", way, ms=ms, **said)
    sys.stdout.flush()


def warm(script, names, inductor):
    runs = [
        subprocess.Popen(
            [sys.executable, script, name, f"--inductor={inductor}", "--one"]
        )
        for name in names
    ]
    return max(run.wait() for run in runs)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--inductor", default="default,reduce-overhead")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser


def chosen(asked, known, script):
    """Names of the known ones, and modes of Inductor; for --warm the script
    ends here."""
    names = [
        n for n in known if not asked.names or any(a in n for a in asked.names)
    ]
    if not names:
        sys.exit(f"{asked.names}: none of " + "; ".join(known))
    if asked.warm:
        sys.exit(warm(script, names, asked.inductor))
    return names, [m for m in asked.inductor.split(",") if m]


def main():
    parser = options()
    parser.add_argument("--batch", type=int, help="this one only")
    asked = parser.parse_args()
    names, inductor = chosen(asked, MODELS, __file__)
    for name in names:
        make, inputs, batches = MODELS[name]
        torch.manual_seed(0)
        model = make().eval().to(gpu.DEVICE)
        for batch in batches if asked.batch is None else (asked.batch,):
            x = inputs(batch).to(gpu.DEVICE)
            if not asked.one:
                show(name, batch, model, x, inductor)
                continue
            for way, make_way in ways(model, x, inductor):
                with torch.no_grad():
                    prepared(way, make_way, x)


if __name__ == "__main__":
    main()
