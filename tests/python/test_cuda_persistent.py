"""Persistent kernels on a GPU: what they compute, each setting in a process of
its own, and which steps become one."""

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


# ---- where they pay ----


class Block(nn.Module):
    """Its products read 25 MB each in the mean, where width is 2048."""

    def __init__(self, width):
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

    def __init__(self, width=2048):
        super().__init__()
        self.first, self.second = Block(width), Block(width)

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


def run(net, rows, config):
    """What explain says, and that the numbers are those of eager mode."""
    net = net.cuda().bfloat16()
    width = next(net.parameters()).shape[0]
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    backend = torchair.get_npu_backend(compiler_config=config)
    fast = torch.compile(net, backend=backend, dynamic=False)
    for _ in range(4):
        near(fast(x), net(x))
    return lists(net, x, config)


@needs_gpu
@torch.no_grad()
@pytest.mark.parametrize("how", CONFIGS)
def test_a_super_kernel_is_persistent(how):
    torch.manual_seed(0)
    (said,) = run(Net(), 1, CONFIGS[how])
    assert "1 persistent kernel of" in said


@needs_gpu
@torch.no_grad()
def test_one_row_of_large_weights_is_persistent():
    torch.manual_seed(0)
    (said,) = run(Block(2048), 1, config_of("max-autotune"))
    assert "1 persistent kernel of 2 phases" in said
    assert run(Block(2048), 1, config_of("reduce-overhead")) == []


@needs_gpu
@torch.no_grad()
def test_what_does_not_pay_is_launches():
    torch.manual_seed(0)
    assert run(Block(2048), 2, config_of("max-autotune")) == []
    assert run(Block(256), 1, config_of("max-autotune")) == []
    (said,) = run(Net(256), 1, CONFIGS["scope"])
    assert "no persistent kernel: weights so small" in said
    (said,) = run(Net(), 2, CONFIGS["scope"])
    assert "no persistent kernel: products of several rows" in said


@needs_gpu
@torch.no_grad()
def test_threads_run_one_persistent_kernel():
    """Each on a stream of its own."""
    torch.manual_seed(0)
    net = Net().cuda().bfloat16()
    rows = torch.randn(4, 1, 2048, device="cuda", dtype=torch.bfloat16)
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
