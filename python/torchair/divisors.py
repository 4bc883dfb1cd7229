"""Numbers that eager refuses in integer arithmetic: a graph has them written
in it, so the operator goes to torch, which raises what eager raises."""

from __future__ import annotations

from typing import Any

import torch

from .schema import Refused

_ATEN = torch.ops.aten
_DIVIDE = {
    _ATEN.div.Tensor_mode,
    _ATEN.div.Scalar_mode,
    _ATEN.floor_divide.default,
    _ATEN.floor_divide.Scalar,
    _ATEN.remainder.Tensor,
    _ATEN.remainder.Scalar,
    _ATEN.fmod.Tensor,
    _ATEN.fmod.Scalar,
}


def check(node: torch.fx.Node, value: Any, on_cpu: bool) -> None:
    """Refused where eager refuses the node.

    Only what is written in the graph is seen, not elements of a tensor. A GPU
    divides by zero without a word.
    """
    if not isinstance(value, torch.Tensor) or len(node.args) < 2:
        return
    number = node.args[1]
    if not isinstance(number, int) or value.dtype.is_floating_point:
        return
    if on_cpu and node.target in _DIVIDE and number == 0:
        raise Refused("eager raises: an integer is divided by zero")
    if node.target is _ATEN.pow.Tensor_Scalar and number < 0:
        raise Refused("eager raises: an integer to a negative power")
