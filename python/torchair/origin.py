"""Where in the user's program a node of the graph comes from."""

from __future__ import annotations

import os
import re
from typing import Any

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


_MODULES = "in_modules"  # of a node's meta
MODULES_MARK = " nn_module_stack="


def location_of(node: torch.fx.Node) -> str | None:
    """ "model.py:41": the user's line that made the node, and where they are
    asked for the modules around it."""
    found = source_of(node)
    modules = node.meta.get(_MODULES)
    at = found and f"{os.path.basename(found[0])}:{found[1]}"
    return f"{at or ''}{MODULES_MARK}{modules}" if modules else at


def note_modules(gm: torch.fx.GraphModule, config: Any) -> None:
    """Nodes are to say which modules they stand in, where the option
    `enable_record_nn_module_stack` asks for it: "layer[0].fc"."""
    if not config.export.experimental.enable_record_nn_module_stack:
        return
    for node in gm.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        paths = [str(path) for path, _ in stack.values()]
        if paths and paths[-1]:
            node.meta[_MODULES] = _path(paths[-1])


def _path(path: str) -> str:
    """ "L['self'].layer.0.fc" as Python says it: layer[0].fc"""
    words = re.findall(r"\w+", path.replace("_modules", ""))
    if words[:1] == ["L"]:
        words = words[2:]  # and what the method calls the module
    found = "".join(f"[{w}]" if w.isdigit() else f".{w}" for w in words)
    return found.removeprefix(".") or "self"
