"""What get_compiler's compiler gives: calls, code, artifacts."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

import torchair
from torchair import artifacts

pytestmark = pytest.mark.host("test_cuda_cache has graphs of a GPU")

X = torch.randn(4, 8)
W = torch.randn(8, 3)


def fn(x, w):
    y = x @ w
    return torch.relu(y) + torch.arange(3.0), torch.special.bessel_j0(y), y


def config_of(mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    return config


def compiled(fn, *args, mode="max-autotune", **how):
    gm = make_fx(fn, **how)(*args)
    return torchair.get_compiler(config_of(mode))(gm, args)


def assert_same(found, wanted):
    assert type(found) is tuple and len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


def kernel_of(code):
    scope = {}
    exec(compile(code, "<code>", "exec"), scope)  # noqa: S102
    return scope["kernel"]


MODES = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


@MODES
def test_a_call_takes_inputs_or_one_list(mode):
    run = compiled(fn, X, W, mode=mode)
    assert isinstance(run, artifacts.Compiled)
    assert_same(run(X, W), fn(X, W))
    inputs = [X, W]
    assert_same(run(inputs), fn(X, W))
    assert inputs == []


@MODES
def test_the_code_runs(mode):
    run = compiled(fn, X, W, mode=mode)
    code = run.get_code()
    assert "def kernel(*args):" in code and "= mm(" in code
    assert "special_bessel_j0" in code
    kernel = kernel_of(code)
    for _ in range(2):
        assert_same(kernel(X, W), fn(X, W))
    loaded = run.load_artifacts(run.dump_artifacts())
    assert loaded.get_code() == code


def test_constants_are_in_the_code():
    table = torch.randn(3)
    run = compiled(lambda x: (x * table,), torch.ones(3))
    kernel = kernel_of(run.get_code())
    wanted = table * 2
    table.zero_()
    assert_same(kernel(torch.full((3,), 2.0)), (wanted,))


def test_sizes_that_vary():
    found = []
    compiler = torchair.get_compiler()

    def keep(gm, inputs):
        found.append(compiler(gm, inputs))
        return found[-1]

    def scaled(x):
        return torch.softmax(x * x.shape[0], 0)

    entry = aot_autograd(fw_compiler=keep)
    run = torch.compile(scaled, backend=entry, dynamic=True)
    for n in (5, 6):
        x = torch.randn(n, 3)
        torch.testing.assert_close(run(x), scaled(x))
    (graph,) = found
    kernel = kernel_of(graph.get_code())
    for n in (4, 9):
        x = torch.randn(n, 3)
        torch.testing.assert_close(kernel(n, 3, x)[0], scaled(x))


SCRIPT = """
import sys
import torch
from torchair.artifacts import Compiled

run = Compiled.load_artifacts(open(sys.argv[1], "rb").read())
x = torch.arange(6.0).reshape(2, 3)
print([t.tolist() for t in run(x)])
"""


@MODES
def test_in_a_later_process(mode, tmp_path):
    def fn(x):
        return torch.cumsum(x, 0) + 1, x.sum()

    x = torch.arange(6.0).reshape(2, 3)
    path = tmp_path / "artifacts"
    path.write_bytes(compiled(fn, x, mode=mode).dump_artifacts())
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.strip() == str([t.tolist() for t in fn(x)])


def test_captures_may_be_others_in_the_code():
    config = config_of("reduce-overhead")
    config.debug.aclgraph.enable_output_clone = True
    run = torchair.get_compiler(config)(make_fx(lambda x: (x + 1,))(X), [X])
    code = run.get_code({"clone_output": False, "capture_limit": 3})
    kernel = kernel_of(code)
    first = kernel(X)[0]
    kernel(X * 0)
    assert first.eq(1).all()  # the next run has written it
    kept = kernel_of(run.get_code())
    first = kept(X)[0]
    kept(X * 0)
    torch.testing.assert_close(first, X + 1)


def test_what_decides_the_graph_cannot_change_in_the_code():
    run = compiled(fn, X, W)
    for options, said in (
        ({"mode": "reduce-overhead"}, "mode decides"),
        ({"remove_noop_ops": False}, "remove_noop_ops decides"),
        ({"no_such": 1}, "no option 'no_such'"),
    ):
        with pytest.raises(ValueError, match=said):
            run.get_code(options)
    with pytest.raises(TypeError, match="extend_config"):
        run.get_code(3)
    loaded = run.load_artifacts(run.dump_artifacts())
    with pytest.raises(ValueError, match="where the graph was compiled"):
        loaded.get_code({"capture_limit": 3})


def dropping(x):
    heads = x.view(1, 2, 4, 4)
    made = F.scaled_dot_product_attention(heads, heads, heads, None, 0.5)
    return (made.reshape(x.shape),)


@pytest.mark.parametrize(
    "fn, why",
    [
        (lambda x: (torch.rand_like(x),), "draws random numbers"),
        (dropping, "draws random numbers"),
        (lambda x: (x + 1,), "run_eagerly"),
    ],
)
def test_a_graph_that_cannot_be_written(fn, why):
    config = torchair.CompilerConfig()
    config.debug.run_eagerly = why == "run_eagerly"
    run = torchair.get_compiler(config)(make_fx(fn)(X), [X])
    assert run.get_code() is run
    assert run(X)[0].shape == X.shape and type(run(X)) is tuple
    with pytest.raises(RuntimeError, match=why):
        run.dump_artifacts()


def test_artifacts_that_are_wrong(monkeypatch):
    data = compiled(fn, X, W).dump_artifacts()
    load = artifacts.Compiled.load_artifacts
    with pytest.raises(TypeError, match=r"load_artifacts: artifacts .* str"):
        load("text")
    for bad in (b"", data[:-1], data[:40] + b"x" + data[41:], b"x" + data):
        with pytest.raises(ValueError, match="compiled module|checksum"):
            load(bad)
    monkeypatch.setattr(
        artifacts.saving, "built", lambda: {"torch": "0.1", "engine": ""}
    )
    with pytest.raises(ValueError, match="of another torch"):
        load(data)
