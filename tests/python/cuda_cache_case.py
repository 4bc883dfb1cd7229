"""A model with a cached method on a GPU, in a process of its own: what it
computed and which modules of Dynamo it took, as a line of JSON.

    python cuda_cache_case.py FOLDER MODE DEVICE [ge]
"""

import json
import sys

import torch

import torchair
from torchair.inference import cache_compile


class Model(torch.nn.Module):
    def __init__(self, folder, mode, more):
        super().__init__()
        torch.manual_seed(3)
        self.image = torch.nn.Conv2d(3, 8, 3)
        self.pool = torch.nn.MaxPool2d(2)
        self.linear = torch.nn.Linear(8, 16)
        self.register_buffer("cache", torch.zeros(4, 16))
        config = torchair.CompilerConfig()
        config.mode = mode
        self.cached = cache_compile(
            self.step, config=config, cache_dir=folder, **more
        )

    def step(self, x, scale, at, shift):
        y = self.pool(self.image(x).relu()).mean((2, 3))
        y = torch.special.bessel_j0(self.linear(y))  # torch's
        self.cache.index_copy_(0, at, y[:1])
        y = y * scale + shift.to(y.device)
        return y + self.cache.sum(0), x.shape[2]


@torch.no_grad()
def main():
    folder, mode, device = sys.argv[1:4]
    more = {"ge_cache": True} if "ge" in sys.argv[4:] else {}
    torch.backends.cudnn.allow_tf32 = False
    model = Model(folder, mode, more).to(device)
    plain = Model(folder, mode, more).to(device)
    worst, found = 0.0, []
    for i, size in enumerate((12, 20, 12, 12, 12)):
        made = torch.Generator("cpu").manual_seed(i)
        x = torch.randn(2, 3, size, size, generator=made).to(device)
        at = torch.tensor([i % 4], device=device)
        args = x, torch.tensor(2.5), at, torch.arange(16) / (i + 1)
        (y, n), (want, m) = model.cached(*args), plain.step(*args)
        assert n == m and y.device == torch.device(device)
        worst = max(worst, (y - want).abs().max().item())
        found.append(y.double().sum().item())
    dynamo = [m for m in sys.modules if m.startswith("torch._dynamo.symbolic")]
    print(json.dumps({"worst": worst, "found": found, "dynamo": dynamo}))


main()
