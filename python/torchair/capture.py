"""How graphs are captured and replayed: the options, and what is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# (event, number of the capture). Events are the call classes of
# include/air_calls.def; "replayed" is told where `trace` is set only. Number
# 0: no capture ran.
Listener = Callable[[str, int], None]


@dataclass
class CaptureOptions:
    """The part of a configuration that the engine's captures look at.

    clone_input and clone_output: None where the user has not said anything;
    then inputs are used in place and results are never overwritten. True and
    False ask for exactly what the options of `npugraph_ex` specify.
    """

    limit: int = 64
    clone_input: bool | None = None
    clone_output: bool | None = None
    frozen_parameter: bool = False
    force_recapture: bool = False
    reuse_memory: bool = True  # reuse_graph_pool_in_same_fx
    pool: tuple[int, int] | None = None  # use_graph_pool
    warmups: int = 0
    error_mode: str = "global"  # "thread_local", "relaxed"
    listener: Listener | None = None
    trace: bool = False
