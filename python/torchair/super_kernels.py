"""Super kernels: the options of scope.super_kernel, "key=value:key=value", and
the option that puts all of a capture in one.

On a CPU a super kernel is one parallel region, on a GPU as few persistent
kernels as its steps allow, where that is faster (docs/cuda-persistent.md).
"""

from __future__ import annotations

import re

import torch

from . import cuda, scope
from .config import warn_once
from .logs import logger

CHECK = "strict-scope-check"
# What a value looks like; only CHECK means something to this engine.
_KINDS = "[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*"
_OPTIONS = {
    "feed-sync-all": "[01]",
    "stream-fusion": "[01]",
    CHECK: "bypass|abort",
    "dcci-before-kernel-start": _KINDS,
    "dcci-after-kernel-end": _KINDS,
    "dcci-disable-on-kernel": _KINDS,
    "debug-aic-num": "[1-9][0-9]*",
    "debug-aiv-num": "[1-9][0-9]*",
}


def parse(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(":") if pair)
    return {key: value for key, _, value in pairs}


def check(name: str, text: str) -> None:
    """Says, once, what is not understood and what has no effect here."""
    for key, value in parse(text).items():
        if key not in _OPTIONS:
            warn_once(
                f"super_kernel {key}",
                f"super_kernel {name!r}: there is no option {key!r}, nothing "
                "is set; there are: " + ", ".join(_OPTIONS),
            )
        elif not re.fullmatch(_OPTIONS[key], value):
            warn_once(
                f"super_kernel {key}={value}",
                f"super_kernel {name!r}: {key}={value!r} is not understood, "
                f"nothing is set; it has to match {_OPTIONS[key]}",
            )
        elif key != CHECK:
            logger.info(
                "super_kernel %r: %s has no effect on this device", name, key
            )


def join_all(gm: torch.fx.GraphModule) -> None:
    """super_kernel_optimize: as if all nodes were in one scope."""
    if cuda.place_of(gm) == cuda.HOST:
        warn_once(
            "super_kernel_optimize on a CPU",
            "super_kernel_optimize has no effect on a CPU: what a captured "
            "graph launches there is already as few units as it can",
        )
        return
    for node in gm.graph.nodes:
        if node.op == "call_function":
            inside = {scope.SUPER_KERNEL: "capture", **scope.of(node)}
            node.meta["scope"] = inside
