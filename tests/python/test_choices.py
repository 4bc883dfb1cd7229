"""Whose kernel does a product: where measurements are kept, and who asks."""

import os
import subprocess
import sys

import pytest
import torch

import torchair
from torchair import choices, switches


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHAIR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_path(folder, monkeypatch):
    monkeypatch.setenv("TORCHAIR_MEASURE", "0")
    assert choices.path() is None
    monkeypatch.delenv("TORCHAIR_MEASURE")
    assert choices.path() == str(folder / "choices.txt")
    (folder / "choices.txt").write_text("torchair choices 2\n")
    monkeypatch.setenv("TORCHAIR_MEASURE", "1")
    assert choices.path() and (folder / "choices.txt").exists()
    monkeypatch.setenv("TORCHAIR_MEASURE", "again")
    assert choices.path() and not (folder / "choices.txt").exists()
    assert choices.path() == str(folder / "choices.txt")  # there was none


def test_wrong_values(folder, monkeypatch):
    monkeypatch.setenv("TORCHAIR_MEASURE", "yes")
    with pytest.raises(ValueError, match="TORCHAIR_MEASURE is 'yes'; give 0"):
        choices.path()


def test_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHAIR_MEASURE", "1")
    monkeypatch.setenv("TORCHAIR_CACHE_DIR", "")
    assert choices.path() is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHAIR_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="measurements are not kept"):
        assert choices.path() is None


def test_deterministic_algorithms_go_by_rule():
    config = torchair.CompilerConfig()
    assert "measure" not in switches.asked(config).off
    config.ge_config.optimization_switch = "measure:off"
    assert "measure" in switches.asked(config).off
    torch.use_deterministic_algorithms(True)
    try:
        for mode in ("max-autotune", "reduce-overhead"):
            config = torchair.CompilerConfig()
            config.mode = mode
            assert "measure" in switches.asked(config).off
    finally:
        torch.use_deterministic_algorithms(False)


PROGRAM = """
import torch, torchair
x, w = torch.randn(256, 512), torch.randn(512, 512)
with torch.no_grad():
    print(torchair.explain(lambda x, w: x @ w, x, w))
"""


def test_explain(folder):
    """A busy machine may leave nothing known; what is known is said."""
    env = dict(os.environ, TORCHAIR_MEASURE="1")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = "own kernel or library, by measurement: f32 256 x 512 x 512" in (
        done.stdout
    )
    kept = folder / "choices.txt"
    assert said == kept.exists(), done.stdout
    if said:  # not for kernels of another state
        assert all(
            ", kernels " in line for line in kept.read_text().splitlines()[1:]
        )
