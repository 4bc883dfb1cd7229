"""The line that errors end with: when, which process, device and rank, and
what kind of error it is.

    [ERROR] 2026-11-21-21:40:00 (PID:17, Device:-1, RankID:-1) ERR03001 ...
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
_WRONG = "ERR03001 GRAPH invalid parameter"
# The first that the error is an instance of.
_KINDS = (
    (NotImplementedError, "ERR03007 GRAPH feature not supported"),
    ((ValueError, TypeError, AssertionError), _WRONG),
    (FileNotFoundError, "ERR03008 GRAPH resource not found"),
    (Exception, "ERR03005 GRAPH internal error"),
)


def decorated(fn: Function) -> Function:
    """fn, whose exceptions end with that line. They stay the objects they
    were, with their type and traceback."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            _add_line(error)
            raise

    return cast(Function, call)


def _add_line(error: Exception) -> None:
    if _is_of_dynamo(error) or getattr(error, "_torchair_line", False):
        return
    error._torchair_line = True  # type: ignore[attr-defined]
    if len(error.args) == 1 and str(error) == error.args[0]:
        error.args = (f"{error}\n{_line(error)}",)
    else:  # says it in another way
        error.add_note(_line(error))


def _is_of_dynamo(error: Exception) -> bool:
    """Does Dynamo steer itself by it?"""
    exc = sys.modules.get("torch._dynamo.exc")
    return exc is not None and isinstance(error, exc.TorchDynamoException)


def _line(error: Exception) -> str:
    now = time.strftime("%Y-%m-%d-%H:%M:%S")
    device = 0 if "torch_npu" in sys.modules else -1
    kind = next(text for types, text in _KINDS if isinstance(error, types))
    return (
        f"[ERROR] {now} (PID:{os.getpid()}, Device:{device}, "
        f"RankID:{_rank()}) {kind}"
    )


def _rank() -> int:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not (dist.is_available() and dist.is_initialized()):
        return -1
    return int(dist.get_rank())
