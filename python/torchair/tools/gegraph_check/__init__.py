"""Tools over Chrome traces of task schedules; each module is a program too:
python -m torchair.tools.gegraph_check.deadlock_check IN -o OUT."""

from __future__ import annotations

from typing import Any

_HERE = {
    "filter_comm_ops": "filter_operators",
    "align_trace_json": "align_trace",
}


def __getattr__(name: str) -> Any:
    """On demand: a module that runs as a program is not imported before."""
    from importlib import import_module

    if name not in _HERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HERE[name]}"), name)
