"""Settings every test starts with."""

import os

import pytest
import torch

from torchair import backend

# Before the engine starts: what a test sees must not depend on what was fast.
os.environ.setdefault("TORCHAIR_MEASURE", "0")


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        default="",
        help="where tests that name no device make their tensors, as cuda",
    )


@pytest.fixture(autouse=True)
def _fresh(request):
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.set_default_device(request.config.getoption("--device") or None)
    yield
    torch.set_default_device(None)
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch):
    """The FX graphs that the engine gets, after their passes."""
    found = []
    plain = backend._engine_program

    def keep(gm, *args):
        found.append(gm)
        return plain(gm, *args)

    monkeypatch.setattr(backend, "_engine_program", keep)
    return found
