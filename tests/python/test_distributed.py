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
from helpers import BEFORE_213, compiled

import torchair

HERE = Path(__file__).parent
PACKAGES = Path(torchair.__file__).resolve().parent.parent
SCRIPT = HERE / "comm_cases.py"
FAULTS = HERE / "comm_faults.py"
CASES = re.findall(r"^def (case_\w+)", SCRIPT.read_text(), re.M)


def start(world, folder, *command, **more):
    """What the ranks print."""
    path = [PACKAGES, PACKAGES / "torchair/_packages", HERE]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "WORLD_SIZE": str(world),
        "OUT": str(folder),
        **more,
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    return [r.communicate()[0] for r in ranks]


@functools.cache
def results(world, folder):
    """Of all ranks: case -> "" or what it failed with."""
    printed = start(world, folder, SCRIPT)
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


MODES = ("max-autotune", "reduce-overhead")


@pytest.mark.parametrize("mode", MODES)
def test_sizes_that_differ_are_named(mode, tmp_path):
    """gloo itself ends the process, in eager too; with torch's own check each
    rank has an error with both sizes."""
    texts = start(
        2,
        tmp_path,
        FAULTS,
        "case_other_sizes",
        MODE=mode,
        SECONDS_LEFT="60",
        TORCH_DISTRIBUTED_DEBUG="DETAIL",
    )
    for text, size in zip(texts, (3, 43), strict=True):
        assert "RuntimeError Detected mismatch" in text, text
        assert f"TensorShape=[{size}]" in text


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_ends_is_an_error(mode, tmp_path):
    left, _ = start(
        2, tmp_path, FAULTS, "case_one_leaves", MODE=mode, SECONDS_LEFT="60"
    )
    assert "result [5.0, 5.0, 5.0]" in left, left
    assert left.count("RuntimeError") == 2, left
    assert ("by peer" if BEFORE_213 else "remote worker") in left, left


@pytest.mark.parametrize("mode", MODES)
def test_a_rank_that_never_comes_is_an_error(mode, tmp_path):
    """When the time of the process group is over."""
    left, _ = start(
        2, tmp_path, FAULTS, "case_one_is_late", MODE=mode, SECONDS_LEFT="5"
    )
    assert "result [5.0, 5.0, 5.0]" in left, left
    assert "RuntimeError" in left and "Timed out" in left, left


def calls_alone():
    """name -> a function of a tensor whose result is x * 2 + 1."""

    def with_result(collective, *args):
        def fn(x):
            out = torch.empty_like(x)
            collective(out, x * 2, *args)
            return out + 1

        return fn

    def in_place(collective, *args):
        def fn(x):
            y = x * 2
            collective(y, *args)
            return y + 1

        return fn

    def lists(collective):
        def fn(x):
            out = [torch.empty_like(x)]
            collective(out, [x * 2])
            return out[0] + 1

        return fn

    return {
        "all_reduce": in_place(dist.all_reduce),
        "broadcast": in_place(dist.broadcast, 0),
        "all_gather": lists(lambda out, xs: dist.all_gather(out, xs[0])),
        "all_gather_into_tensor": with_result(dist.all_gather_into_tensor),
        "reduce_scatter_tensor": with_result(dist.reduce_scatter_tensor),
        "all_to_all": lists(dist.all_to_all),
        "all_to_all_single": with_result(dist.all_to_all_single),
    }


@pytest.mark.parametrize("mode", MODES)
def test_one_rank_has_them_all(alone, mode):
    x = torch.arange(6.0)
    for name, fn in calls_alone().items():
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        for i in range(2):
            assert torch.equal(run(x + i), (x + i) * 2 + 1), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trains", [False, True])
def test_what_eager_code_has_begun_is_an_input(alone, mode, trains):
    """torch's tensor of it has another one inside, which the graph takes."""
    from torch.distributed import _functional_collectives as functional

    def fn(y, w):
        return (y * w).relu() + y

    run = compiled(fn, mode)
    for i in range(4):
        x = torch.arange(6.0) - i
        w = torch.full((6,), 2.0, requires_grad=trains)
        begun = functional.all_reduce(x, "sum", dist.group.WORLD)
        got = run(begun, w)
        assert torch.equal(got, fn(x, w))
        if trains:
            got.sum().backward()
            assert torch.equal(w.grad, x * (x * 2 > 0))


def test_no_process_group_is_said():
    def fn(x):
        y = x * 2
        dist.all_reduce(y)
        return y

    for more in ({}, {"fullgraph": True}):
        with pytest.raises(Exception, match="init_process_group"):
            compiled(fn, **more)(torch.ones(3))


def test_a_reduction_of_lists_that_does_not_exist(alone):
    def fn(x):
        out = torch.empty_like(x)
        dist.reduce_scatter(out, [x], op=dist.ReduceOp.PREMUL_SUM)
        return out

    # Dynamo of 2.11 shows how the message is made
    why = "[uU]nsupported " + ("reduction" if BEFORE_213 else ".*PREMUL_SUM")
    with pytest.raises(Exception, match=why):
        compiled(fn, fullgraph=True)(torch.ones(3))


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
