"""Where in the user's program a node of the graph comes from."""

from __future__ import annotations

import os

import torch


def location_of(node: torch.fx.Node) -> str | None:
    """ "model.py:41": the user's line that made the node."""
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
    return (
        f"{os.path.basename(trace[start + 6 : end])}:{trace[line + 5 : stop]}"
    )
