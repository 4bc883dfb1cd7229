"""Random operators stay with torch, so that results equal eager's.

What ATen draws depends on the operator (24 bits of mt19937, pairs of normals,
a stream of the vendor's library for bernoulli) and the state is behind a C++
object. A HOST node draws; HOST nodes run in the order of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .hosts import Call
from .sizes import Args, is_symbolic

REASON = "drawn by torch, from its generator"


def is_random(target: Any) -> bool:
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _memory_order(value: Any) -> list[int] | None:
    """Axes from the outermost in memory; None: row-major. Draws are made in
    the order of memory, and eager's may not be the engine's."""
    given: tuple[Any, ...] = value.stride()
    strides = [(s.node.hint or 0) if is_symbolic(s) else s for s in given]
    axes = list(range(len(strides)))
    order = sorted(axes, key=lambda i: -strides[i])
    return None if order == axes else order


def _lay_out(t: torch.Tensor, order: list[int] | None) -> torch.Tensor:
    if order is None:
        return t.contiguous()
    like = torch.empty_permuted(t.shape, order, dtype=t.dtype)
    return like.copy_(t)


def in_memory_order(call: Call, values: Sequence[torch.Tensor]) -> Call:
    """The call on tensors laid out as eager's, which `values` stand for."""
    orders = [_memory_order(v) for v in values]

    def draw(args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        return call(args, tuple(map(_lay_out, tensors, orders)))

    return draw


def keep_mask(p: float) -> Call:
    """The mask that native_dropout of its operand draws."""

    def draw(_args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        mask = torch.empty_like(tensors[0], dtype=torch.bool)
        return (mask.bernoulli_(1 - p),)

    return draw
