"""flex_attention, written out among the nodes around it.

torch computes scores of all pairs on a CPU, and what a function of the user
makes of them, operator by operator. Here its nodes fuse, and attention is found
where it is one (pass attention).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import inlined
from .compat import HOST_DEVICES

hops = torch.ops.higher_order
aten = torch.ops.aten
Call = Callable[..., Any]
_LN2 = math.log(2)  # the operator's logarithms are those of 2
_TRUE = (aten.full.default, aten.new_ones.default, aten.ones.default)


def _shows_all(mask: Any) -> bool:
    """Is it the mask of who gives none?"""
    if not isinstance(mask, GraphModule):
        return False
    (made,) = mask.graph.find_nodes(op="output")[0].all_input_nodes or (None,)
    if made is None or made.target not in _TRUE:
        return False
    return made.target is not aten.full.default or made.args[1] is True


def _each(fn: Call, prefix: Any, suffix: Any) -> Call:
    """fn of one score as a function of all: its axes are mapped one by one."""
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    return _vmap_for_bhqkv(fn, prefix=prefix, suffix=suffix)


class _Scores:
    """of q and k, whose heads are as many as those of q."""

    def __init__(
        self, q: Any, k: Any, scale: float, mask: Any, more: Sequence[Any]
    ) -> None:
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.plain = (q.to(wide) @ k.to(wide).transpose(-2, -1)) * scale
        self.at = [torch.arange(n, device=q.device) for n in self.plain.shape]
        self.seen: Any = None  # None: all
        if not _shows_all(mask):
            each = _each(mask, (), (None,) * len(more))
            self.seen = each(*self.at, *more)

    def changed(self, function: Call, more: Sequence[Any]) -> Any:
        each = _each(function, (0,), (None,) * len(more))
        found = each(self.plain, *self.at, *more)
        if self.seen is None:
            return found
        return torch.where(self.seen, found, -math.inf)


def _indexing() -> Any:
    """Where the user's functions index buffers by tensors."""
    from torch._dynamo import _trace_wrapped_higher_order_op as traced

    return traced.TransformGetItemToIndex()


def _heads_of(q: Any, x: Any) -> Any:
    """Keys or values, as many as queries."""
    if q.size(1) != x.size(1):
        x = x.repeat_interleave(q.size(1) // x.size(1), dim=1)
    return x.expand(q.size(0), *x.shape[1:])


def _forward(
    q: Any,
    k: Any,
    v: Any,
    function: Call,
    block_mask: Sequence[Any],
    scale: float,
    _options: Any,
    more: Sequence[Any] = (),
    mask_more: Sequence[Any] = (),
) -> Any:
    k, v = _heads_of(q, k), _heads_of(q, v)
    with _indexing():
        scores = _Scores(q, k, scale, block_mask[-1], mask_more)
        changed = scores.changed(function, more)
    weights = torch._safe_softmax(changed, dim=-1)
    return (
        weights.to(q.dtype) @ v.to(q.dtype),
        changed.logsumexp(-1) / _LN2,
        changed.amax(-1) / _LN2,
    )


def _on_cpu(node: Node) -> bool:
    return bool(node.meta["val"][0].device.type in HOST_DEVICES)


inlined.register(hops.flex_attention, _forward, _on_cpu)
