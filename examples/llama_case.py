"""LLaMA inference as the TorchAir guide tunes it, in both modes.

    python examples/llama_case.py                    # half a minute
    python examples/llama_case.py --layers 16 --width 1024

The steps of the guide's case: one compiled graph for prefill and one for
decode; a key/value cache of fixed size, updated in place at a position that is
an input; add and RMS norm in one operator; cos and sin once a step; q, k and v
from one matrix; logits of the newest position only; weights that stay where
they are (`frozen_parameter`) in the device's own format. Weights are random.

With torch_npu (packages/torch_npu) the model lies on device npu, over host
memory; eager runs on the CPU either way, which is the faster of the two.
"""

import argparse
import copy
import importlib.util
import time

import torch
import torch.nn.functional as F
from torch import nn

import torchair

HAS_NPU = importlib.util.find_spec("torch_npu") is not None
if HAS_NPU:
    import torch_npu
MODES = "max-autotune", "reduce-overhead"


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, residual=None):
        """The norm of x + residual, and that sum."""
        if HAS_NPU and residual is None:
            return torch_npu.npu_rms_norm(x, self.weight, 1e-6)[0], x
        if HAS_NPU:
            y, _, x = torch_npu.npu_add_rms_norm(x, residual, self.weight, 1e-6)
            return y, x
        x = x if residual is None else x + residual
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6), x


def update(cache, position, new):
    """Writes new [B, T, ...] at positions [B] of the cache [B, S, ...]."""
    if HAS_NPU:
        torch_npu.scatter_update_(cache, position, new, 1)
    else:
        steps = torch.arange(new.shape[1])[None, :, None, None]
        index = position[:, None, None, None] + steps
        cache.scatter_(1, index.expand_as(new), new)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.head = width // heads
        self.sizes = [width] + [kv_heads * self.head] * 2
        self.attention_norm = RMSNorm(width)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = RMSNorm(width)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, residual, angles, cache, position, mask):
        y, residual = self.attention_norm(x, residual)
        q, k, v = (
            t.unflatten(-1, (-1, self.head))
            for t in self.qkv(y).split(self.sizes, -1)
        )
        q, k = rotate(q, *angles), rotate(k, *angles)
        update(cache[0], position, k)
        update(cache[1], position, v)
        if mask is not None:  # decode looks at the cache, prefill at its own
            k, v = cache
        y = F.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)),
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        y = self.out(y.transpose(1, 2).flatten(-2))
        y, residual = self.mlp_norm(y, residual)
        gate, up = self.gate_up(y).chunk(2, -1)
        return self.down(F.silu(gate) * up), residual


class Llama(nn.Module):
    """Tokens [B, T] from positions [B] on: logits of the last one."""

    def __init__(self, args):
        super().__init__()
        self.args, head = args, args.width // args.heads
        self.embedding = nn.Embedding(args.vocabulary, args.width)
        self.layers = nn.ModuleList(
            Layer(args.width, args.heads, args.kv_heads, args.hidden)
            for _ in range(args.layers)
        )
        self.norm = RMSNorm(args.width)
        self.logits = nn.Linear(args.width, args.vocabulary, bias=False)
        step = 10000.0 ** -(torch.arange(0, head, 2) / head)
        angles = torch.arange(args.longest)[:, None] * step
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def forward(self, tokens, position, cache):
        length = tokens.shape[1]
        steps = torch.arange(length, device=tokens.device)
        where = position[:, None] + steps
        angles = self.cos[where], self.sin[where]
        mask = None
        if length == 1:
            every = torch.arange(self.args.longest, device=tokens.device)
            mask = (every <= position[:, None])[:, None, None]
        x, residual = self.embedding(tokens), None
        for layer, pair in zip(self.layers, cache, strict=True):
            x, residual = layer(x, residual, angles, pair, position, mask)
        x, _ = self.norm(x[:, -1:], residual[:, -1:])
        return self.logits(x[:, -1])

    def cache(self):
        args, weight = self.args, self.logits.weight
        head = args.width // args.heads
        shape = args.batch, args.longest, args.kv_heads, head
        new = weight.new_zeros
        return [(new(shape), new(shape)) for _ in self.layers]


def npu_backend(mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    config.experimental_config.frozen_parameter = True
    return torchair.get_npu_backend(compiler_config=config)


@torch.no_grad()
def generate(model, prompt, count, forward=None):
    """Tokens, logits of the prompt, seconds of prefill and of a decode step."""
    forward = model if forward is None else forward
    device, cache = model.logits.weight.device, model.cache()
    tokens, found, begins = prompt.to(device), [], []
    position = torch.zeros(len(prompt), dtype=torch.int64, device=device)
    first = None
    for _ in range(count + 1):
        begins.append(time.perf_counter())
        logits = forward(tokens, position, cache)
        first = logits.cpu() if first is None else first
        position = position + tokens.shape[1]
        tokens = logits.argmax(-1, keepdim=True)
        found.append(tokens.cpu())
    steps = [b - a for a, b in zip(begins, begins[1:], strict=False)]
    decode = sorted(steps[1:])[len(steps[1:]) // 2]
    return torch.cat(found, 1), first, steps[0], decode


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (
        ("layers", 4),
        ("width", 512),
        ("heads", 8),
        ("kv-heads", 4),
        ("hidden", 1408),
        ("vocabulary", 4096),
        ("batch", 1),
        ("prompt", 64),
        ("tokens", 16),
        ("turns", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    args.longest = args.prompt + args.tokens + 1
    return args


def main():
    args = arguments()
    torch.manual_seed(0)
    eager = Llama(args)
    model = copy.deepcopy(eager)
    if HAS_NPU:
        model.npu()
        torchair.use_internal_format_weight(model)
    prompt = torch.randint(args.vocabulary, (args.batch, args.prompt))
    forwards = {"eager": (eager, None)}
    for mode in MODES:
        run = torch.compile(
            model, backend=npu_backend(mode), dynamic=True, fullgraph=True
        )
        began = time.perf_counter()
        generate(model, prompt, 2, run)
        print(f"{mode}: compiled in {time.perf_counter() - began:.1f} s")
        forwards[mode] = model, run
    want, exact, _, _ = generate(eager, prompt, args.tokens)
    times = {name: [] for name in forwards}
    for _ in range(args.turns):
        for name, (owner, run) in forwards.items():
            tokens, logits, *seconds = generate(owner, prompt, args.tokens, run)
            torch.testing.assert_close(logits, exact, rtol=1e-3, atol=1e-4)
            assert torch.equal(tokens, want), f"{name}: other tokens"
            times[name].append(seconds)
    print(f"\n{'ms':16} {'prefill':>9} {'decode':>9}   speed-up over eager")
    base = [min(column) for column in zip(*times["eager"], strict=True)]
    for name, rows in times.items():
        best = [min(column) for column in zip(*rows, strict=True)]
        gain = ", ".join(
            f"{b / t:.2f} x" for b, t in zip(base, best, strict=True)
        )
        print(f"{name:16} {best[0] * 1e3:9.2f} {best[1] * 1e3:9.3f}   {gain}")


if __name__ == "__main__":
    main()
