"""Where in the user's program a node of the graph comes from."""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import torch

_DIGITS = re.compile(r"\d+")


# torch.set_default_device puts a frame of torch around each operator.
_DEVICE = os.path.join("torch", "utils", "_device.py")


@functools.lru_cache(maxsize=1024)  # nodes of a line have equal traces
def _source(trace: str) -> tuple[str, int] | None:
    before, _, last = trace.rpartition('File "')
    file, _, rest = last.partition('", line ')
    if file.endswith(_DEVICE) and before:
        return _source(before)
    line = _DIGITS.match(rest)
    return (file, int(line[0])) if line else None


@functools.lru_cache(maxsize=1024)
def _location(trace: str) -> str | None:
    found = _source(trace)
    return found and f"{os.path.basename(found[0])}:{found[1]}"


def source_of(node: torch.fx.Node) -> tuple[str, int] | None:
    """(file, line) of the user's line that made the node."""
    trace = node.meta.get("stack_trace")
    return _source(trace) if trace else None


_MODULES = "in_modules"  # of a node's meta
MODULES_MARK = " nn_module_stack="


def location_of(node: torch.fx.Node) -> str | None:
    """ "model.py:41": the user's line that made the node, and where they are
    asked for the modules around it."""
    trace = node.meta.get("stack_trace")
    at = _location(trace) if trace else None
    modules = node.meta.get(_MODULES)
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
