"""Dynamo's code around our graphs.

Frames run what Dynamo generated, those behind a graph break with no dispatcher
in front of it. Beside an accelerator (a GPU, or `npu` where packages/torch_npu
is installed) that begins by noting its current stream for graphs that ask for
it, 3 us of Python at each call. Where the graph is ours and asks for nothing,
the code does without. So do its guards without the one of hooks of saved
tensors, which is Python (2 us), unless these are part of the graph: they run
at each call as they do in eager, whichever they are.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from . import bytecode, compat, compat_training, direct

_silent: set[str] = set()  # graphs whose code is not made yet
_hooked: list[Any] = []


def prepare(gm: torch.fx.GraphModule) -> None:
    """While Dynamo compiles the frame of its graph `gm`, for our backend."""
    compat.lighten_calls()
    if not _hooked:
        _hooked.append(compat.on_bytecode(_shorter))
        compat.keep_noted_objects()
    if not compat_training.inlines_saved_tensors_hooks():
        compat.forget_hooks_guard()
    name = gm.meta.get("backend_id")
    if name is not None and not direct.asks_for_objects(gm):
        _silent.add(name)


def _shorter(
    _old: types.CodeType, made: types.CodeType
) -> types.CodeType | None:
    graphs = {n for n in made.co_names if n.startswith("__compiled_fn")}
    if not graphs or not graphs <= _silent:
        return None
    _silent.difference_update(graphs)
    return bytecode.without_streams(made)
