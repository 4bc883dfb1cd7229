"""How graphs are captured and replayed: the options, and what is reported."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

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
    warns: bool = True  # at the limit
    error_mode: str = "global"  # "thread_local", "relaxed"
    listener: Listener | None = None
    trace: bool = False


def with_warning(
    options: CaptureOptions | None, graph: str
) -> CaptureOptions | None:
    """The options, with a word to the user at the limit."""
    if options is None or not options.warns:
        return options
    told = options.listener
    warned = False

    def listen(event: str, number: int) -> None:
        nonlocal warned
        if event == "beyond_limit" and not warned:
            warned = True
            warnings.warn(
                f"capture_limit reached: {graph} has {options.limit} "
                "captures, and another would be needed; from now on it takes "
                "the place of the longest unused. Raise the limit, or pad the "
                "sizes that change.",
                stacklevel=2,
            )
        if told is not None:
            told(event, number)

    return replace(options, listener=listen)
