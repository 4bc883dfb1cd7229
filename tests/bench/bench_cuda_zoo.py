"""Milliseconds of a call, or of a training step, of models of other kinds on a
GPU, written in plain PyTorch; in turns: eager, Inductor and the two modes.
Medians of rounds, by events.

    python tests/bench/bench_cuda_zoo.py [NAME ...]      # parts of names
    --inductor=default,reduce-overhead    # or "" for none
    --warm      only compiles, a process a model, so that Inductor's caches are
                filled by all cores
    --kernels=N names of the N kernels that take the most time, and their ms

MobileNet-V2 and ResNet-50 are torchvision's. Where a name has "tf32", products
of float32 may be so (`high` is the precision of products). Errors are relative,
of the result or the loss, against eager's.
"""

import collections
import copy
import statistics
import sys
import time
from dataclasses import dataclass

import examples_path  # noqa: F401
import gpu
import tiny_llama as llama
import torch
import torch.nn.functional as F
from bench_cuda_models import chosen, options, ours
from models import Gpt
from torch import nn

from torchair import backend

ROUNDS, CALLS = gpu.rounds(5), 10
SMALL = not gpu.FOUND
FAST = "tf32"


@dataclass
class Case:
    """inputs: of a call; trains: its result is a loss, a step is forward,
    backward and the optimizer's; autocast: to bfloat16."""

    model: nn.Module
    inputs: tuple
    trains: bool = False
    autocast: bool = False


def sized(usual, small):
    return small if SMALL else usual


class Attention(nn.Module):
    def __init__(self, width, heads, context=None):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.pair = nn.Linear(context or width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x, context=None, mask=None):
        k, v = self.pair(x if context is None else context).chunk(2, -1)
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.query(x), k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(-2))


class Encoder(nn.Module):
    """Layers with a mask of padding, as batches of texts have it."""

    def __init__(self, width, heads, layers, words=1000):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "attention": Attention(width, heads),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.end = nn.Linear(width, words)

    def forward(self, ids, there=None):
        x = self.words(ids)
        mask = None if there is None else there[:, None, None]
        for layer in self.layers:
            x = x + layer["attention"](layer["norm"](x), mask=mask)
            x = x + layer["down"](F.gelu(layer["up"](layer["norm2"](x))))
        return self.end(x)


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        y = self.model(ids).flatten(0, 1).float()
        return F.cross_entropy(y, ids.flatten())


class Classified(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image, kind):
        return F.cross_entropy(self.model(image).float(), kind)


class Residual(nn.Module):
    def __init__(self, inner, outer, time):
        super().__init__()
        self.norm = nn.GroupNorm(32, inner)
        self.conv = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.norm2 = nn.GroupNorm(32, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1)

    def forward(self, x, t):
        y = self.conv(F.silu(self.norm(x)))
        y = y + self.time(F.silu(t))[..., None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Transformer(nn.Module):
    """Of a map's places, which look at each other and at a text."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own = Attention(width, heads)
        self.cross = Attention(width, heads, context)
        self.up = nn.Linear(width, 8 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, context):
        y = x.flatten(2).transpose(1, 2)
        y = y + self.own(self.norms[0](y))
        y = y + self.cross(self.norms[1](y), context)
        a, b = self.up(self.norms[2](y)).chunk(2, -1)
        y = y + self.down(a * F.gelu(b))
        return y.transpose(1, 2).unflatten(2, x.shape[2:])


class UNet(nn.Module):
    """Two levels of a latent diffusion's, and its middle."""

    def __init__(self, width, heads, context, time):
        super().__init__()
        wide = 2 * width
        self.begin = nn.Conv2d(4, width, 3, padding=1)
        self.first = Residual(width, width, time)
        self.look = Transformer(width, heads, context)
        self.down = nn.Conv2d(width, wide, 3, 2, 1)
        self.second = Residual(wide, wide, time)
        self.look2 = Transformer(wide, 2 * heads, context)
        self.middle = Residual(wide, wide, time)
        self.up = nn.Conv2d(wide, width, 3, padding=1)
        self.third = Residual(wide, width, time)
        self.look3 = Transformer(width, heads, context)
        self.norm = nn.GroupNorm(32, width)
        self.end = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, t, context):
        a = self.look(self.first(self.begin(x), t), context)
        b = self.look2(self.second(self.down(a), t), context)
        b = F.interpolate(self.middle(b, t), scale_factor=2.0)
        a = torch.cat([a, self.up(b)], 1)
        a = self.look3(self.third(a, t), context)
        return self.end(F.silu(self.norm(a)))


class ConvNeXt(nn.Module):
    """Blocks of ConvNeXt-T, in the channels-last form of its authors."""

    def __init__(self, widths=(96, 192, 384, 768), depths=(3, 3, 9, 3)):
        super().__init__()
        layers = [nn.Conv2d(3, widths[0], 4, 4)]
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if i > 0:
                layers.append(nn.GroupNorm(1, widths[i - 1]))
                layers.append(nn.Conv2d(widths[i - 1], width, 2, 2))
            layers.extend(ConvNeXt.Block(width) for _ in range(depth))
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 1000)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)
            self.scale = nn.Parameter(torch.full((width,), 0.1))

        def forward(self, x):
            y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
            y = self.scale * self.down(F.gelu(self.up(y)))
            return x + y.permute(0, 3, 1, 2)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class Recommender(nn.Module):
    """DLRM: tables, the products of all pairs of them, an MLP on both sides."""

    def __init__(self, tables, rows, width, wide):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)
        )
        self.bottom = nn.Sequential(
            nn.Linear(13, wide), nn.ReLU(), nn.Linear(wide, width), nn.ReLU()
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, wide),
            nn.ReLU(),
            nn.Linear(wide, wide),
            nn.ReLU(),
            nn.Linear(wide, 1),
        )
        self.register_buffer(
            "at", torch.tril_indices(tables + 1, tables + 1, -1)
        )

    def forward(self, dense, ids):
        x = self.bottom(dense)
        found = [table(i) for table, i in zip(self.tables, ids, strict=True)]
        all = torch.stack([x, *found], 1)
        pairs = (all @ all.transpose(1, 2))[:, self.at[0], self.at[1]]
        return self.top(torch.cat([x, pairs], 1))


# ---- cases ----


def llama_of(tokens):
    config = sized(
        llama.Config(32000, 2048, 16, 32, 8, 8192, 4096), llama.Config()
    )
    model = llama.Llama(config).to(torch.bfloat16)
    return Case(model, (ids(config.vocabulary, 1, sized(tokens, 32)),))


def ids(words, *shape):
    return torch.randint(words, shape)


def gpt_step():
    """Weights of float32, products of bfloat16."""
    config = sized(
        llama.Config(32000, 768, 12, 12, 12, 2048, 1024), llama.Config()
    )
    tokens = ids(config.vocabulary, sized(8, 2), sized(1025, 33))

    return Case(Gpt(config), (tokens,), trains=True, autocast=True)


def encoder(batch, length, dtype, masked=False):
    model = Encoder(*sized((768, 12, 12), (64, 2, 2))).to(dtype)
    inputs = (ids(1000, sized(batch, 2), sized(length, 16)),)
    if masked:
        size = inputs[0].shape
        lengths = torch.randint(size[1] // 2, size[1] + 1, (size[0], 1))
        inputs += (torch.arange(size[1]) < lengths,)
    return Case(model, inputs)


def encoder_step():
    found = encoder(16, 128, torch.float32)
    return Case(Loss(found.model), found.inputs, trains=True)


def unet():
    width, heads, context, time, size = sized(
        (320, 8, 768, 1280, 64), (32, 2, 16, 16, 8)
    )
    model = UNet(width, heads, context, time).to(torch.bfloat16)
    inputs = (
        torch.randn(2, 4, size, size),
        torch.randn(2, time),
        torch.randn(2, 77, context),
    )
    return Case(model, tuple(x.bfloat16() for x in inputs))


def convnext():
    model = ConvNeXt(*sized((), ((8, 16), (1, 1)))).to(torch.bfloat16)
    size = sized((32, 3, 224, 224), (2, 3, 32, 32))
    return Case(model, (torch.randn(size).bfloat16(),))


def mobilenet(dtype):
    from torchvision.models import mobilenet_v2

    size = sized((32, 3, 224, 224), (2, 3, 32, 32))
    return Case(mobilenet_v2().eval().to(dtype), (torch.randn(size).to(dtype),))


def resnet_step():
    from torchvision.models import resnet50

    size = sized((64, 3, 224, 224), (2, 3, 32, 32))
    inputs = (torch.randn(size), ids(1000, size[0]))
    return Case(Classified(resnet50()), inputs, trains=True, autocast=True)


def recommender():
    tables, rows, width, wide, batch = sized(
        (26, 100000, 64, 512, 4096), (3, 100, 8, 16, 4)
    )
    model = Recommender(tables, rows, width, wide)
    return Case(model, (torch.randn(batch, 13), ids(rows, tables, batch, 4)))


CASES = {
    "Llama-1B, 512 tokens, bf16": lambda: llama_of(512),
    "Llama-1B, 2048 tokens, bf16": lambda: llama_of(2048),
    "GPT step, 8 x 1024, autocast": gpt_step,
    "encoder, 16 x 512, masked, bf16": lambda: encoder(
        16, 512, torch.bfloat16, True
    ),
    "encoder, 16 x 128, tf32": lambda: encoder(16, 128, torch.float32),
    "encoder, 4 x 512, masked, f32": lambda: encoder(
        4, 512, torch.float32, True
    ),
    "encoder step, 16 x 128, tf32": encoder_step,
    "U-Net, 2 x 64 x 64, bf16": unet,
    "ConvNeXt-T, 32 images, bf16": convnext,
    "MobileNet-V2, 32 images, bf16": lambda: mobilenet(torch.bfloat16),
    "MobileNet-V2, 32 images, f32": lambda: mobilenet(torch.float32),
    "ResNet-50 step, 64 images, autocast": resnet_step,
    "DLRM, 4096, tf32": recommender,
}


def stepping(case, call):
    if not case.trains:

        def infer():
            with torch.no_grad():
                return call(*case.inputs)

        return infer
    rule = torch.optim.AdamW(call.parameters(), 1e-4, fused=gpu.FOUND)

    def step():
        rule.zero_grad()
        with torch.autocast(gpu.DEVICE, torch.bfloat16, case.autocast):
            loss = call(*case.inputs)
        loss.backward()
        rule.step()
        return loss.detach()

    return step


def ways(inductor):
    yield "eager", lambda model: model
    for mode in inductor:
        yield (
            f"Inductor {mode}",
            lambda model, mode=mode: torch.compile(model, mode=mode),
        )
    for mode in ("reduce-overhead", "max-autotune"):
        yield mode, lambda model, mode=mode: ours(model, mode)


def start(case, inductor):
    """By way: its step, seconds of the first one, what the third one gave."""
    made = {}
    torch._dynamo.reset()
    for way, compile in ways(inductor):
        step = stepping(case, compile(copy.deepcopy(case.model)))
        begin = time.perf_counter()
        step()
        gpu.synchronize()
        first = time.perf_counter() - begin
        step()
        made[way] = step, first, step().double().clone()
    return made


def kernels(step, count, calls=4):
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(calls):
            step()
        gpu.synchronize()
    events = found.key_averages()
    all = sum(e.self_device_time_total for e in events)
    print(f"    {all / calls / 1e3:8.3f} ms of kernels")
    for e in sorted(events, key=lambda e: -e.self_device_time_total)[:count]:
        ms = e.self_device_time_total / calls / 1e3
        print(f"    {ms:8.3f} ms {e.count / calls:6.1f} x {e.key[:110]}")


def outside(record):
    """HOST nodes that cut its graph in two: how many, by why."""
    capture = record.program().stats().get("capture") or {}
    why = [line.partition(": ")[2] for line in capture.get("hosts", ())]
    return dict(collections.Counter(w for w in why if w != "in the graph"))


def show(name, case, inductor, count):
    backend.records.clear()
    made = start(case, inductor)
    hosts = [len(r.hosts) for r in backend.records]
    spent = {way: [] for way in made}
    for _ in range(ROUNDS):
        for way, (step, *_) in made.items():
            spent[way].append(gpu.milliseconds(step, (), CALLS))
    cuts = [outside(r) for r in backend.records]
    print(f"{name}: HOST {hosts}, outside of graphs {cuts}")
    want = made["eager"][2]
    for way, times in spent.items():
        ms, (_, first, found) = statistics.median(times), made[way]
        error = ((found - want).norm() / want.norm()).item()
        print(f"  {way:25s} {ms:8.3f} ms  first {first:.1f} s, {error:.1e}")
        gpu.note("zoo", name, way, ms=ms, first_s=first, error=error)
        if count:
            kernels(made[way][0], count)
    sys.stdout.flush()


def main():
    parser = options()
    parser.add_argument("--kernels", type=int, default=0)
    asked = parser.parse_args()
    names, inductor = chosen(asked, CASES, __file__)
    for name in names:
        precision = "high" if FAST in name else "highest"
        torch.set_float32_matmul_precision(precision)
        torch.manual_seed(0)
        case = CASES[name]()
        case.model.to(gpu.DEVICE)
        case.inputs = tuple(x.to(gpu.DEVICE) for x in case.inputs)
        if asked.one:
            start(case, inductor)
        else:
            show(name, case, inductor, asked.kernels)


if __name__ == "__main__":
    main()
