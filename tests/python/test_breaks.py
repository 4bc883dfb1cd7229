"""BREAK_GRAPH_OP_LIST: each name breaks the graphs that it should, in a
process of its own, since it is read once."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, torchair
from torchair import backend

class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.conv = torch.nn.Conv3d(1, 1, 1)

def linear(x):
    return net.linear(x.sin()).cos()

def conv(x):
    return net.conv(x.sin().view(1, 1, 1, 4, 4)).cos()

def cut(x):
    return x.sin()[:, 1:].cos()

def pick(x):
    return x.sin()[1].cos()

def put(x):
    y = x.sin()
    y[0] = 1
    return y.cos()

net = Both()
x = torch.randn(4, 4)
for fn in (linear, conv, cut, pick, put):
    found = []
    with torch.no_grad(), backend.collect(found, []):
        got = torch.compile(fn, backend="torchair")(x)
        assert torch.allclose(got, fn(x), atol=1e-6)
    print(fn.__name__, len(found))
"""


def _run(value, program=PROGRAM):
    env = {**os.environ, "BREAK_GRAPH_OP_LIST": value}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        ("slice, NN.Conv3d", ["cut", "conv"]),
        ("SETITEM,NN.LINEAR,", ["linear", "put"]),
    ],
)
def test_each_name_breaks_its_graph(value, broken):
    found = _run(value)
    assert found.returncode == 0, found.stderr
    graphs = dict(line.split() for line in found.stdout.splitlines())
    wanted = {
        name: "2" if name in broken else "1"
        for name in ("linear", "conv", "cut", "pick", "put")
    }
    assert graphs == wanted


def test_unknown_names():
    found = _run("SLICE,CONV", "import torchair; torchair.get_npu_backend()")
    assert "RuntimeError: BREAK_GRAPH_OP_LIST has 'CONV'" in found.stderr
    assert "SLICE, SETITEM, NN.CONV3D, NN.LINEAR" in found.stderr
