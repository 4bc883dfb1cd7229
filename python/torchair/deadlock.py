"""debug.deadlock_check: communication that may wait for itself.

On a device two kernels of communication that run side by side, each on cores
the other one waits for, never end. The graph says what may happen: an operator
comes before another by data, by the order of its lane, or by an event. It is
written as a Chrome trace of tasks, one microsecond each, where data and events
that cross lanes are a record and a wait; the rest is gegraph_check's. Nothing
is refused. Files of each graph, after
debug_output_graph_<number>_timestamp<YYYYMMDDHHMMSS>_pid_<pid>:

    .json                            all tasks
    _filtered.json                   without those that compute
    _filtered_deadlock_check.json    pairs at risk, only where there are any
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

from torch.fx import Graph, Node

from . import comm, lanes, schema
from .logs import logger
from .tools.gegraph_check import trace
from .tools.gegraph_check.deadlock_check import deadlock_check
from .tools.gegraph_check.filter_operators import filter_comm_ops

VECTOR_CORES = 48  # of the emulated device


def _earlier(node: Node) -> list[Node]:
    """What it waits for in other lanes."""
    lane = lanes.lane_of(node)
    found = [*node.all_input_nodes, *node.meta.get("after", ())]
    return [
        n
        for n in dict.fromkeys(found)
        if n.op == "call_function" and lanes.lane_of(n) != lane
    ]


def _kernel(node: Node) -> dict[str, Any]:
    limit = node.meta.get("cores")
    name = schema.target_name(node.target)
    collective = comm.kind_of(node) in (comm.CALL, comm.START)
    return {
        "name": name.rpartition("::")[2],
        "args": {
            "Task Type": "COMMUNICATION" if collective else "KERNEL_AIVEC",
            "Block Num": int(limit[1]) if limit else VECTOR_CORES,
            "Schedule Mode": 1,
            "Node": node.name,
        },
    }


def _flag(kind: str, event: int) -> dict[str, Any]:
    return {"name": kind, "args": {"Task Type": kind, "Event Id": event}}


def _tasks(graph: Graph) -> Iterator[tuple[Node, dict[str, Any]]]:
    """With the node in whose lane each is."""
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    waited = {other for node in nodes for other in _earlier(node)}
    events = {node: i + 1 for i, node in enumerate(nodes) if node in waited}
    for node in nodes:
        for other in _earlier(node):
            yield node, _flag("EVENT_WAIT", events[other])
        yield node, _kernel(node)
        if node in events:
            yield node, _flag("EVENT_RECORD", events[node])


def trace_of(graph: Graph) -> dict[str, Any]:
    """The graph, which has been through the pass `order`, as a trace."""
    tasks = []
    for (node, task), count in zip(_tasks(graph), itertools.count()):
        task["args"]["Task Id"] = count
        where = {"pid": 0, "tid": lanes.lane_of(node), "ts": count, "dur": 1}
        tasks.append({"ph": "X"} | task | where)
    return {"traceEvents": tasks}


def check(graph: Graph, folder: str, number: int) -> None:
    """Writes the files of graph `number` of the process; prints how many pairs
    are at risk and a line for each, which are warnings in the log too."""
    os.makedirs(folder, exist_ok=True)
    now = time.strftime("%Y%m%d%H%M%S")
    stem = f"debug_output_graph_{number}_timestamp{now}_pid_{os.getpid()}"
    path = os.path.join(folder, stem)
    trace.write(f"{path}.json", trace_of(graph))
    filter_comm_ops(f"{path}.json", f"{path}_filtered.json")
    found = deadlock_check(
        f"{path}_filtered.json",
        f"{path}_filtered_deadlock_check.json",
        VECTOR_CORES,
    )
    for line in found:
        logger.warning("deadlock check: %s", line)
