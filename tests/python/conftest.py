"""Settings every test starts with."""

import gc
import logging
import os

import helpers
import pytest
import torch

import torchair
from torchair import backend

# Before the engine starts: what a test sees must not depend on what was fast.
os.environ.setdefault("TORCHAIR_MEASURE", "0")


# What torch does with every compilation, and no test looks at. It times the
# guards after it has emptied the caches of the machine: 25 ms.
torch._dynamo.guards.profile_guard_manager = lambda *args: 0.0
# And its trace is rendered where anybody listens. pytest since 9.1 does, to
# each logger by name that keeps its records to itself.
logging.root.manager.loggerDict.pop("torch.__trace", None)


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        default="",
        help="where tests that name no device make their tensors, as cuda",
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "host(why): about the CPU, not run with --device=cuda"
    )
    device = config.getoption("--device")
    helpers.DEVICE = torch.device(device or "cpu")
    if device.startswith("cuda"):
        # Convolutions in 11 bits differ by more than what tests allow.
        torch.backends.cudnn.allow_tf32 = False


def pytest_collection_modifyitems(config, items):
    """What is about the CPU says so, and is skipped with its reason."""
    if not config.getoption("--device").startswith("cuda"):
        return
    for item in items:
        mark = item.get_closest_marker("host")
        if mark is not None:
            why = f"of the CPU: {mark.args[0]}"
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(autouse=True, scope="module")
def _settled():
    """gc.collect() of a test looks at what its file made, not at all that was
    imported and made before: 2 s each in a process that ran many files."""
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _fresh(request):
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.set_default_device(request.config.getoption("--device") or None)
    # torch 2.11 changes these during a call of a function with `dynamic=`, for
    # all threads; where two do at once they stay as the first one set them.
    with torch._dynamo.config.patch(
        assume_static_by_default=True, automatic_dynamic_shapes=True
    ):
        yield
    torch.set_default_device(None)
    torch._dynamo.reset()


@pytest.fixture
def debug_folder(tmp_path, monkeypatch):
    """Where TORCH_COMPILE_DEBUG writes; the logger, which it makes say all and
    write files, is as before afterwards."""
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    log = torchair.logger
    level, handlers = log.level, log.handlers[:]
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path)):
        yield tmp_path
    log.setLevel(level)
    for handler in [h for h in log.handlers if h not in handlers]:
        log.removeHandler(handler)
        handler.close()


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
