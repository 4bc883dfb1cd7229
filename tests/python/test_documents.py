"""The Python of the documents runs as it stands there, block after block."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchair
from torchair import passes

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START = re.compile(r"^engine\.start\(.*\)", re.MULTILINE)
X = torch.ones(4, 64)

mine = torch.library.Library("mine", "FRAGMENT")
mine.define("add_relu(Tensor x, Tensor r) -> Tensor")
mine.impl("add_relu", lambda x, r: torch.relu(x + r), "CPU")
mine.impl("add_relu", lambda x, r: torch.empty_like(x), "Meta")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(64, 8)

    def forward(self, x):
        return torch.relu(self.fc(x))


class Loss(Layer):
    def forward(self, x, y):
        return torch.nn.functional.mse_loss(super().forward(x), y)


# What a document takes as given, by the names it uses; models as classes.
GIVEN = {
    "README.md": {},
    "docs/getting-started.md": {
        "MyModel": Layer,
        "x": X,
        "tokens": X.clone(),
        "backend": torchair.get_npu_backend(),
    },
    "docs/debugging.md": {"x": X, "n": 3},
    "docs/options.md": {},
    "docs/training.md": {"model": Loss, "batches": [(X, X[:, :8])] * 3},
    "docs/quantisation.md": {
        "weight": torch.ones(8, 64),
        "bias": torch.ones(8),
        "x": X,
        "inputs": [X],
    },
}


@pytest.fixture
def _as_before(monkeypatch, tmp_path):
    """What a document registers is gone after it."""
    monkeypatch.chdir(tmp_path)
    kept = passes._registered[:]
    yield
    passes._registered[:] = kept


def runs(config):
    """With a document's options, what eager gives."""
    torch.manual_seed(0)
    model = Layer().eval()
    backend = torchair.get_npu_backend(compiler_config=config)
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(model, backend=backend)(X), model(X)
    )


@pytest.mark.usefixtures("_as_before")
@pytest.mark.parametrize("name", GIVEN)
def test_blocks_run(name, tmp_path):
    text = (ROOT / name).read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") > 0
    for folder in ("dump", "values"):
        (tmp_path / folder).mkdir()
    names = {**GIVEN[name], "torch": torch, "torchair": torchair}
    for i, block in enumerate(blocks):
        if START.search(block):
            continue  # a process that has compiled refuses it: below
        names["model"] = GIVEN[name].get("model", Layer)().eval()
        names["config"] = torchair.CompilerConfig()
        code = block.replace('"/tmp/', f'"{tmp_path}/')
        exec(compile(code, f"{name}, block {i + 1}", "exec"), names)
        runs(names["config"])
    if name == "docs/debugging.md":
        assert list((tmp_path / "dump").iterdir())
        assert list((tmp_path / "values").rglob("*.npy"))


STARTED = """
import os, sys, torch, torchair
from torchair import engine

def f(x):
    return torch.softmax(x.relu() @ x.t(), -1)

for line in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        exec(line)
        x = torch.linspace(-1, 1, 12).view(3, 4)
        got = torch.compile(f, backend="torchair")(x)
        torch.testing.assert_close(got, f(x))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, line
"""


def test_engines_that_debugging_starts():
    lines = START.findall((ROOT / "docs/debugging.md").read_text())
    assert len(lines) == 3
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *lines],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
