"""torchair.tools.gegraph_check: traces of tasks, with and without an order."""

import json
import subprocess
import sys

import pytest

from torchair.tools.gegraph_check import (
    align_trace,
    deadlock_check,
    filter_operators,
)


def task(name, stream, at, blocks=0, **args):
    given = {"Task Id": at, "Block Num": blocks} | {
        k.replace("_", " "): v for k, v in args.items()
    }
    return {
        "name": name,
        "ph": "X",
        "ts": at,
        "dur": 1,
        "tid": stream,
        "args": given,
    }


def saved(folder, *tasks):
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(tasks)}))
    return str(path)


def loaded(path):
    return json.loads(path.read_text())["traceEvents"]


LEFT = task("aiv_reduce", 1, 0, 24)
RIGHT = task("MoeDispatch", 2, 5, 32)


def check(folder, *tasks, total=48):
    out = folder / "out.json"
    found = saved(folder, *tasks)
    return deadlock_check.deadlock_check(found, str(out), total), out


def test_two_that_may_run_at_once(tmp_path, capsys):
    lines, out = check(tmp_path, LEFT, task("add", 1, 1, 48), RIGHT)
    assert lines == [
        "stream 1 TaskId 0 aiv_reduce vector cores 24 | "
        "stream 2 TaskId 5 MoeDispatch vector cores 32 | sum=56 > 48"
    ]
    assert "1 conflicting pair" in capsys.readouterr().out
    named = {t["name"]: t["dur"] for t in loaded(out)}
    assert named == {
        "dead_lock_aiv_reduce": 49.5,
        "dead_lock_MoeDispatch": 49.5,
        "add": 1,
    }


@pytest.mark.parametrize(
    "kinds", ["EVENT_RECORD EVENT_WAIT", "MEM_WRITE MEM_WAIT"]
)
def test_an_event_orders_them(tmp_path, kinds):
    record, wait = kinds.split()
    lines, out = check(
        tmp_path,
        LEFT,
        task("r", 1, 2, Task_Type=record, Event_Id=7),
        task("w", 2, 3, Task_Type=wait, Event_Id=7),
        RIGHT,
    )
    assert lines == [] and not out.exists()


def test_what_is_no_risk(tmp_path):
    assert not check(tmp_path, LEFT, RIGHT, total=56)[0]
    assert not check(tmp_path, LEFT, RIGHT | {"tid": 1})[0]
    alone = task("MoeDispatch", 2, 5, 32, Schedule_Mode=0)
    assert not check(tmp_path, LEFT, alone)[0]
    assert not check(tmp_path, LEFT, task("matmul", 2, 5, 48))[0]


def test_a_mixed_kernel_counts_twice(tmp_path):
    mixed = task("MoeCombine", 2, 5, 13, Task_Ratio=0.5)
    assert check(tmp_path, LEFT, mixed)[0][0].endswith("sum=50 > 48")


def test_computing_kernels_are_filtered(tmp_path):
    out = tmp_path / "out.json"
    found = saved(
        tmp_path,
        task("add", 1, 0),
        LEFT | {"ts": 1},
        task("r", 1, 4, Task_Type="EVENT_RECORD", Event_Id=1),
    )
    filter_operators.filter_comm_ops(found, str(out), merge_gap=2)
    assert [(t["name"], t["dur"]) for t in loaded(out)] == [
        ("aiv_reduce", 3),
        ("r", 1),
    ]


def test_tasks_are_aligned(tmp_path):
    out = tmp_path / "out.json"
    found = saved(
        tmp_path,
        task("a", 1, 10),
        task("r", 1, 20, Task_Type="EVENT_RECORD", Event_Id=1),
        task("w", 2, 30, Task_Type="EVENT_WAIT", Event_Id=1),
        task("b", 2, 40),
        task("c", 3, 50),
    )
    align_trace.align_trace_json(found, str(out))
    assert [(t["name"], t["ts"]) for t in loaded(out)] == [
        ("a", 0),
        ("r", 1),
        ("w", 2),
        ("b", 3),
        ("c", 0),
    ]


def test_as_a_program(tmp_path):
    found = saved(tmp_path, LEFT, RIGHT)
    module = "torchair.tools.gegraph_check.deadlock_check"
    got = subprocess.run(
        [sys.executable, "-m", module, found, "-o", str(tmp_path / "o.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sum=56 > 48" in got.stdout


def test_a_file_that_is_no_trace(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="no list of traceEvents"):
        align_trace.align_trace_json(str(path), str(path))
