"""How torch_npu gets into a process: beside a vendor's, by autoload."""

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import torch

import torchair
from torchair import _native

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "python"
PACKAGE = ROOT / "packages" / "torch_npu"
INSTALLED = Path(torchair.__file__).resolve().parent
LIBRARIES = []  # set by the fixture
METADATA = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
# Beside another device that torch was built for, it stays away.
of_the_cpu = pytest.mark.skipif(
    bool(torch.version.cuda), reason="torch is built with CUDA"
)


def distribution(site, name, version, entry_points=""):
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(name, version))
    (info / "entry_points.txt").write_text(entry_points)


def entry_points(folder):
    """What the project in a folder says, in the form of a distribution."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return "".join(
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items())
        for group, names in project["entry-points"].items()
    )


@pytest.fixture
def plain(tmp_path):
    """An installation of torchair, as the wheel lays it out."""
    site = tmp_path / "site"
    (site / "torchair").mkdir(parents=True)
    for file in INSTALLED.iterdir():
        if file.name != "_packages":
            (site / "torchair" / file.name).symlink_to(file)
    packages = site / "torchair" / "_packages"
    packages.mkdir()
    (packages / "torch_npu").symlink_to(SOURCES / "torch_npu")
    distribution(site, "torchair", "0.1.0", entry_points(ROOT))
    return site


@pytest.fixture
def site(plain):
    """With packages/torch_npu."""
    (plain / "torch_npu.py").symlink_to(PACKAGE / "torch_npu.py")
    distribution(plain, "torchair-npu", "0.1.0", entry_points(PACKAGE))
    return plain


@pytest.fixture(scope="module", autouse=True)
def libraries(tmp_path_factory):
    """torch and what lies beside it, but nothing of ours."""
    folder = tmp_path_factory.mktemp("libraries")
    for file in Path(torch.__file__).parent.parent.iterdir():
        if not file.name.startswith(("torchair", "torch_npu", "npugraph_ex")):
            (folder / file.name).symlink_to(file)
    LIBRARIES[:] = [str(folder)]


def run(site, code, **env):
    # -S: nothing that is installed
    path = os.pathsep.join([str(site), *LIBRARIES])
    return subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **env},
    )


def output(site, code, **env):
    found = run(site, code, **env)
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_torchair_alone_does_not_bring_the_name(plain):
    """Transformers puts models on npu where it finds torch_npu."""
    code = """
    import torch, torchair
    from importlib import util
    print(util.find_spec("torch_npu"), hasattr(torch, "npu"))
    run = torch.compile(torch.nn.Linear(3, 2), backend="torchair")
    print(run(torch.ones(1, 3)).device)
    """
    assert output(plain, code) == ["None", "False", "cpu"]


@of_the_cpu
def test_autoload_gives_the_device(site):
    """The guide's second program does not import torch_npu."""
    code = """
    import sys, torch
    assert "torch._dynamo" not in sys.modules
    x = torch.ones(3).npu()
    print(torch.npu.is_available(), sys.modules["torch_npu"].__file__)
    net = torch.compile(torch.nn.Linear(3, 2).npu(), backend="npugraphs")
    net(x).sum().backward()
    print(net.weight.grad.is_npu)
    """
    available, file, on_npu = output(site, code)
    assert available == on_npu == "True"
    assert Path(file).parent.parent.name == "_packages"


@of_the_cpu
def test_autoload_of_a_broken_torchair_leaves_torch(site):
    """The folder of the sources first on the path: no extension there."""
    (site / "torchair" / Path(_native.__file__).name).unlink()
    code = """
    import torch
    print(torch.ones(2).sum().item(), hasattr(torch, "npu"))
    """
    found = run(site, code)
    assert found.stdout.split() == ["2.0", "False"], found.stderr
    assert "device npu is left out" in found.stderr


def test_autoload_can_be_switched_off(site):
    code = """
    import torch
    print(hasattr(torch, "npu"))
    import torch_npu, torch_npu.npu.utils
    print(torch.npu is torch_npu.npu, torch.ones(2, device="npu").is_npu)
    """
    found = output(site, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == ["False", "True", "True"]


def test_torch_npu_before_torch(site):
    code = """
    import torch_npu
    import torch
    print(torch.ones(2).npu().is_npu)
    """
    assert output(site, code) == ["True"]


def test_the_vendors_package_wins(site):
    """In the same folder: its folder is found before our file."""
    vendor = site / "torch_npu"
    vendor.mkdir()
    (vendor / "__init__.py").write_text("name = 'vendor'\n")
    distribution(site, "torch-npu", "2.7.1")
    code = """
    import torch, torch_npu
    print(torch_npu.name, hasattr(torch, "npu"))
    """
    assert output(site, code) == ["vendor", "False"]


def test_no_shadowing_of_the_vendors_package(site, tmp_path):
    """In another folder, later on the path: ours refuses."""
    other = tmp_path / "other"
    (other / "torch_npu").mkdir(parents=True)
    (other / "torch_npu" / "__init__.py").write_text("")
    distribution(other, "torch-npu", "2.7.1")
    for first in (site, SOURCES):
        code = f"""
        import sys
        sys.path.append({str(other)!r})
        import torch
        import torch_npu
        """
        found = run(first, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        assert found.returncode
        assert "torch_npu 2.7.1 is installed" in found.stderr
        assert "ImportError" in found.stderr


def test_another_device_has_the_place(site):
    code = """
    import torch
    torch.utils.rename_privateuse1_backend("mine")
    import torch_npu
    """
    found = run(site, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "has a device 'mine' already" in found.stderr


def test_autoload_leaves_other_accelerators_alone(site):
    """Registered next to CUDA, npu would become torch.accelerator."""
    code = """
    import torch
    torch.version.cuda = "12.8"
    from torchair import packages
    packages.autoload()
    print(hasattr(torch, "npu"), torch.accelerator.is_available())
    """
    found = output(site, code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert found == ["False", "False"]
