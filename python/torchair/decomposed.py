"""Operators of quantized_decomposed, which models have that PT2E has quantised,
written out as the Python functions that are their kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from . import inlined
from .schema import namespace_of

_HOME = "torch.ao.quantization.fx._decomposed"  # defines the operators
# Those whose kernels read no number of a tensor.
_BY = ("tensor", "channel", "token", "channel_group")
_NAMES = {f"{what}quantize_per_{by}" for what in ("", "de") for by in _BY}


def prepare(gm: torch.fx.GraphModule, converter: Callable[[Any], Any]) -> None:
    """Makes what the graph has of them known to inlined.expand. converter: of
    an operator, the user's, who has then written it; or None."""

    def is_free(node: torch.fx.Node) -> bool:
        return converter(node.target) is None

    targets = {n.target for n in gm.graph.nodes if n.op == "call_function"}
    for target in targets:
        if namespace_of(target) == "quantized_decomposed":
            kernel = _kernel(target)
            if kernel is not None:
                inlined.register(target, kernel, is_free)


def _kernel(target: Any) -> Any:
    name, _, overload = str(target).partition(".")[2].rpartition(".")
    known = overload == "default" and name in _NAMES
    return getattr(sys.modules.get(_HOME), name, None) if known else None
