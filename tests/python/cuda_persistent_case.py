"""A decode step of two layers with its cache, compiled in a process of its own
(TORCHAIR_CUDA_PERSISTENT is read once): errors against float64 as one line.

    cuda_persistent_case.py BATCH [DEVICE [LENGTH [DTYPE]]]

Of a cache longer than LENGTH here the first keys are hidden, and of the last
head all of them.
"""

import copy
import sys

import torch
from torch import nn

import torchair

WIDTH, HEADS, KEYS, DEPTH, INNER, LENGTH = 256, 4, 2, 64, 512, 160
HIDDEN = 40


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        kv = KEYS * DEPTH

        def linear(a, b, bias=False):
            return nn.Linear(a, b, bias=bias)

        self.q, self.o = linear(WIDTH, WIDTH, True), linear(WIDTH, WIDTH)
        self.k, self.v = linear(WIDTH, kv), linear(WIDTH, kv)
        self.up, self.down = linear(WIDTH, INNER), linear(INNER, WIDTH)
        self.gate = linear(WIDTH, INNER)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))

    def forward(self, x, pos, mask, keys, values):
        b = x.shape[0]
        y = self.norms[0](x)
        q = self.q(y).view(b, 1, HEADS, DEPTH).transpose(1, 2)
        k = self.k(y).view(b, 1, KEYS, DEPTH).transpose(1, 2)
        v = self.v(y).view(b, 1, KEYS, DEPTH).transpose(1, 2)
        keys.index_copy_(2, pos, k)
        values.index_copy_(2, pos, v)
        y = nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(b, 1, WIDTH))
        y = self.norms[1](x)
        y = nn.functional.silu(self.gate(y)) * self.up(y)
        return x + self.down(y)


class Decode(nn.Module):
    def __init__(self, batch, length, dtype):
        super().__init__()
        # Of hidden keys; in float16 something of a score remains beside it.
        self.hidden = -6e4 if dtype == torch.float16 else -1e30
        self.table = nn.Embedding(300, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, 300, bias=False)
        for i in range(4):
            cache = torch.randn(batch, KEYS, length, DEPTH)
            self.register_buffer(f"cache{i}", cache)

    def forward(self, ids, pos):
        x = self.table(ids)
        at = torch.arange(self.cache0.shape[2], device=ids.device)
        mask = (at <= pos)[None, None, None]
        if len(at) > LENGTH:
            head = torch.arange(HEADS, device=ids.device)[:, None, None]
            mask = mask & (at >= HIDDEN) & (head < HEADS - 1)
            mask = torch.where(mask, 0.0, self.hidden).to(x.dtype)
        for i, layer in enumerate(self.layers):
            keys = getattr(self, f"cache{2 * i}")
            values = getattr(self, f"cache{2 * i + 1}")
            x = layer(x, pos, mask, keys, values)
        return self.head(x)


def error(found, want):
    return ((found.double() - want).norm() / want.norm()).item()


@torch.no_grad()
def main():
    batch = int(sys.argv[1])
    device = sys.argv[2] if len(sys.argv) > 2 else "cuda"
    length = int(sys.argv[3]) if len(sys.argv) > 3 else LENGTH
    dtype = getattr(torch, sys.argv[4] if len(sys.argv) > 4 else "bfloat16")
    torch.manual_seed(0)
    model = Decode(batch, length, dtype).to(device, dtype).eval()
    eager, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    backend = torchair.get_npu_backend(compiler_config=config)
    fast = torch.compile(model, backend=backend, dynamic=False)
    ours = theirs = 0.0
    for place in (0, 100, 101, length - 1, 3):
        ids = torch.randint(0, 300, (batch, 1), device=device)
        pos = torch.tensor([place], device=device)
        want = exact(ids, pos)
        ours = max(ours, error(fast(ids, pos), want))
        theirs = max(theirs, error(eager(ids, pos), want))
    caches = max(
        error(a, b)
        for (_, a), (_, b) in zip(
            model.named_buffers(), exact.named_buffers(), strict=True
        )
    )
    first = fast(ids, pos)
    same = all(torch.equal(fast(ids, pos), first) for _ in range(300))
    print(f"{ours} {theirs} {caches} {int(same)}")


main()
