"""Streams and events of torchair.npu in a function that Dynamo traces: they
become nodes of the graph (see ops.py), which lanes.py understands. Nothing
here runs when the compiled function does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..scope import SET_STREAM


def tracing() -> bool:
    """Is Dynamo reading this code?"""
    return torch.compiler.is_dynamo_compiling()


def constant(fn: Callable[[], int]) -> Callable[[], int]:
    """fn, called once where a traced function calls it."""
    found: Callable[[], int] = torch.compiler.assume_constant_result(fn)
    return found


def set_stream(stream: Any) -> None:
    number, index, kind = stream.name
    name = f"{kind}_{index}_{number}"
    torch.ops.npugraph_ex.scope_enter([SET_STREAM], [name])


def record(tag: str, stream: Any) -> None:
    if stream is None:
        torch.ops.npugraph_ex.tagged_event_record(tag)
    else:
        torch.ops.npugraph_ex.tagged_event_record_on_stream(tag, *stream.name)


def wait(tag: str, stream: Any) -> None:
    if stream is None:
        torch.ops.npugraph_ex.tagged_event_wait(tag)
    else:
        torch.ops.npugraph_ex.tagged_event_wait_on_stream(tag, *stream.name)
