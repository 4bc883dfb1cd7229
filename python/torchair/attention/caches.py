"""Keys and values of a call as dense numbers: blocks gathered, integers as what
they stand for."""

from __future__ import annotations

from typing import Any

import torch

from . import forms
from .arguments import Call
from .forms import Sizes
from .spans import Span, aside


def _integers(t: torch.Tensor) -> torch.Tensor:
    """Eight numbers of 4 bits to an int32, the lowest first."""
    if t.dtype is not torch.int32:
        return t
    shifts = torch.arange(0, 32, 4, device=t.device, dtype=torch.int32)
    bits = (t[..., None] >> shifts) & 15
    return ((bits ^ 8) - 8).flatten(-2)


def _stretched(t: torch.Tensor, axis: int, size: Any) -> torch.Tensor:
    """One stands for all; what is missing is as the last."""
    n = t.shape[axis]
    if n == 1 or n == size:
        return t
    at = torch.arange(size, device=t.device).clamp(max=n - 1)
    return t.index_select(axis, at)


class Cache:
    """Keys or values, and what their integers stand for."""

    def __init__(self, c: Call, z: Sizes, given: Any, dtype: torch.dtype):
        self.given, self.dtype = given, dtype
        self.blocks = None
        self.paged_scales = forms.numbers(c, z)[-1]
        if c.block_table is not None:
            most = max(c.key.shape[0] - 1, 0)
            self.blocks = c.block_table.clamp(0, most).to(torch.int64)

    def rows(self, name: str, span: Span, page: Any) -> torch.Tensor:
        """[batches, heads, keys, width]"""
        t = self.given[name]
        factors = [self.given.get(f"{name}_{x}") for x in ("offset", "scale")]
        if self.blocks is None:
            t = self.numbers(_integers(t), factors, t.shape[2], t.shape[0])
            return aside(t, span)
        blocks = self.blocks[:, : span.size // page]
        t = t[blocks].transpose(1, 2).flatten(2, 3)
        t = t.flatten(3) if t.dim() == 5 else _integers(t)
        if self.paged_scales:
            factors = [
                None if x is None else x[blocks].transpose(1, 2).flatten(2, 3)
                for x in factors
            ]
        return self.numbers(t, factors, t.shape[2], t.shape[0])

    def numbers(
        self, t: torch.Tensor, factors: Any, keys: Any, batches: Any
    ) -> torch.Tensor:
        if t.dtype is not self.dtype:
            t = t.to(self.dtype)
        ways: tuple[Any, ...] = (torch.add, torch.mul)
        for x, combine in zip(factors, ways, strict=True):
            if x is not None:
                x = _stretched(_stretched(x.float(), 0, batches), 2, keys)
                t = combine(t, x)
        return t

    def prefix(self, name: str, batches: Any) -> torch.Tensor:
        """It has the scale of its batch's first key."""
        t = _integers(self.given[f"{name}_prefix"])
        factors = [
            None if x is None else x[:, :, :1]
            for x in (
                self.given.get(f"{name}_{y}") for y in ("offset", "scale")
            )
        ]
        t = self.numbers(t, factors, 1, batches)
        return t.expand(batches, -1, -1, -1)
