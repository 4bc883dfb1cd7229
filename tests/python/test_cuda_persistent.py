"""Persistent kernels on a GPU: what they compute, each setting in a process of
its own, and which super kernels become one."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import torchair

CASE = os.path.join(os.path.dirname(__file__), "cuda_persistent_case.py")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available()
    or torch.cuda.get_device_capability() < (9, 0),
    reason="needs a GPU of compute capability 9.0",
)


def errors(setting, batch, folder, *more):
    names = {
        "TORCHAIR_CUDA_PERSISTENT": setting,
        "TORCHAIR_CACHE_DIR": str(folder),
    }
    found = subprocess.run(
        [sys.executable, CASE, str(batch), *more],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return list(map(float, found.stdout.split()))


@needs_gpu
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("setting", ["0", "1", "check"])
def test_decode(setting, batch, tmp_path):
    ours, eager, caches, same = errors(setting, batch, tmp_path)
    assert ours <= 1.1 * eager + 1e-3
    assert caches < 1e-2
    assert same == 1


@needs_gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("length", ["1024", "1100"])
@pytest.mark.parametrize("batch", [1, 3])
def test_long_cache(batch, length, dtype, tmp_path):
    """Attention hands on parts, to a product that puts them together."""
    ours, eager, caches, same = errors(
        "1", batch, tmp_path, "cuda", length, dtype
    )
    assert ours <= 1.1 * eager + 1e-3
    assert caches < 1e-2
    assert same == 1


# ---- super kernels ----


class Block(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Net(nn.Module):
    """Two blocks, the first one in a super kernel."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x):
        with torchair.scope.super_kernel("first"):
            x = self.first(x)
        return self.second(x)


def lists(fn, x, config):
    """What explain says of the lists of launches."""
    text = str(torchair.explain(fn, x, compiler_config=config))
    return [s for s in text.splitlines() if "persistent kernel" in s]


def config_of(mode, merged=False):
    made = torchair.CompilerConfig()
    made.mode = mode
    if merged:
        aclgraph = made.experimental_config.aclgraph
        aclgraph._super_kernel_optimize = True
    return made


def near(got, want):
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)


CONFIGS = {
    "scope": config_of("max-autotune"),
    "capture": config_of("reduce-overhead", merged=True),
}


@needs_gpu
@torch.no_grad()
@pytest.mark.parametrize("how", CONFIGS)
def test_a_super_kernel_is_persistent(how):
    torch.manual_seed(0)
    net = Net().cuda().bfloat16()
    x = torch.randn(1, 256, device="cuda", dtype=torch.bfloat16)
    backend = torchair.get_npu_backend(compiler_config=CONFIGS[how])
    fast = torch.compile(net, backend=backend)
    for _ in range(4):
        near(fast(x), net(x))
    (said,) = lists(net, x, CONFIGS[how])
    assert "1 persistent kernel of" in said


@needs_gpu
@torch.no_grad()
def test_other_steps_are_launches():
    torch.manual_seed(0)
    net = Net().cuda().bfloat16()
    x = torch.randn(1, 256, device="cuda", dtype=torch.bfloat16)
    assert lists(net.second, x, CONFIGS["scope"]) == []


@needs_gpu
@torch.no_grad()
def test_threads_run_one_persistent_kernel():
    """Each on a stream of its own."""
    torch.manual_seed(0)
    net = Net().cuda().bfloat16()
    rows = torch.randn(4, 1, 256, device="cuda", dtype=torch.bfloat16)
    want = [net(x) for x in rows]
    fast = torch.compile(
        net, backend=torchair.get_npu_backend(compiler_config=CONFIGS["scope"])
    )
    fast(rows[0])
    torch.cuda.synchronize()

    def serve(i):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            found = [fast(rows[i]) for _ in range(200)]
            torch.cuda.current_stream().synchronize()
        return found

    with ThreadPoolExecutor(len(rows)) as pool:
        for found, right in zip(pool.map(serve, range(4)), want, strict=True):
            for got in found:
                near(got, right)
                assert torch.equal(got, found[0])
