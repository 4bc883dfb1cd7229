"""A model with cached methods; also run as a script in fresh processes, where
it prints what it computed and what was imported."""

import dataclasses
import json
import sys

import torch
import torch.nn.functional as F

import torchair
from torchair.inference import cache_compile


@dataclasses.dataclass
class Where:
    step: torch.Tensor
    caches: list


class Model(torch.nn.Module):
    def __init__(self, width=4, **options):
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(width, width)
        self.register_buffer("cache", torch.zeros(8, width))
        self.factor = 2.0
        self.cached_prompt = cache_compile(self.prompt, **options)
        self.cached_decode = cache_compile(self.decode, **options)
        self.cached_scaled = cache_compile(self.scaled, **options)
        self.cached_noisy = cache_compile(self.noisy, **options)
        self.cached_view = cache_compile(self.view, **options)
        self.cached_attend = cache_compile(self.attend, **options)

    def _forward(self, x, where):
        self.cache[: x.shape[0]].copy_(x)
        self.longest = x.shape[0]
        where.caches[0].add_(1)
        bessel = torch.special.bessel_j0(x)  # no row in the op table
        return {"y": self.linear(x) * where.step, "b": (bessel, x.shape[0])}

    def prompt(self, x, where):
        return self._forward(x, where)

    def decode(self, x, where, *, twice=False):
        found = self._forward(x, where)
        return (found, found["y"] * 2) if twice else found

    def scaled(self, x, n):
        return x * self.factor + n

    def noisy(self, x):
        return torch.dropout(x, 0.5, True)

    def view(self, x):
        return x[1:], x.relu()

    def attend(self, x):
        heads = x.view(1, 2, -1, 8)
        return F.scaled_dot_product_attention(heads, heads, heads)


def call(method, size=3):
    x = torch.linspace(-1, 1, size * 4).reshape(size, 4)
    return method(x, Where(torch.tensor(2.5), [torch.zeros(2)]))


def flat(found):
    return [*found["y"].flatten().tolist(), *found["b"][0].flatten().tolist()]


def main(folder, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    model = Model(config=config, cache_dir=folder)
    found = [flat(call(model.cached_prompt, n)) for n in (3, 5, 3)]
    found += [flat(call(model.cached_decode))]
    state = [*model.cache[:6, 0].tolist(), model.longest]
    dynamo = [m for m in sys.modules if m.startswith("torch._dynamo")]
    print(json.dumps({"found": found, "state": state, "dynamo": dynamo}))


if __name__ == "__main__":
    main(*sys.argv[1:])
