"""debug.deadlock_check: which communication may wait for itself."""

import json
import logging

import pytest
import torch
from helpers import assert_same

from torchair import deadlock
from torchair.backend import npugraph_ex
from torchair.npu import limits
from torchair.scope import limit_core_num, npu_stream_switch

library = torch.library.Library("deadlock_test", "FRAGMENT")
for _name in ("moe_dispatch", "moe_combine"):
    library.define(f"{_name}(Tensor x) -> Tensor")
    library.impl(_name, lambda x: x + 1, "CPU")
    torch.library.register_fake(f"deadlock_test::{_name}", torch.empty_like)
ops = torch.ops.deadlock_test


@pytest.fixture
def report(tmp_path, monkeypatch):
    """report(fn, *args): the pairs and the operators of communication."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchair.compat.debug_folder", lambda: str(tmp_path))

    def run(fn, *args):
        options = {"deadlock_check": True}
        compiled = torch.compile(
            fn, backend=npugraph_ex, options=options, fullgraph=True
        )
        assert_same(compiled(*args), fn(*args))
        found = {}
        for path in (tmp_path / "npugraph_ex").iterdir():
            ending = path.stem.partition("inference_")[2].partition("_")[2]
            found[ending] = json.loads(path.read_text())
        assert set(found) == {"", "filtered", "filtered_deadlock_check"}
        return found["filtered_deadlock_check"], found["filtered"]

    return run


def side_by_side(x):
    with npu_stream_switch("one"):
        a = ops.moe_dispatch(x)
    with npu_stream_switch("two"):
        b = ops.moe_combine(x * 2)
    return a, b


def test_the_device_has_as_many_cores_as_its_limits_say():
    assert deadlock.VECTOR_CORES == limits.VECTOR_CORES


def test_two_that_need_all_cores(report, caplog):
    with caplog.at_level(logging.WARNING, "torchair"):
        pairs, kept = report(side_by_side, torch.ones(3))
    names = [r["name"] for r in kept]
    assert [r["stream"] for r in kept] == ["one", "two"]
    assert pairs == [
        {
            "first": names[0],
            "second": names[1],
            "vector_cores": 96,
            "available": 48,
        }
    ]
    assert "may run side by side" in caplog.text


def test_enough_cores_for_both(report):
    def limited(x):
        with limit_core_num(4, 24):
            return side_by_side(x)

    pairs, kept = report(limited, torch.ones(3))
    assert [r["vector_cores"] for r in kept] == [24, 24] and pairs == []


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
    assert len(kept) == 2 and pairs == []


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
    last = kept[2]["name"]
    assert [p["second"] for p in pairs] == [last, last]


def test_without_communication(report):
    pairs, kept = report(lambda x: x.sin(), torch.ones(3))
    assert pairs == kept == []
