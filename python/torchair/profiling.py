"""Ranges in torch.profiler's traces: what a call of a compiled graph does.

    npu_fx_compiler inference     from the arguments to the results
        ExecuteGraph              the engine's part, with operators of torch

What lies before the first is Dynamo's: guards and its generated code. There
are none, and they cost nothing, while nobody profiles: torch tells when
somebody does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def install() -> None:
    """Follows torch's profilers, and one that is on already."""
    profiler: Any = torch.autograd.profiler
    for name, on in (
        ("_run_on_profiler_start", True),
        ("_run_on_profiler_stop", False),
    ):
        setattr(profiler, name, _telling(getattr(profiler, name), on))
    _tell(bool(profiler._is_profiler_enabled))


def _telling(told: Callable[[], None], on: bool) -> Callable[[], None]:
    @functools.wraps(told)
    def tell() -> None:
        told()
        _tell(on)

    return tell


def _tell(on: bool) -> None:
    from . import _native

    kind: Any = torch._C._profiler
    _native.profile_ranges(kind._RecordFunctionFast if on else None)
