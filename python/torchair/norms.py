"""Norms that save statistics of another dtype than they compute in."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from . import inlined

_OP = torch.ops.aten.native_layer_norm.default


def _wide(tensor: Any) -> Any:
    return None if tensor is None else tensor.float()


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """In float32, as the kernels of half precision compute; the result is
    rounded once, the statistics are not."""
    y, mean, rstd = _OP(x.float(), shape, _wide(weight), _wide(bias), eps)
    return y.to(x.dtype), mean, rstd


def _saves_wide(node: Node) -> bool:
    """Does backward read float32 statistics of a lower dtype's norm? A GPU's
    kernel saves them so; the engine's operator has one dtype."""
    y, mean, _ = node.meta["val"]
    parts = (u for u in node.users if u.target is operator.getitem and u.users)
    used = {u.args[1] for u in parts}
    low = y.dtype in (torch.bfloat16, torch.float16)
    return low and mean.dtype == torch.float32 and bool(used & {1, 2})


inlined.register(_OP, _layer_norm, _saves_wide)


# ---- norms of half precision with weights of float32, as under autocast ----
# torch's kernels save float32 statistics, and some take no others back, but the
# operators' Meta functions say otherwise, of gradients too. So they are written
# out while the graph is traced, before anything is said to be saved. Kernels of
# a GPU take no such weights, or (batch norm) are described as they are.


def _is_mixed(x: Any, weight: Any) -> bool:
    if x.device.type == "cuda" or weight is None:
        return False
    low = x.dtype in (torch.bfloat16, torch.float16)
    return low and weight.dtype == torch.float32


def _in_float32(op: Any, halves: int, weight_at: int) -> Any:
    """The operator in float32; its first `halves` arguments, of which the last
    is the norm's operand, and its first result are of half precision."""

    def wide(*args: Any) -> Any:
        x = args[halves - 1]
        if not _is_mixed(x, args[weight_at]):
            return NotImplemented
        given = (a.float() for a in args[:halves])
        first, *others = op(*given, *args[halves:])
        return first if first is None else first.to(x.dtype), *others

    return wide


_ATEN = torch.ops.aten
_NORMS = {
    _ATEN.native_group_norm.default: 1,
    _ATEN.native_layer_norm.default: 2,
    _ATEN._native_batch_norm_legit.no_stats: 1,
}
_GRADIENTS = {
    _ATEN.native_group_norm_backward.default: 4,
    _ATEN.native_layer_norm_backward.default: 5,
    _ATEN.native_batch_norm_backward.default: 2,
}
DECOMPOSITIONS = {
    **{op: _in_float32(op, 1, at) for op, at in _NORMS.items()},
    **{op: _in_float32(op, 2, at) for op, at in _GRADIENTS.items()},
}
