"""debug.deadlock_check: communication that may wait for itself.

On a device two kernels of communication that run side by side, each on cores
the other one waits for, never end. The graph says what may happen: an operator
comes before another by data, by the order of its lane, or by an event. Pairs
without an order that need more vector cores than there are get reported;
nothing is refused. Three files for each graph:

    <name>.json                            operators in order
    <name>_filtered.json                   those of communication
    <name>_filtered_deadlock_check.json    the pairs
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

from torch.fx import Graph, Node

from . import lanes
from .logs import logger

VECTOR_CORES = 48  # of the emulated device
COMMUNICATION = ("aiv_", "dispatch", "combine")
Clock = dict[str, int]  # lane -> how many of its operators came before


def _clocks(nodes: list[Node]) -> dict[Node, Clock]:
    """Of each operator, itself included."""
    found: dict[Node, Clock] = {}
    last: dict[str, Node] = {}
    for node in nodes:
        lane = lanes.lane_of(node)
        before = [*node.all_input_nodes, *node.meta.get("after", ())]
        clock: Clock = {}
        for earlier in [*before, last.get(lane)]:
            for key, count in found.get(earlier, {}).items():
                clock[key] = max(clock.get(key, 0), count)
        clock[lane] = clock.get(lane, 0) + 1
        found[node] = clock
        last[lane] = node
    return found


def _row(node: Node, clock: Clock) -> dict[str, Any]:
    limit = node.meta.get("cores")
    return {
        "name": node.name,
        "operator": str(node.target),
        "stream": lanes.lane_of(node),
        "vector_cores": int(limit[1]) if limit else VECTOR_CORES,
        "clock": clock,
    }


def _unordered(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Neither comes before the other; a is earlier in the graph."""
    seen = b["clock"].get(a["stream"], 0)
    return bool(seen < a["clock"][a["stream"]])


def analyse(graph: Graph) -> tuple[list[Any], list[Any], list[Any]]:
    """(operators, those of communication, pairs of names with the cores they
    need together). The graph has been through the pass `order`."""
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    rows = [_row(n, c) for n, c in _clocks(nodes).items()]
    kept = [r for r in rows if any(w in r["operator"] for w in COMMUNICATION)]
    pairs = []
    for a, b in itertools.combinations(kept, 2):
        cores = a["vector_cores"] + b["vector_cores"]
        if cores > VECTOR_CORES and _unordered(a, b):
            pairs.append(
                {
                    "first": a["name"],
                    "second": b["name"],
                    "vector_cores": cores,
                    "available": VECTOR_CORES,
                }
            )
    return rows, kept, pairs


def check(graph: Graph, folder: str, name: str) -> None:
    """Writes the files; a warning in the log for each pair."""
    os.makedirs(folder, exist_ok=True)
    endings = ("", "_filtered", "_filtered_deadlock_check")
    found = analyse(graph)
    for ending, rows in zip(endings, found, strict=True):
        path = os.path.join(folder, f"{name}{ending}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    for pair in found[-1]:
        logger.warning(
            "%s: %s and %s may run side by side and need %d vector cores of %d",
            name,
            pair["first"],
            pair["second"],
            pair["vector_cores"],
            pair["available"],
        )
