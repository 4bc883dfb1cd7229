"""Settings every test starts with."""

import pytest
import torch

from torchair import backend


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
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
