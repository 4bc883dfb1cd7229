"""Inference graphs whose program the dispatcher calls itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from . import direct, dispatch


class Made(Protocol):
    """What compiled the graph that AOTAutograd gave."""

    nargs: int
    meta: Any  # AOTAutograd's
    plan: direct.Plan | None
    held: list[Any]


@dataclass(frozen=True)
class Job:
    """A graph whose program the dispatcher may call itself."""

    gm: torch.fx.GraphModule  # Dynamo's
    compiled: Callable[..., Any]  # what is called otherwise
    made: Made
    nargs: int


def call_directly(
    job: Job, program: Any, look: Callable[..., None] | None
) -> str:
    """Lets the dispatcher call the program, behind a look at its arguments;
    why not, where it must not."""
    from ._native import Program

    made = job.made
    if not isinstance(program, Program):
        return "torch runs the graph, or its runs are timed"
    if direct.takes_wrapped(job.gm):
        return "an input is a subclass of Tensor"
    try:
        found = direct.plan(made.meta, job.nargs, made.nargs, made.held)
    except direct.Kept as why:
        dispatch.reasons[f"through AOTAutograd: {why}"] += 1
        return str(why)
    made.plan = found
    run = direct.make(program, found, look)
    dispatch.mark_direct(job.compiled, run)
    return ""
