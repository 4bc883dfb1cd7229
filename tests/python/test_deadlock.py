"""debug.deadlock_check: which communication may wait for itself."""

import json
import logging
import os
import re

import pytest
import torch
from helpers import assert_same

import torchair
from torchair import deadlock
from torchair.backend import npugraph_ex
from torchair.npu import limits
from torchair.scope import limit_core_num, npu_stream_switch

library = torch.library.Library("deadlock_test", "FRAGMENT")
for _name in ("moe_dispatch", "moe_combine"):
    library.define(f"{_name}(Tensor x) -> Tensor")
    library.impl(_name, lambda x: x + 1, "CompositeExplicitAutograd")
    torch.library.register_fake(f"deadlock_test::{_name}", torch.empty_like)
ops = torch.ops.deadlock_test


_RAW, _FILTERED, _CHECKED = "", "_filtered", "_filtered_deadlock_check"


def _files(folder):
    """By what the names end with: the tasks."""
    found = {}
    for path in folder.glob("debug_output_graph_*.json"):
        name = r"debug_output_graph_\d+_timestamp\d{14}_pid_(\d+)(_\w+)?"
        pid, ending = re.fullmatch(name, path.stem).groups()
        assert int(pid) == os.getpid()
        found[ending or ""] = json.loads(path.read_text())["traceEvents"]
    return found


@pytest.fixture
def report(tmp_path, monkeypatch, capsys):
    """report(fn, *args): lines about pairs, tasks of communication."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchair.compat.debug_folder", lambda: str(tmp_path))

    def run(fn, *args):
        options = {"deadlock_check": True}
        compiled = torch.compile(
            fn, backend=npugraph_ex, options=options, fullgraph=True
        )
        assert_same(compiled(*args), fn(*args))
        said = capsys.readouterr().out.splitlines()
        lines = [s for s in said if s.startswith("stream ")]
        assert f"deadlock check: {len(lines)} conflicting pair(s)" in said
        found = _files(tmp_path / "npugraph_ex")
        flagged = {_CHECKED} if lines else set()
        assert set(found) == {_RAW, _FILTERED} | flagged
        kept = [t for t in found[_FILTERED] if "Block Num" in t["args"]]
        return lines, kept

    return run


def side_by_side(x):
    with npu_stream_switch("one"):
        a = ops.moe_dispatch(x)
    with npu_stream_switch("two"):
        b = ops.moe_combine(x * 2)
    return a, b


def test_the_device_has_as_many_cores_as_its_limits_say():
    assert deadlock.VECTOR_CORES == limits.VECTOR_CORES


def test_two_that_need_all_cores(report, caplog, tmp_path):
    with caplog.at_level(logging.WARNING, "torchair"):
        (line,), kept = report(side_by_side, torch.ones(3))
    assert [t["tid"] for t in kept] == ["one", "two"]
    assert [t["name"] for t in kept] == ["moe_dispatch", "moe_combine"]
    assert "moe_dispatch vector cores 48 | stream two" in line
    assert line.endswith("sum=96 > 48") and line in caplog.text
    found = _files(tmp_path / "npugraph_ex")
    assert "mul.Tensor" in [t["name"] for t in found[_RAW]]
    flagged = [t for t in found[_CHECKED] if "dead_lock_" in t["name"]]
    assert len(flagged) == 2 and {t["dur"] for t in flagged} == {49.5}


def test_the_other_mode_writes_where_the_process_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = torchair.CompilerConfig()
    config.debug.deadlock_check = True
    backend = torchair.get_npu_backend(compiler_config=config)
    torch.compile(side_by_side, backend=backend)(torch.ones(3))
    assert set(_files(tmp_path)) == {_RAW, _FILTERED, _CHECKED}


def test_enough_cores_for_both(report):
    def limited(x):
        with limit_core_num(4, 24):
            return side_by_side(x)

    pairs, kept = report(limited, torch.ones(3))
    assert [t["args"]["Block Num"] for t in kept] == [24, 24] and not pairs


@pytest.mark.parametrize("order", ["data", "lane", "event"])
def test_an_order_between_them(report, order):
    from torchair import ops as air

    def ordered(x):
        with npu_stream_switch("one"):
            a = ops.moe_dispatch(x)
            mark = air.record()
        with npu_stream_switch("one" if order == "lane" else "two"):
            if order == "event":
                air.wait([mark])
            b = ops.moe_combine(a * 2 if order == "data" else x)
        return a, b

    pairs, kept = report(ordered, torch.ones(3))
    assert len(kept) == 2 and not pairs


def test_an_order_by_way_of_a_third(report):
    def chained(x):
        with npu_stream_switch("one"):
            a = ops.moe_dispatch(x)
        c = a.sin()
        with npu_stream_switch("two"):
            b = ops.moe_combine(x + c)
        with npu_stream_switch("three"):
            d = ops.moe_combine(x)
        return b, d

    pairs, kept = report(chained, torch.ones(3))
    assert len(kept) == 3 and len(pairs) == 2
    assert all("| stream three " in line for line in pairs)


def test_without_communication(report):
    pairs, kept = report(lambda x: x.sin(), torch.ones(3))
    assert not pairs and not kept
