"""cache_compile and artifacts of graphs on a GPU."""

import glob
import json
import os
import subprocess
import sys

import pytest
import torch
from helpers import recorded

import torchair
from torchair.artifacts import Compiled
from torchair.inference import readable_cache

HERE = os.path.dirname(__file__)
COUNT = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(COUNT < 1, reason="needs a GPU")
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def fresh(folder, *args):
    found = subprocess.run(
        [sys.executable, "cuda_cache_case.py", str(folder), *args],
        capture_output=True,
        text=True,
        cwd=HERE,
        timeout=200,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    assert "Warning" not in found.stderr, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def files(folder):
    path = os.path.join(folder, "**", "compiled_module")
    return sorted(glob.glob(path, recursive=True))


@modes
def test_a_fresh_process_needs_no_dynamo(mode, tmp_path):
    first = fresh(tmp_path, mode, "cuda:0")
    assert first.pop("dynamo")
    (path,) = files(tmp_path)
    assert "conv" in readable_cache(path)
    second = fresh(tmp_path, mode, "cuda:0")
    assert second.pop("dynamo") == []
    assert first["worst"] < 1e-4 and second["worst"] < 1e-4
    assert second["found"] == pytest.approx(first["found"], rel=1e-5)
    if COUNT > 1:
        other = fresh(tmp_path, mode, "cuda:1")
        assert other["dynamo"] and len(files(tmp_path)) == 2
        assert fresh(tmp_path, mode, "cuda:1")["dynamo"] == []


def test_with_the_engines_result(tmp_path):
    first = fresh(tmp_path, "max-autotune", "cuda:0", "ge")
    second = fresh(tmp_path, "max-autotune", "cuda:0", "ge")
    assert second["dynamo"] == [] and second["worst"] < 1e-4
    assert second["found"] == pytest.approx(first["found"], rel=1e-5)


@modes
def test_artifacts(mode):
    torch.set_default_device(None)
    config = torchair.CompilerConfig()
    config.mode = mode
    compiler = torchair.get_compiler(config)
    kept = []

    def backend(gm, inputs):
        from torch._dynamo.backends.common import aot_autograd

        def made(gm, inputs):
            kept.append(compiler(gm, inputs))
            return kept[-1]

        return aot_autograd(fw_compiler=made)(gm, inputs)

    def fn(x):
        return (x * 2).softmax(-1) @ x.t()

    x = torch.randn(5, 8, device="cuda:0")
    with torch.no_grad(), recorded() as records:
        want = torch.compile(fn, backend=backend)(x)
    assert [r.fallback for r in records] == [""]
    loaded = Compiled.load_artifacts(kept[0].dump_artifacts())
    for _ in range(4):
        (got,) = loaded(x)
        assert torch.equal(got, want) and got.device == x.device
    code = kept[0].get_code()
    scope = {}
    exec(code, scope)
    assert torch.equal(scope["kernel"](x)[0], want)
