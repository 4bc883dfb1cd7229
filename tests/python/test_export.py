"""dynamo_export, and `air run` on what it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import torchair
from torchair import export, ops

ROOT = Path(__file__).resolve().parents[2]
AIR = Path(os.environ.get("AIR_CLI", ROOT / "build" / "tools" / "air"))
needs_air = pytest.mark.skipif(not AIR.exists(), reason="make build first")


class Model(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.layer = torch.nn.ModuleList(
            torch.nn.Linear(4, 4, dtype=dtype) for _ in range(2)
        )
        base = torch.arange(8, dtype=dtype)
        self.register_buffer("part", base[::2])  # neither whole nor dense

    def forward(self, x, scale=None):
        for layer in self.layer:
            x = torch.nn.functional.gelu(layer(x))
        x = x * self.part + torch.tensor([1.0, 2.0, 3.0, 4.0])
        return (x, x.sum(0)) if scale is None else x * scale["by"]


def computed(folder, tmp_path, name="export", **inputs):
    given = []
    for key, value in inputs.items():
        np.save(tmp_path / f"{key}.npy", value.numpy())
        given += ["--input", f"{key}={tmp_path / key}.npy"]
    out = tmp_path / "out"
    path = os.path.join(folder, f"{name}.air")
    done = subprocess.run(
        [AIR, "run", path, *given, "--output", out],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = sorted(out.glob("result*.npy"))
    return [torch.from_numpy(np.load(f)) for f in found]


@needs_air
@pytest.mark.parametrize("dynamic", [False, True])
def test_air_runs_it(tmp_path, dynamic):
    model, folder = Model(), tmp_path / "exported"
    x = torch.randn(3, 4)
    done = torchair.dynamo_export(
        x, model=model, export_path=str(folder), dynamic=dynamic
    )
    assert done is None
    assert sorted(os.listdir(folder)) == ["dynamo.pbtxt", "export.air"]
    for given in (x, torch.randn(5, 4))[: 1 + dynamic]:
        with torch.no_grad():
            want = model(given)
        found = computed(folder, tmp_path, x=given)
        for got, w in zip(found, want, strict=True):
            torch.testing.assert_close(got, w)


class OwnOperators(Model):
    def forward(self, x):
        x = torch.ops.exporttest.gated(self.layer[0](x), x, s=1.5)
        y = torch.ops.exporttest.count(self.part, x)
        return y, self.part + x


@needs_air
@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_of_formulas(tmp_path, dynamic):
    """Nothing of them is left: one text, wherever it runs."""
    if not hasattr(torch.ops.exporttest, "gated"):
        ops.define(
            "exporttest::gated(Tensor a, Tensor b, float s=1.0) -> Tensor",
            body="m = sum(b * b, -1); a * sigmoid(b) * s + rsqrt(m)",
        )
        ops.define(
            "exporttest::count(Tensor(a!) n, Tensor x) -> Tensor",
            body="n + 1; x * n",
        )
    model, folder = OwnOperators(), tmp_path / "exported"
    x = torch.randn(3, 4)
    torchair.dynamo_export(
        x, model=model, export_path=str(folder), dynamic=dynamic
    )
    for given in (x, torch.randn(5, 4))[: 1 + dynamic]:
        found = computed(folder, tmp_path, x=given)
        model.part.copy_(torch.arange(0, 8, 2.0))
        with torch.no_grad():
            want = model(given)
        for got, w in zip(found, want, strict=True):
            torch.testing.assert_close(got, w)


@needs_air
def test_keyword_arguments_and_names(tmp_path):
    model, x = Model(), torch.randn(2, 4)
    by = torch.randn(4)
    torchair.dynamo_export(
        x,
        model=model,
        export_path=str(tmp_path / "e"),
        export_name="some/where/mine",
        scale={"by": by},
    )
    (got,) = computed(
        tmp_path / "e", tmp_path, "mine", **{"x": x, "scale.by": by}
    )
    with torch.no_grad():
        torch.testing.assert_close(got, model(x, {"by": by}))


@needs_air
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_weights_lie_beside_it(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(export, "_MOST", 0)
    model, folder = Model(dtype), tmp_path / "e"
    x = torch.ones(3, 4, dtype=dtype)
    torchair.dynamo_export(x, model=model, export_path=str(folder))
    names = {n.replace(".", "_") for n, _ in model.named_parameters()}
    names |= {"part"}
    assert names <= set(os.listdir(folder))
    with open(folder / "part", "rb") as file:
        assert len(file.read()) == 4 * dtype.itemsize
    apart = subprocess.run(
        [AIR, "run", folder / "export.air"], capture_output=True, text=True
    )
    assert apart.returncode == 0, apart.stderr
    plain = tmp_path / "plain"
    monkeypatch.setattr(export, "_MOST", 2**40)
    torchair.dynamo_export(x, model=model, export_path=str(plain))
    done = subprocess.run(
        [AIR, "run", plain / "export.air"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == apart.stdout
    os.truncate(folder / "part", 2)
    done = subprocess.run(
        [AIR, "run", folder / "export.air"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "weight self.part: its file is too short" in done.stderr


@pytest.mark.host("programs of files are of host memory")
def test_the_options_do_it_too(tmp_path):
    model, x = Model(), torch.randn(3, 4)
    config = torchair.CompilerConfig()
    config.export.export_mode = True
    config.export.export_path_dir = str(tmp_path)
    config.export.export_name = "named"
    weight = model.layer[0].weight
    config.export.weight_name = {id(weight): "first"}
    backend = torchair.get_npu_backend(compiler_config=config)
    with torch.no_grad(), pytest.raises(export.ExportSuccess):
        torch.compile(model, backend=backend)(x)
    with open(tmp_path / "named.air", "rb") as file:
        head = file.read().split(b"graph ")[0].decode().splitlines()
    assert head[0] == "air 1"
    assert head[1] == "weight self.layer.0.weight 0 64"
    assert len(head) == 3 and "const" in head[2]


@pytest.mark.host("programs of files are of host memory")
def test_the_users_configuration_is_left_alone(tmp_path):
    config = torchair.CompilerConfig()
    torchair.dynamo_export(
        torch.ones(2, 4),
        model=Model(),
        export_path=str(tmp_path),
        config=config,
    )
    assert config == torchair.CompilerConfig()


@pytest.mark.host("programs of files are of host memory")
def test_modules_of_nodes(tmp_path):
    config = torchair.CompilerConfig()
    config.export.experimental.enable_record_nn_module_stack = True
    torchair.dynamo_export(
        torch.ones(2, 4),
        model=Model(),
        export_path=str(tmp_path),
        config=config,
    )
    text = (tmp_path / "dynamo.pbtxt").read_text()
    assert 'key: "nn_module_stack"\n    value { s: "layer[1]" }' in text
    assert 'value { s: "test_export.py:' in text
    assert "nn_module_stack=" not in text


class Unknown(torch.nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


class Broken(torch.nn.Module):
    def forward(self, x):
        torch._dynamo.graph_break()
        return x + 1


@pytest.mark.host("programs of files are of host memory")
def test_refusals(tmp_path):
    x, folder = torch.ones(2, 4), str(tmp_path / "e")

    def exported(model=None, folder=folder, **options):
        config = torchair.CompilerConfig()
        for key, value in options.items():
            setattr(config, key, value)
        torchair.dynamo_export(
            x, model=model or Model(), export_path=folder, config=config
        )

    with pytest.raises(TypeError, match="torch.nn.Module"):
        exported(torch.relu)
    with pytest.raises(ValueError, match="reduce-overhead"):
        exported(mode="reduce-overhead")
    with pytest.raises(ValueError, match="frozen_parameter is on"):
        exported(frozen_parameter=True)
    with pytest.raises(Exception, match="only PyTorch computes: special_bes"):
        exported(Unknown())
    with pytest.raises(Exception, match="graph_break|Graph break|graph break"):
        exported(Broken())
    os.mkdir(folder)
    os.symlink(folder, tmp_path / "link")
    with pytest.raises(RuntimeError, match="symbolic link"):
        exported(folder=str(tmp_path / "link"))
    os.symlink(tmp_path / "elsewhere", os.path.join(folder, "export.air"))
    with pytest.raises(RuntimeError, match="symbolic link"):
        exported()
    assert not (tmp_path / "elsewhere").exists()


TWO = """
import sys, torch, torch.distributed as dist, torchair
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = self.linear(x)
        dist.all_reduce(y)
        return y
rank = int(sys.argv[1])
dist.init_process_group(
    "gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
config = torchair.CompilerConfig()
config.export.experimental.auto_atc_config_generated = True
torchair.dynamo_export(
    torch.ones(2, 4), model=Model(), export_path=sys.argv[3], config=config)
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes(tmp_path):
    folder = tmp_path / "e"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                TWO,
                str(r),
                str(tmp_path / "store"),
                folder,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    for process in started:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
    found = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.*"))
    assert found == [
        "export0.air",
        "export1.air",
        "model_relation_config.json",
        "numa_config.json",
        "rank_0/dynamo.pbtxt",
        "rank_1/dynamo.pbtxt",
    ]
    text = (folder / "export1.air").read_bytes()
    assert b"all_reduce" in text and b"start " in text
    relation = json.loads((folder / "model_relation_config.json").read_text())
    assert relation["comm_group"][0]["group_rank_list"] == "[0, 1]"
    assert relation["deploy_config"][1] == {
        "submodel_name": "export1.air",
        "deploy_device_id_list": "0:0:1",
    }
    numa = json.loads((folder / "numa_config.json").read_text())
    assert len(numa["cluster"][0]["cluster_nodes"][0]["item_list"]) == 2
