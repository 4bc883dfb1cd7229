"""What captures report to the user: log lines and counters.

Scripts search for pieces of these lines, and read
torch._dynamo.utils.counters["npugraph_ex"], so both say what the interface
specifies, at the points it names.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .capture import CaptureOptions
from .logs import logger

_graphs = itertools.count()
_counted: collections.Counter[str] = collections.Counter()

# Row of include/air_calls.def -> beginning of the counter's name.
COUNTERS = {
    "captured": "captured_",
    "recaptured_mutated_input": "recapture_due_to_mutated_input_change_",
    "recaptured_core_limit": "recapture_due_to_global_limit_core_change_",
    "recaptured_force": "recapture_due_to_force_recapture_",
}
_RECAPTURE = (
    "Find captured AclGraph{{id: {id}}} of fx_graph {graph}",
    "The current AclGraph needs to be recaptured: {why}",
)
_CAPTURE = (
    "Start to capture fx_graph {graph}, memory pool reuse is {reuse}",
    "Success to capture fx_graph {graph}: AclGraph{{id: {id}}}",
    "After capturing fx_graph {graph}: {count} captured graph(s)",
)
_SHARED = (
    "Start setting to original memory state for fx_graph {graph}",
    "When mempool reuse is enabled in fx_graph {graph}, scratch memory of "
    "its captures is one and the same",
)
_RUN = (
    "Start to run AclGraph{{id: {id}}} with the updated node num {{0}}",
    "Replay AclGraph and update input params successfully",
)
_SEVERAL = ("After reconstructing fx_graph {graph}: outputs belong to a call",)
_ONE = ("There is no need to reconstruct output tensors for {graph}",)


class Reporter:
    """The listener of one graph's captures (CaptureOptions.listener)."""

    def __init__(self, options: CaptureOptions) -> None:
        self.options = options
        self.graph = f"graph_{next(_graphs)}"
        self.captures = 0

    def __call__(self, event: str, number: int) -> None:
        counter = COUNTERS.get(event)
        if counter:
            self._count(counter)
        if event == "captured":
            self.captures += 1
            self._warn_of_overwriting()
        if logger.isEnabledFor(logging.DEBUG):
            for line in self._lines(event):
                logger.debug("%s", self._filled(line, event, number))

    def _count(self, beginning: str) -> None:
        _counted[beginning + self.graph] += 1
        utils = sys.modules.get("torch._dynamo.utils")
        while utils is not None and _counted:  # else nobody looks at them yet
            name, count = _counted.popitem()
            utils.counters["npugraph_ex"][name] += count

    def _warn_of_overwriting(self) -> None:
        if self.options.clone_output is False and self.captures == 2:
            warnings.warn(
                "Because acl graph fixes memory addresses, results of "
                f"{self.graph} are overwritten by its next run; set "
                "clone_output=True to keep them",
                stacklevel=2,
            )

    def _lines(self, event: str) -> tuple[str, ...]:
        shares = self.options.reuse_memory and self.captures > 1
        after = _SEVERAL if shares else _ONE
        if event == "captured":
            first = ("No find captured AclGraph for fx_graph {graph}",)
            return first + (_SHARED if shares else ()) + _CAPTURE + _RUN + after
        if event.startswith("recaptured"):
            return _RECAPTURE + _CAPTURE + _RUN + after
        if event == "replayed":
            return (
                _RECAPTURE[0],
                "The current AclGraph no needs to be recaptured",
                *_RUN,
                *after,
            )
        return ("fx_graph {graph}: {why}",)

    def _filled(self, line: str, event: str, number: int) -> str:
        return line.format(
            graph=self.graph,
            id=number,
            count=self.captures,
            why=event,
            reuse="enable" if self.options.reuse_memory else "disable",
        )


def report(options: CaptureOptions) -> CaptureOptions:
    """options with a listener that reports; each replay too where the log
    shows it."""
    options.listener = Reporter(options)
    options.trace = logger.isEnabledFor(logging.DEBUG)
    return options


def compiled(gm: torch.fx.GraphModule, removes_cat: bool) -> None:
    """A graph is about to be compiled by the engine."""
    if removes_cat and logger.isEnabledFor(logging.DEBUG):
        found: Callable[..., Any] = gm.graph.find_nodes
        cats = found(op="call_function", target=torch.ops.aten.cat.default)
        found_cats(len(cats))


def found_cats(count: int) -> None:
    """How many concatenations are computed in their place."""
    logger.debug("[remove_cat_ops] Found %d cat node(s)", count)


def step_seconds() -> float:
    """Environment variable TORCHAIR_OP_TIMEOUT: a step of a program that takes
    longer is reported. 0: no limit. ValueError where it is no number."""
    text = os.environ.get("TORCHAIR_OP_TIMEOUT", "0")
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"TORCHAIR_OP_TIMEOUT is {text!r}; give seconds, or 0 for no limit"
        ) from None


def engine_line(level: int, line: str) -> None:
    """A line of the engine: 0 is an error, 1 a warning."""
    logger.log(logging.WARNING if level else logging.ERROR, "%s", line)
