"""Looking into captured graphs: dumps, and scopes of super kernels."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from .memory import Window
from .record import Entry

if TYPE_CHECKING:
    from .graphs import _Work


# ---- super_kernel_optimize ----

_INT, _TEXT, _TEXTS = "int", "str", "list of str"
_STRATEGIES = {
    "event_breaker_bypass": _INT,
    "value_breaker_bypass": _INT,
    "task_breaker_bypass": _INT,
}
_OPTIMIZE: dict[str, Any] = {
    "preload_code": _INT,
    "split_mode": _INT,
    "stream_fusion": _INT,
    "constant_codegen": _INT,
    "auto_op_parallel": _INT,
    "early_start": _INT,
    "opt_extend": _TEXT,
    "dcci_before_kernel_start": _TEXTS,
    "dcci_after_kernel_end": _TEXTS,
    "dcci_disable_on_kernel": _TEXTS,
    "ubuf_lock_ignore_kernel": _TEXTS,
    "aggressive_opt_strategies": _STRATEGIES,
}
_DEBUG: dict[str, Any] = {
    "debug_sync_all": _INT,
    "debug_op_exec_trace": _INT,
    "debug_cross_core_sync_check": _INT,
    "debug_per_op_max_core_num": _INT,
    "debug_extend": _TEXT,
}


def _is(value: Any, kind: str) -> bool:
    if kind == _INT:
        return type(value) is int
    if kind == _TEXT:
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _check(what: str, options: Any, table: dict[str, Any]) -> None:
    if not isinstance(options, dict):
        raise RuntimeError(
            f"{what} must be a dict, got {type(options).__name__}"
        )
    for key, value in options.items():
        kind = table.get(key)
        if kind is None:
            raise RuntimeError(
                f"{what} has no key {key!r}; known are {', '.join(table)}"
            )
        if isinstance(kind, dict):
            _check(f"{what}[{key!r}]", value, kind)
        elif not _is(value, kind):
            raise RuntimeError(
                f"{what}[{key!r}] must be of type {kind}, got {value!r}"
            )


def check_super_kernel(optimize_options: Any, debug_options: Any) -> None:
    """RuntimeError for unknown keys and values of another type."""
    if optimize_options is not None:
        _check("optimize_options", optimize_options, _OPTIMIZE)
    if debug_options is not None:
        _check("debug_options", debug_options, _DEBUG)


_local = threading.local()


def _scopes() -> list[str | None]:
    found: list[str | None] | None = getattr(_local, "scopes", None)
    if found is None:
        found = _local.scopes = []
    return found


def super_kernel_scope_begin(scope_name: str | None = None) -> None:
    """Operators up to the end may become one kernel. The engine fuses what it
    can with or without scopes; only the pairing is checked."""
    _scopes().append(scope_name)


def super_kernel_scope_end(scope_name: str | None = None) -> None:
    """RuntimeError where the innermost scope has another name."""
    open_ = _scopes()
    if not open_ or open_[-1] != scope_name:
        raise RuntimeError(
            f"super_kernel_scope_end({scope_name!r}) does not close the "
            f"innermost scope ({open_[-1]!r})"
            if open_
            else "super_kernel_scope_end without super_kernel_scope_begin"
        )
    open_.pop()


_npu = torch.library.Library("npu", "FRAGMENT")
for _name, _call in (
    ("super_kernel_scope_begin", super_kernel_scope_begin),
    ("super_kernel_scope_end", super_kernel_scope_end),
):
    _npu.define(f"{_name}(str? scope_name=None) -> ()")
    _npu.impl(_name, _call, "CompositeImplicitAutograd")
    torch.fx.node.has_side_effect(getattr(torch.ops.npu, _name).default)


# ---- NPUGraph.debug_dump ----


def _plain(x: Any) -> Any:
    """What JSON can hold."""
    if isinstance(x, Window):
        return {
            "address": hex(x.memory.address + x.offset * x.dtype.itemsize),
            "dtype": str(x.dtype).removeprefix("torch."),
            "shape": list(x.size),
            "stride": list(x.stride),
        }
    if isinstance(x, (list, tuple)):
        return [_plain(y) for y in x]
    if isinstance(x, dict):
        return {str(k): _plain(v) for k, v in x.items()}
    return x if isinstance(x, (int, float, str, type(None))) else str(x)


def _row(index: int, entry: Entry) -> dict[str, Any]:
    return {
        "id": index,
        "name": str(entry.func),
        "stream": entry.stream,
        "args": _plain(entry.args),
        "kwargs": _plain(entry.kwargs),
        "results": _plain(entry.outs),
        "updatable": entry.grouped,
    }


def dump(work: _Work, path: str) -> None:
    """<path>: captured operators; <stem>.aligned.json: the traced graph."""
    path = os.fspath(path)
    with open(path, "w") as file:
        json.dump([_row(i, e) for i, e in enumerate(work.log)], file, indent=1)
    graph = work.captured.graph.graph if work.captured else None
    nodes = [
        {
            "name": n.name,
            "op": n.op,
            "target": str(n.target),
            "args": _plain(
                tree_map_only(torch.fx.Node, lambda x: x.name, n.args)
            ),
        }
        for n in (graph.nodes if graph else ())
    ]
    stem = os.path.splitext(path)[0]
    with open(f"{stem}.aligned.json", "w") as file:
        json.dump(nodes, file, indent=1)
