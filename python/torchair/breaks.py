"""BREAK_GRAPH_OP_LIST: operators at which Dynamo is to break the graph.

A way around a graph that cannot be traced or compiled, without a change of the
program: SLICE (x[a:b]), SETITEM (x[i] = v), NN.CONV3D and NN.LINEAR, in a list
with commas, in any case. Read when torchair's backend is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from . import compat

VARIABLE = "BREAK_GRAPH_OP_LIST"


def _at_module(kind: Any) -> None:
    why = f"{VARIABLE} names it"
    kind.forward = torch.compiler.disable(kind.forward, reason=why)


_BREAKS: dict[str, Callable[[], None]] = {
    "SLICE": compat.break_at_slices,
    "SETITEM": compat.break_at_writes,
    "NN.CONV3D": lambda: _at_module(torch.nn.Conv3d),
    "NN.LINEAR": lambda: _at_module(torch.nn.Linear),
}


def names_in(text: str) -> list[str]:
    """RuntimeError for a name that is none of ours."""
    found = [part.strip().upper() for part in text.split(",") if part.strip()]
    for name in found:
        if name not in _BREAKS:
            raise RuntimeError(
                f"{VARIABLE} has {name!r}; it knows {', '.join(_BREAKS)}, "
                "with commas between them"
            )
    return list(dict.fromkeys(found))


def install() -> None:
    for name in names_in(os.environ.get(VARIABLE, "")):
        _BREAKS[name]()
