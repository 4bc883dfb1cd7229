"""Tasks of a Chrome trace (`traceEvents`), and which of them are in order.

A task is an event with ph "X"; its stream is tid. What it is stands in args:
"Task Type", "Block Num", "Task Ratio", "Schedule Mode", and for tasks that
record or wait "Event Id" (or "Address": memory that is written or waited for).
"""

from __future__ import annotations

import json
from typing import Any

Task = dict[str, Any]
Clock = dict[Any, int]  # stream -> how many of its tasks came before
_RECORDS = ("EVENT_RECORD", "MEM_WRITE")
_WAITS = ("EVENT_WAIT", "MEM_WAIT")


def read(path: str) -> dict[str, Any]:
    """The trace. ValueError where the file is none."""
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    if isinstance(found, list):
        found = {"traceEvents": found}
    if not isinstance(found.get("traceEvents"), list):
        raise ValueError(f"{path} has no list of traceEvents")
    return dict(found)


def write(path: str, trace: dict[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace, file, indent=1)


def tasks(trace: dict[str, Any]) -> list[Task]:
    """By time; of one time, as they stand in the file."""
    found = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    return sorted(found, key=lambda e: float(e.get("ts", 0)))


def arg(task: Task, name: str, default: Any = "") -> Any:
    return task.get("args", {}).get(name, default)


def _flag(task: Task) -> Any:
    return arg(task, "Event Id", None) or arg(task, "Address", None)


def is_synchronisation(task: Task) -> bool:
    return str(arg(task, "Task Type")).upper() in _RECORDS + _WAITS


def is_communication(task: Task) -> bool:
    """One whose blocks wait for others, all of them at once."""
    name, kind = str(task.get("name", "")), str(arg(task, "Task Type")).lower()
    named = name.startswith(("aiv_", "hccl_aiv")) or any(
        word in name.lower() or word in kind
        for word in ("dispatch", "combine", "communication")
    )
    return named and int(arg(task, "Schedule Mode", 1)) == 1


def clocks(found: list[Task]) -> list[Clock]:
    """Of each task, itself included: order in its stream, and a wait comes
    after the latest record of its event."""
    now: dict[Any, Clock] = {}
    recorded: dict[Any, Clock] = {}
    made = []
    for task in found:
        stream, kind = task.get("tid"), str(arg(task, "Task Type")).upper()
        clock = dict(now.get(stream, {}))
        clock[stream] = clock.get(stream, 0) + 1
        if kind in _WAITS:
            for key, count in recorded.get(_flag(task), {}).items():
                clock[key] = max(clock.get(key, 0), count)
        if kind in _RECORDS:
            recorded[_flag(task)] = clock
        now[stream] = clock
        made.append(clock)
    return made


def close_gaps(found: list[Task], merge_gap: float) -> None:
    """Idle time of a stream of at most merge_gap microseconds goes to the task
    before it."""
    last: dict[Any, Task] = {}
    for task in found:
        before = last.get(task.get("tid"))
        if before is not None:
            end = float(before["ts"]) + float(before.get("dur", 0))
            gap = float(task["ts"]) - end
            if 0 < gap <= merge_gap:
                before["dur"] = float(before.get("dur", 0)) + gap
        last[task.get("tid")] = task
