"""aot_compile of torch.compile: functions in files, for a later process."""

import os
import subprocess
import sys
import weakref

import helpers
import pytest
import torch
from torch import nn

import torchair
from torchair import compat_saving, saving

pytestmark = pytest.mark.skipif(
    not hasattr(torch.compile(lambda x: x), "aot_compile"),
    reason="this torch's aot_compile takes Inductor alone",
)
MODES = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def tensor(*shape, **how):
    made = helpers.seeded(3)
    return torch.randn(shape, generator=made).to(helpers.DEVICE, **how)


def fn(x, w):
    y = x @ w
    return torch.relu(y) + 1, torch.special.bessel_j0(y), x.t()


def precompiled(f, *args, mode="max-autotune", **how):
    made = torch.compile(
        f, backend="torchair", mode=mode, fullgraph=True, **how
    )
    return made.aot_compile((args, {}))


def loaded(made, path):
    made.save_compiled_function(str(path))
    with open(path, "rb") as file:
        return torch.compiler.load_compiled_function(file)


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


@MODES
def test_it_runs_and_is_loaded(mode, tmp_path):
    x, w = tensor(4, 8), tensor(8, 3)
    made = precompiled(fn, x, w, mode=mode)
    assert len(torchair.backend.records[-1].hosts) == 1
    read = loaded(made, tmp_path / "fn")
    for run in (made, read, loaded(read, tmp_path / "again")):
        for factor in (1, 2):
            assert_same(run(x * factor, w), fn(x * factor, w))


@MODES
def test_what_it_wrote_is_written(mode, tmp_path):
    def step(x, y):
        x.mul_(2)
        return x + y

    x, y = tensor(4), tensor(4)
    run = loaded(precompiled(step, x.clone(), y, mode=mode), tmp_path / "f")
    found, wanted = x.clone(), x.clone()
    assert_same([run(found, y)], [step(wanted, y)])
    assert_same([found], [wanted])


@MODES
def test_gradients(mode, tmp_path):
    x, w = (t.requires_grad_() for t in (tensor(4, 8), tensor(8, 3)))
    made = precompiled(fn, x, w, mode=mode)
    for run in (made, loaded(made, tmp_path / "fn")):
        found = torch.autograd.grad(sum(r.sum() for r in run(x, w)), (x, w))
        wanted = torch.autograd.grad(sum(r.sum() for r in fn(x, w)), (x, w))
        assert_same(found, wanted)


def test_gradients_behind_streams_of_another_frame(monkeypatch):
    """What it has noted, some of it gone (torch 2.15)."""
    from torch._dynamo import graph_bytecode_inputs as inputs
    from torch._functorch._aot_autograd import runtime_wrappers

    name, stream = "index_to_external_object_weakref", torch.Stream("cpu")
    noted = [lambda: None, weakref.ref(stream)]
    if isinstance(getattr(inputs, name), dict):
        noted = dict(enumerate(noted))
    x, w = (t.requires_grad_() for t in (tensor(4, 8), tensor(8, 3)))
    run = precompiled(fn, x, w, mode="max-autotune")
    for where in inputs, runtime_wrappers:
        if hasattr(where, name):
            monkeypatch.setattr(where, name, noted)
    y = run(x, w)
    inputs.reset_user_object_tracking()
    found = torch.autograd.grad(sum(r.sum() for r in y), (x, w))
    wanted = torch.autograd.grad(sum(r.sum() for r in fn(x, w)), (x, w))
    assert_same(found, wanted)


def test_constants_are_in_the_file(tmp_path):
    """It is written while AOTAutograd's tensors are fake."""

    def scaled(x):
        return x / torch.tensor([2.0, 4.0], device=x.device)

    x = tensor(3, 2)
    run = loaded(precompiled(scaled, x), tmp_path / "scaled")
    assert_same([run(x)], [scaled(x)])


def test_sizes_that_vary(tmp_path):
    x, w = tensor(4, 8), tensor(8, 3)
    torch._dynamo.mark_dynamic(x, 0)
    run = loaded(precompiled(fn, x, w), tmp_path / "fn")
    for rows in (4, 7, 2):
        x = tensor(rows, 8)
        assert_same(run(x, w), fn(x, w))
    with pytest.raises(RuntimeError, match="[Gg]uard"):
        run(tensor(4, 9), tensor(9, 3))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 3)

    def forward(self, x):
        return torch.relu(self.linear(x))


def test_it_takes_the_module_that_it_is_given(tmp_path):
    first, other = (Layer().to(helpers.DEVICE) for _ in range(2))
    x = tensor(4, 8)
    made = torch.compile(first, backend="torchair", fullgraph=True)
    run = loaded(made.forward.aot_compile(((x,), {})), tmp_path / "linear")
    for module in (first, other):
        assert_same([run(module, x)], [module(x)])


IN_A_PROCESS = """
import sys, torch
with open(sys.argv[1], "rb") as file:
    run = torch.compiler.load_compiled_function(file)
x, w, *wanted = torch.load(sys.argv[2])
for a, b in zip(run(x, w), wanted, strict=True):
    torch.testing.assert_close(a, b)
assert "torch._dynamo.convert_frame" in sys.modules
print(run._artifacts.backend_name)
"""


def test_in_a_later_process(tmp_path):
    """It imports torchair by itself."""
    x, w = tensor(4, 8), tensor(8, 3)
    path, values = tmp_path / "fn", tmp_path / "values"
    precompiled(fn, x, w).save_compiled_function(str(path))
    torch.save([x, w, *fn(x, w)], values)
    here = os.path.dirname(__file__)  # where fn's module is
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS, str(path), str(values)],
        env=os.environ | {"PYTHONPATH": here},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "torchair\n"


@pytest.mark.parametrize(
    "backend",
    [
        "npugraph_ex",
        pytest.param(torchair.get_npu_backend(), id="get_npu_backend"),
    ],
)
def test_other_names(backend, tmp_path):
    x, w = tensor(4, 8), tensor(8, 3)
    made = torch.compile(fn, backend=backend, fullgraph=True)
    run = loaded(made.aot_compile(((x, w), {})), tmp_path / "fn")
    assert_same(run(x, w), fn(x, w))


def test_what_cannot_be_written_says_why():
    with pytest.raises(RuntimeError, match="draws random numbers; torch.comp"):
        precompiled(lambda x: torch.dropout(x, 0.5, True), tensor(4))


def test_quantised_parameters_cannot_be_written():
    module = nn.Sequential(nn.Linear(256, 256)).to(helpers.DEVICE).eval()
    config = torchair.CompilerConfig()
    config.weights.quantise = "int8"
    entry = torchair.get_npu_backend(compiler_config=config)
    made = torch.compile(module, backend=entry, fullgraph=True)
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match="parameters that are quantised"),
    ):
        made.forward.aot_compile(((tensor(2, 256),), {}))


def test_a_file_of_another_engine(tmp_path, monkeypatch):
    x, w = tensor(4, 8), tensor(8, 3)
    made = precompiled(fn, x, w)
    then = saving.built() | {"engine": "another"}
    monkeypatch.setattr(saving, "built", lambda: then)
    made.save_compiled_function(str(tmp_path / "fn"))
    with pytest.raises(ValueError, match="another engine"):
        loaded(made, tmp_path / "fn")


def test_other_compilations_are_as_ever():
    assert not compat_saving.is_precompiling()
    precompiled(fn, tensor(4, 8), tensor(8, 3))
    assert not compat_saving.is_precompiling()
