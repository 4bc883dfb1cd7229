"""Refuses what would show the host memory that is not computed yet.

Some methods of a tensor read memory without a call of the dispatcher. While
a capture is under way they are functions that look first. A function mode
would see them too, but Dynamo guards on those: what is compiled outside of a
capture could not be called in one.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .record import Recorder

_READS = {
    "tolist": "tolist()",
    "numpy": "numpy()",
    "cpu": "cpu()",
    "__array__": "numpy conversion",
    "__repr__": "printing",
    "__format__": "formatting",
}


class _Mine(threading.local):
    """The recorders of a thread, the innermost last."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


_mine = _Mine()
_lock = threading.Lock()
_captures = 0  # of all threads
_own = {name for name in _READS if name in vars(torch.Tensor)}
_plain = {name: getattr(torch.Tensor, name) for name in _READS}


def recorder() -> Recorder | None:
    """Of the innermost capture of this thread."""
    return _mine.recorders[-1] if _mine.recorders else None


def _look(t: torch.Tensor, what: str) -> None:
    found = recorder()
    if found is None or t.device.type not in found.devices:
        return
    if isinstance(t, FakeTensor) or found.stream() is None:
        return
    if not found.memory(t.untyped_storage()).readable:
        found.refuse(f"the host cannot read a tensor ({what})")


def _guarded(name: str) -> Callable[..., Any]:
    plain, what = _plain[name], _READS[name]

    @functools.wraps(plain)
    def read(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _look(self, what)
        return plain(self, *args, **kwargs)

    return read


def guard(found: Recorder) -> None:
    """For this thread, until `release`."""
    global _captures
    _mine.recorders.append(found)
    with _lock:
        _captures += 1
        if _captures == 1:
            for name in _READS:
                setattr(torch.Tensor, name, _guarded(name))


def release() -> None:
    """Ends the innermost `guard` of this thread."""
    global _captures
    _mine.recorders.pop()
    with _lock:
        _captures -= 1
        if _captures == 0:
            for name in _READS:
                if name in _own:
                    setattr(torch.Tensor, name, _plain[name])
                else:
                    delattr(torch.Tensor, name)
