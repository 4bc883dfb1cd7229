"""Tests that name no device run on another one (tools/device_tests.py): what
they draw from and what their threads make is there, too."""

import pathlib
import re

import pytest
import torch
from helpers import in_threads, seeded

HERE = pathlib.Path(__file__).parent
# About the device npu, which takes a generator of the CPU.
APART = re.compile(r"npu_|test_npu_|test_torch_npu")


@pytest.fixture
def on_meta():
    before = torch.get_default_device()
    torch.set_default_device("meta")
    yield
    torch.set_default_device(before if before.type != "cpu" else None)


def test_generators_are_of_the_device():
    bare = [
        path.name
        for path in sorted(HERE.glob("*.py"))
        if not APART.match(path.name)
        and path != pathlib.Path(__file__)
        and "torch.Generator()" in path.read_text()
    ]
    assert bare == []


def test_a_seed_gives_a_generator_of_the_default_device(on_meta, monkeypatch):
    asked = []
    plain = torch.Generator
    monkeypatch.setattr(
        torch, "Generator", lambda device: asked.append(device.type) or plain()
    )
    assert seeded(3).initial_seed() == 3
    assert asked == ["meta"]


def test_threads_make_tensors_where_their_test_does(on_meta):
    made = []
    in_threads(range(3), lambda _: made.append(torch.randn(2).device.type))
    assert made == ["meta"] * 3
