"""Where in the user's program a node of the graph comes from."""

from __future__ import annotations

import os

import torch


def source_of(node: torch.fx.Node) -> tuple[str, int] | None:
    """(file, line) of the user's line that made the node."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return None
    start = trace.rfind('File "')
    end = trace.find('"', start + 6)
    line = trace.find("line ", end)
    if start < 0 or line < 0:
        return None
    stop = line + 5
    while stop < len(trace) and trace[stop].isdigit():
        stop += 1
    return trace[start + 6 : end], int(trace[line + 5 : stop])


def location_of(node: torch.fx.Node) -> str | None:
    """ "model.py:41": the user's line that made the node."""
    found = source_of(node)
    return found and f"{os.path.basename(found[0])}:{found[1]}"
