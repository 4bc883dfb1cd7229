"""Persistent kernels on a GPU: what they compute, each setting in a process of
its own."""

import os
import subprocess
import sys

import pytest
import torch

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
