"""The engine of the process, which the first that needs it starts."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from . import choices, compat, events

_started: tuple[Any, ...] = ()  # the settings the engine runs with


def start(
    driver: str | None = None,
    isa: str | None = None,
    emitter: bool = True,
    verify: bool = False,
) -> None:
    """Starts the engine; the first compilation does it with these defaults.

    driver: "cpu" or "ref"; isa: "amx", "avx512_bf16", "avx512", "avx2",
    "scalar", None for the best here; verify: check the graph after each pass.
    """
    global _started
    from . import _native

    asked = (driver, isa, emitter, verify)
    if _started == asked:
        return
    if not _started:
        os.register_at_fork(after_in_child=_one_thread)
    _native.start(
        compat.torch_cpu_library(),
        compat.gomp_library(),
        driver,
        isa,
        not emitter,
        verify,
        events.step_seconds(),
        events.engine_line,
        choices.path(),
        f"torch {torch.__version__}",
    )
    _started = asked


def _one_thread() -> None:
    """In a child of fork(): GNU OpenMP waits for ever for threads that stayed
    in the parent. So does every operator of torch that uses more than one."""
    torch.set_num_threads(1)


def started() -> bool:
    """Somebody has chosen what the engine runs with."""
    return bool(_started)


def start_once() -> None:
    """Starts the engine unless it runs."""
    if not _started:
        start()


@functools.cache
def refusals() -> tuple[type[Exception], ...]:
    """What a graph that the engine cannot have raises."""
    from ._native import AirError
    from .sizes import Unexpressible

    return Unexpressible, AirError
