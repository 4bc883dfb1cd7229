"""torchair.scope: context managers whose region carries attributes.

Inside a compiled function they become a pair of nodes around the region;
outside they do nothing. A region must be left in the graph it was entered in.
"""

from __future__ import annotations

from typing import Any

import torch

STREAM_LABEL = "_user_stream_label"
STREAM_PRIORITY = "_user_stream_priority"
INNER_PARALLEL = "_enable_inner_parallel"
SET_STREAM = "_user_set_stream"  # until another one is set
AICORE, VECTORCORE = "_op_aicore_num", "_op_vectorcore_num"
__all__ = ["limit_core_num", "npu_stream_switch"]


class _Scope:
    def __init__(self, keys: list[str], values: list[str]) -> None:
        self.keys = keys
        self.values = values

    def __enter__(self) -> None:
        torch.ops.air.scope_enter(self.keys, self.values)

    def __exit__(self, *_exception: Any) -> None:
        torch.ops.air.scope_exit()


def npu_stream_switch(
    stream_tag: str,
    stream_priority: int = 0,
    enable_inner_parallel: bool = True,
) -> _Scope:
    """Work inside belongs to the stream with this tag; equal tags are the same
    stream, work outside belongs to the default one. Streams of one graph may
    run at the same time; a value that crosses them is waited for.

    stream_priority, enable_inner_parallel: hints.
    """
    return _Scope(
        [STREAM_LABEL, STREAM_PRIORITY, INNER_PARALLEL],
        [str(stream_tag), str(stream_priority), str(enable_inner_parallel)],
    )


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> _Scope:
    """Work inside uses at most so many cores of either kind. On a CPU they are
    threads: op_aicore_num for contractions, op_vectorcore_num (or the other,
    where it is 0) for the rest. Operators that torch computes take what torch
    has. `torchair.explain` and the dumps show it."""
    return _Scope(
        [AICORE, VECTORCORE], [str(op_aicore_num), str(op_vectorcore_num)]
    )
