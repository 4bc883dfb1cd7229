"""torchair.scope: context managers whose region carries attributes.

Inside a compiled function they become a pair of nodes around the region;
outside they do nothing. A region must be left in the graph it was entered in.
Where regions are nested the inner one's attributes count.

    attribute                     effect
    _user_stream_label            a lane: runs beside others (docs/streams.md)
    _super_kernel_scope           one parallel region
    _op_aicore_num, _op_vectorcore_num    threads of products, of the rest
    _op_exec_never_timeout        no limit of time (TORCHAIR_OP_TIMEOUT)
    _deterministic_level          none: results never depend on chance
    torchair_enable_data_dump     node.meta["torchair_scope_data_dump"]
"""

from __future__ import annotations

from typing import Any

import torch

from . import (
    checks,
    ops,  # noqa: F401 it registers torch.ops.air
)

STREAM_LABEL = "_user_stream_label"
STREAM_PRIORITY = "_user_stream_priority"
INNER_PARALLEL = "_enable_inner_parallel"
SET_STREAM = "_user_set_stream"  # until another one is set
AICORE, VECTORCORE = "_op_aicore_num", "_op_vectorcore_num"
SUPER_KERNEL = "_super_kernel_scope"
DETERMINISTIC = "_deterministic_level"
SUPER_KERNEL_OPTIONS = "_super_kernel_options"
NEVER_TIMEOUT = "_op_exec_never_timeout"
DATA_DUMP = "torchair_enable_data_dump"
TRUTHS = {INNER_PARALLEL, NEVER_TIMEOUT}  # the others are text
__all__ = [
    "data_dump",
    "limit_core_num",
    "npu_stream_switch",
    "npu_wait_tensor",
    "op_never_timeout",
    "super_kernel",
]


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


def npu_wait_tensor(
    self: torch.Tensor, dependency: torch.Tensor
) -> torch.Tensor:
    """What reads `self` from here on starts after `dependency` has been
    computed. Returns self; the result may be used or not, which is the same.

    NotImplementedError outside of a compiled function, and in modes that
    capture: use torchair.ops.record and wait there.
    """
    torch.ops.air.wait_tensor(self, dependency)
    return self


def super_kernel(scope: str | None, options: str = "") -> _Scope:
    """Work inside runs in one parallel region: nothing in it leaves the region
    to call a library that starts threads of its own. scope: its name; None:
    work inside belongs to no super kernel, whatever is around it.

    options: "key=value:key=value". strict-scope-check=abort: RuntimeError
    where an operator inside is one that torch computes, which ends the region;
    "bypass": a warning. Others are for kernels of other devices.
    """
    checks.is_a(str, options, "super_kernel: options", "a str")
    name = "" if scope is None else str(scope)
    return _Scope(
        [SUPER_KERNEL, SUPER_KERNEL_OPTIONS], [name, options if name else ""]
    )


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> _Scope:
    """Work inside uses at most so many cores of either kind. On a CPU they are
    threads: op_aicore_num for contractions, op_vectorcore_num (or the other,
    where it is 0) for the rest. Operators that torch computes take what torch
    has. `torchair.explain` and the dumps show it."""
    limits = str(op_aicore_num), str(op_vectorcore_num)
    for name, text in zip(("aicore", "vectorcore"), limits, strict=True):
        if not text.isdecimal():
            raise ValueError(
                f"limit_core_num: op_{name}_num is {text}; give a number of "
                "cores, 0 where there is no limit"
            )
    return _Scope([AICORE, VECTORCORE], list(limits))


def deterministic(level: int) -> _Scope:
    """Work inside gives the same bits at every run: 0 not asked for, 1 where
    possible, 2 always. The engine's results never depend on chance or on the
    number of threads, so this is a mark on the nodes. ValueError for another
    level."""
    if type(level) is not int or level not in (0, 1, 2):
        raise ValueError(f"deterministic: level {level!r} is not 0, 1 or 2")
    return _Scope([DETERMINISTIC], [str(level)])


def op_never_timeout(enable: bool = True) -> _Scope:
    """Work inside has no limit of time (environment variable
    TORCHAIR_OP_TIMEOUT, seconds); enable=False inside of it has one again. An
    operator fused with others that have a limit has it too."""
    if not isinstance(enable, bool):
        raise TypeError(f"enable must be a bool, got {type(enable).__name__}")
    return _Scope([NEVER_TIMEOUT], [str(enable)])


def data_dump() -> _Scope:
    """Inputs and outputs of the operators inside are dumped, where
    `dump_config.enable_dump` is on."""
    return _Scope([DATA_DUMP], ["True"])


def of(node: torch.fx.Node) -> dict[str, str]:
    """Attributes of the scopes around a node, once lanes.assign has run."""
    inside: dict[str, str] = node.meta.get("scope", {})
    return inside
