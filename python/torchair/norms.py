"""Layer norms that save statistics of another dtype than they compute in."""

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
