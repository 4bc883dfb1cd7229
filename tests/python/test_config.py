"""CompilerConfig, entry points, public names."""

import re
import subprocess
import sys

import pytest
import torch
from helpers import assert_same, recorded

import torchair
from torchair import backend
from torchair.config import OPTIONS, find_option, settings


def test_defaults_and_read_back():
    config = torchair.CompilerConfig()
    assert config.mode.value == "max-autotune"
    assert config.debug.run_eagerly.value == "0"
    config.debug.run_eagerly = True
    assert config.debug.run_eagerly.value == "1"
    assert bool(config.debug.run_eagerly)
    assert config.post_grad_custom_pre_pass.value is None
    assert config.as_dict()[0]["mode"] == "max-autotune"


@pytest.mark.parametrize(
    "path, value, error",
    [
        ("mode", "fast", ValueError),
        ("mode", None, ValueError),
        ("mode", 3, ValueError),
        ("debug.run_eagerly", "yes", ValueError),
        ("debug.pass_limit", -1, ValueError),
        ("debug.pass_limit", "1", ValueError),
        ("post_grad_custom_pre_pass", 7, TypeError),
        ("debug.graph_dump.path", 7, TypeError),
        ("debug.graph_dump.type", "doc", ValueError),
    ],
)
def test_wrong_value(path, value, error):
    *sections, name = path.split(".")
    target = torchair.CompilerConfig()
    for section in sections:
        target = getattr(target, section)
    with pytest.raises(error, match=path):
        setattr(target, name, value)


def test_unknown_option_lists_known_ones():
    config = torchair.CompilerConfig()
    with pytest.raises(ValueError, match="mode"):
        config.moode = "max-autotune"
    with pytest.raises(ValueError, match="run_eagerly"):
        _ = config.debug.nothing
    with pytest.raises(ValueError):
        find_option(config, "debug.nothing")


def test_equality_and_copies():
    a, b = torchair.CompilerConfig(), torchair.CompilerConfig()
    assert a == b
    b.mode = "reduce-overhead"
    assert a != b
    assert settings(b) == b
    merged = settings(b, "max-autotune", {"debug.pass_limit": 3})
    assert merged.mode.value == "max-autotune"
    assert merged.debug.pass_limit.raw == 3
    assert b.mode.value == "reduce-overhead"
    with pytest.raises(TypeError):
        hash(a)


def test_every_option_has_a_text():
    assert all(row.effect for row in OPTIONS)
    assert len({row.path for row in OPTIONS}) == len(OPTIONS)


def test_backend_carries_its_configuration():
    config = torchair.CompilerConfig()
    backend = torchair.get_npu_backend(compiler_config=config)
    assert backend.keywords["compiler_config"] is config
    with pytest.raises(TypeError):
        torchair.get_npu_backend(compiler_config="max-autotune")


def test_torch_compile_mode_and_options():
    from torchair.backend import records
    from torchair.backend import torchair as entry

    def fn(x):
        return x * 3

    x = torch.ones(2)
    for kwargs, captured in (
        ({}, False),
        ({"mode": "reduce-overhead"}, True),
        ({"mode": "max-autotune"}, False),
        ({"options": {"mode": "reduce-overhead"}}, True),
    ):
        torch._dynamo.reset()
        assert_same(torch.compile(fn, backend=entry, **kwargs)(x), fn(x))
        assert (records[-1].capture is not None) == captured
    torch._dynamo.reset()
    with pytest.raises(Exception, match="moode"):
        torch.compile(fn, backend=entry, options={"moode": 1})(x)


def test_run_eagerly_and_custom_passes():
    seen = []

    def double_adds(gm, inputs, config):
        seen.append((len(inputs), config.mode.value))
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    config = torchair.CompilerConfig()
    config.post_grad_custom_pre_pass = double_adds
    backend = torchair.get_npu_backend(compiler_config=config)
    x, y = torch.ones(2), torch.full((2,), 5.0)
    run = torch.compile(lambda x, y: x + y, backend=backend)
    assert_same(run(x, y), x - y)
    assert seen == [(2, "max-autotune")]
    torch._dynamo.reset()
    config.debug.run_eagerly = True
    with recorded() as records:
        assert_same(
            torch.compile(lambda x, y: x + y, backend=backend)(x, y), x - y
        )
    assert records[0].fallback


def test_custom_decomposition():
    table = {torch.ops.aten.relu.default: lambda x: x * 0 - 1}
    backend = torchair.get_npu_backend(custom_decompositions=table)
    run = torch.compile(lambda x: torch.relu(x), backend=backend)
    assert_same(run(torch.ones(3)), torch.full((3,), -1.0))


def test_get_compiler():
    from torch._dynamo.backends.common import aot_autograd

    backend = aot_autograd(fw_compiler=torchair.get_compiler())
    x = torch.randn(3, requires_grad=True)
    torch.compile(lambda x: x.sin().sum(), backend=backend)(x).backward()
    assert_same(x.grad, x.detach().cos())


def test_get_compiler_with_a_configuration():
    from torch._dynamo.backends.common import aot_autograd

    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    entry = aot_autograd(fw_compiler=torchair.get_compiler(config))
    programs, x = [], torch.randn(3)
    with backend.collect([], programs):
        run = torch.compile(lambda x: x.sin() + 1, backend=entry)
        for _ in range(2):
            assert_same(run(x), x.sin() + 1)
    assert programs[0].stats()["capture"]["replayed"] == 1


def test_graph_dump(tmp_path):
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "txt"
    config.debug.graph_dump.path = str(tmp_path)
    backend = torchair.get_npu_backend(compiler_config=config)
    torch.compile(lambda x: torch.softmax(x * 2, -1), backend=backend)(
        torch.ones(2, 3)
    )
    first, last = sorted(tmp_path.iterdir(), key=lambda p: "optim" in p.name)
    assert re.fullmatch(
        r"dynamo_original_graph_\d+_rank_0_pid_\d+_ts_\d{20}.txt", first.name
    )
    assert "SoftmaxV2" in first.read_text()
    assert "Exp" in last.read_text()


def test_public_names():
    for name in torchair.__all__:
        assert getattr(torchair, name) is not None
    with pytest.raises(AttributeError):
        _ = torchair.no_such_name


def test_import_is_cheap():
    code = (
        "import torch, torch._dynamo; from time import process_time as t; "
        "start = t(); import torchair; print(t() - start)"
    )
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", code],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(2)
    )
    assert best < 0.05  # of CPU; 0.001 on an idle machine


def test_import_loads_nothing_else():
    code = (
        "import sys, torch; before = set(sys.modules); import torchair; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert all(name.split(".")[0] == "torchair" for name in loaded)
    assert "torchair.backend" not in loaded  # and with it Dynamo


def test_annotations_setting_is_put_back():
    before = torch._dynamo.config.record_runtime_overhead
    torch.compile(lambda x: x + 1, backend=torchair.get_npu_backend())(
        torch.ones(1)
    )
    assert torch._dynamo.config.record_runtime_overhead == before


@pytest.mark.parametrize(
    ("section", "name"),
    [("experimental_config", "frozen_param"), ("", "frozen_parameters")],
)
def test_an_unknown_option_names_the_nearest(section, name):
    config = torchair.CompilerConfig()
    where = getattr(config, section) if section else config
    with pytest.raises(
        ValueError, match=f"has no option {name}; did you mean ex"
    ):
        setattr(where, name, True)
