"""A byte-level Llama trained on PyTorch's docstrings, then asked to write one.

    python examples/tiny_llama.py                       # trains for a minute
    python examples/tiny_llama.py --seconds 20 "torch.nn.Dropout"

Training runs a compiled step (forward and backward), decoding a compiled model
with a static key/value cache: one graph, whatever the position.
"""

import argparse
import math
import sys
import time
from dataclasses import dataclass

import measure
import torch
import torch.nn.functional as F
import torch_docs
from torch import nn

PROMPTS = "torch.nn.functional.", "torch.linalg.", "torch.optim.", "torch.s"
END = "\n"  # of a line
BATCH, LENGTH = 2, 224  # of a training step; as long as what is written
RATE, DECAY, WARM_UP = 1.5e-3, 0.1, 0.03


@dataclass(frozen=True)
class Config:
    vocabulary: int = 256
    width: int = 128
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 352
    longest: int = 256  # positions of the cache
    base: float = 10000.0  # of the rotary angles

    @property
    def head(self):
        return self.width // self.heads


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight


def rotate(x, cos, sin):
    """Rotary position embedding of [batch, head, position, channel]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, kv_width = config.width, config.kv_heads * config.head
        self.head = config.head
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, kv_width, bias=False)
        self.value = nn.Linear(width, kv_width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin, cache=None, position=None, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (-1, self.head)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k = cache[0].index_copy_(2, position, k)
            v = cache[1].index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, hidden = config.width, config.hidden
        self.norm_attention = RMSNorm(width)
        self.attention = Attention(config)
        self.norm_mlp = RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin, **cached):
        x = x + self.attention(self.norm_attention(x), cos, sin, **cached)
        y = self.norm_mlp(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Tokens to the logits of what follows each of them."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.logits = nn.Linear(config.width, config.vocabulary, bias=False)
        cos, sin = angles(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(_initialise)

    def forward(self, tokens):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return self.logits(self.norm(x))

    def loss(self, tokens):
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Decoder(nn.Module):
    """A trained Llama and its static cache: one call, one token."""

    def __init__(self, model, batch=1):
        super().__init__()
        config = model.config
        self.model = model
        kind = {
            "dtype": model.embedding.weight.dtype,
            "device": model.embedding.weight.device,
        }
        shape = (batch, config.kv_heads, config.longest, config.head)
        for i in range(config.layers):
            for name in ("key", "value"):
                self.register_buffer(f"{name}{i}", torch.zeros(shape, **kind))
        seen = torch.ones(config.longest, config.longest, dtype=torch.bool)
        self.register_buffer("seen", seen.tril().to(kind["device"]))

    def forward(self, tokens, position):
        model = self.model
        x = model.embedding(tokens)
        cos, sin = model.cos[position], model.sin[position]
        mask = self.seen[position]
        for i, block in enumerate(model.blocks):
            cache = (getattr(self, f"key{i}"), getattr(self, f"value{i}"))
            x = block(x, cos, sin, cache=cache, position=position, mask=mask)
        return model.logits(model.norm(x[:, -1]))


def angles(config):
    step = torch.arange(0, config.head, 2) / config.head
    angles = torch.arange(config.longest)[:, None] * config.base**-step
    return angles.cos(), angles.sin()


def _initialise(module):
    """Blocks begin as the identity, so that small steps add up at once."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.3)
    elif isinstance(module, Attention):
        nn.init.zeros_(module.out.weight)
    elif isinstance(module, Block):
        nn.init.zeros_(module.down.weight)


@dataclass(frozen=True)
class Text:
    """Bytes, and where its lines begin."""

    data: torch.Tensor
    starts: torch.Tensor


def training_text(lines=None):
    """The first sentences of the docstrings, unless other lines are given."""
    lines = [line.encode() for line in lines or torch_docs.lines()]
    data = torch.frombuffer(bytearray(b"".join(lines)), dtype=torch.uint8)
    ends = torch.tensor([len(line) for line in lines]).cumsum(0)
    return Text(data, torch.cat([torch.zeros_like(ends[:1]), ends[:-1]]))


def batches(text, count=BATCH, length=LENGTH, seed=0):
    """Windows of the text that begin with a line, at random, for ever."""
    generator = torch.Generator().manual_seed(seed)
    reach = torch.arange(length + 1)
    starts = text.starts[text.starts + length < len(text.data)]
    while True:
        which = torch.randint(len(starts), (count, 1), generator=generator)
        yield text.data[starts[which] + reach].long()


def trainer(model, loss):
    """step(tokens, progress) -> loss, where progress runs from 0 to 1."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=DECAY
    )

    def step(tokens, progress):
        optimizer.param_groups[0]["lr"] = RATE * _schedule(progress)
        optimizer.zero_grad(set_to_none=True)
        value = loss(tokens)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return value.detach()

    return step


def _schedule(progress):
    """Warm up, then a cosine down to a tenth."""
    if progress < WARM_UP:
        return progress / WARM_UP
    done = (progress - WARM_UP) / (1 - WARM_UP)
    return 0.55 + 0.45 * math.cos(math.pi * min(done, 1.0))


def train(model, text, compile, seconds=60.0, report=print):
    """Trains for a time; returns the losses of all steps."""
    step = trainer(model, compile(model.loss))
    source = batches(text)
    losses = [step(next(source), 0.0)]  # compiles: outside the budget
    began = time.perf_counter()
    told = 0.0
    while (spent := time.perf_counter() - began) < seconds:
        losses.append(step(next(source), spent / seconds))
        if spent - told >= seconds / 10:
            told = spent
            recent = torch.stack(losses[-20:]).mean()
            report(f"  step {len(losses):5}  {spent:4.0f} s  loss {recent:.3f}")
    return torch.stack(losses).tolist()


@torch.no_grad()
def write(decoder, prompt, count, longest):
    """Greedy decode: the prompt and up to `count` bytes of its line."""
    text = list((prompt or END).encode())[: longest - 1]
    for i in range(min(longest, len(text) + count) - 1):
        token, position = torch.tensor([[text[i]]]), torch.tensor([i])
        logits = decoder(token, position)
        if i + 1 < len(text):
            continue
        text.append(int(logits.argmax()))
        if text[-1] == ord(END):
            break
    return bytes(text).decode(errors="replace").strip(END)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("prompt", nargs="*", default=PROMPTS)
    options.add_argument("--seconds", type=float, default=60, help="training")
    options.add_argument("--bytes", type=int, default=200, help="to write")
    measure.add_backend_option(options)
    args = options.parse_args()

    torch.manual_seed(0)
    model = Llama(Config())
    compile = measure.compiler(args.backend, args.mode)
    print(
        f"training {_millions(model)} on the docstrings of torch, "
        f"{args.seconds:.0f} s, {args.backend} {args.mode or ''}"
    )
    train(model, training_text(), compile, args.seconds)
    decoder = compile(Decoder(model.eval()))
    for prompt in args.prompt:
        began = time.perf_counter()
        text = write(decoder, prompt, args.bytes, model.config.longest)
        print(f"\n{text}\n  ({time.perf_counter() - began:.2f} s)")
    return 0


def _millions(model):
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M weights"


if __name__ == "__main__":
    sys.exit(measure.run(main))
