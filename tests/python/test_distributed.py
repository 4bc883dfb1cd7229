"""Collectives in graphs, with several processes (comm_cases.py) and, where no
second one is needed, with a group of one."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from helpers import compiled

import torchair

HERE = Path(__file__).parent
PACKAGES = Path(torchair.__file__).resolve().parent.parent
SCRIPT = HERE / "comm_cases.py"
CASES = re.findall(r"^def (case_\w+)", SCRIPT.read_text(), re.M)


@functools.cache
def results(world, folder):
    """Of all ranks: case -> "" or what it failed with."""
    path = [PACKAGES, PACKAGES / "torchair/_packages", HERE]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "WORLD_SIZE": str(world),
        "OUT": folder,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    printed = [r.communicate()[0] for r in ranks]
    found = []
    for rank, text in enumerate(printed):
        report = Path(folder) / f"{rank}.json"
        if not report.exists():
            raise AssertionError(f"rank {rank} ended early:\n{text[-4000:]}")
        found.append(json.loads(report.read_text()))
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_ranks(case, world, folder):
    out = folder / str(world)
    out.mkdir(exist_ok=True)
    for rank, found in enumerate(results(world, str(out))):
        assert found.get(case, "not run") == "", f"rank {rank}"


@pytest.fixture
def alone():
    """A process group of one."""
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    yield
    dist.destroy_process_group()


def test_explain_names_collectives(alone):
    def fn(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    found = torchair.explain(fn, torch.ones(4))
    (graph,) = found.graphs
    assert graph.hosts == []
    assert graph.collectives == [
        "_c10d_functional::all_reduce: sum, group 0 of 1"
    ]
    assert "collective _c10d_functional::all_reduce" in str(found)


@pytest.fixture
def unpatched():
    names = torchair.collectives._PATCHED
    before = {n: getattr(dist, n) for n in names}
    yield before
    for name, fn in before.items():
        setattr(dist, name, fn)


def test_patch_for_hcom(alone, unpatched):
    with pytest.warns(UserWarning, match="without it"):
        torchair.patch_for_hcom()
    with pytest.warns(UserWarning):
        torchair.patch_for_hcom()  # once is enough
    for name, original in unpatched.items():
        assert getattr(dist, name).torchair_patched is original

    def fn(x):
        y = x * 2
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        dist.broadcast(y, 0)
        return y + 1

    x = torch.arange(4.0)
    want = fn(x)
    assert torch.equal(want, x * 2 + 1)
    assert dist.all_reduce(x.clone(), async_op=True) is not None
    assert torch.equal(compiled(fn, fullgraph=True)(x), want)


@pytest.mark.parametrize("position", [True, False])
def test_patched_async_is_refused(alone, unpatched, position):
    with pytest.warns(UserWarning):
        torchair.patch_for_hcom()

    def fn(x):
        if position:
            dist.all_reduce(x, dist.ReduceOp.SUM, None, True)
        else:
            dist.all_reduce(x, async_op=True)
        return x + 1

    assert torch.equal(compiled(fn)(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(Exception, match="async_op=True for dist"):
        compiled(fn, fullgraph=True)(torch.ones(3))


def test_patched_reduction_is_refused(alone, unpatched):
    with pytest.warns(UserWarning):
        torchair.patch_for_hcom()

    def fn(x):
        dist.all_reduce(x, op="median")
        return x + 1

    with pytest.raises(Exception, match="Unsupported all_reduce op"):
        compiled(fn, fullgraph=True)(torch.ones(3))


def test_deepspeed_is_patched(alone, unpatched, monkeypatch):
    import types

    deepspeed = types.ModuleType("deepspeed.comm")
    deepspeed.all_reduce = deepspeed.inference_all_reduce = print
    monkeypatch.setitem(sys.modules, "deepspeed.comm", deepspeed)
    with pytest.warns(UserWarning):
        torchair.patch_for_hcom()
    assert deepspeed.all_reduce is dist.all_reduce
    assert deepspeed.inference_all_reduce is dist.all_reduce
