"""Where the rows of each batch of a call lie, and how they come side by side:
query i and key j of it at i and j. Lengths in tensors stay data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .arguments import Call
from .forms import Sizes


@dataclass(frozen=True)
class Span:
    """Where the rows of the batches lie, [batches] each. first: None, all at
    0; rows: None, as many as fit; size: of the longest, at most."""

    first: torch.Tensor | None
    rows: torch.Tensor | None
    size: Any
    packed: bool = False

    def each(self, of: torch.Tensor) -> torch.Tensor:
        """[batches, size] positions in memory."""
        assert self.first is not None
        return self.first[:, None] + torch.arange(self.size, device=of.device)

    def count(self) -> Any:
        """Rows of a batch: a number, or [batches, 1, 1, 1]."""
        return self.size if self.rows is None else self.rows.view(-1, 1, 1, 1)


# ---- lengths ----


def is_fixed(lens: Any) -> bool:
    return isinstance(lens, (list, tuple)) and all(
        isinstance(n, int) for n in lens
    )


def _may_copy(device: torch.device) -> bool:
    """Numbers of the host go to a GPU by a copy, which no capture has."""
    capturing = (
        device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    )
    return not capturing


def tensor_of(lens: Any, like: torch.Tensor) -> torch.Tensor:
    """Lengths as int64 numbers beside `like`."""
    if isinstance(lens, torch.Tensor):
        return lens.reshape(-1).to(torch.int64)
    traced = isinstance(like, torch._subclasses.FakeTensor)
    if is_fixed(lens) and not traced and _may_copy(like.device):
        return torch.tensor(lens, dtype=torch.int64, device=like.device)
    made = [like.new_full((1,), n, dtype=torch.int64) for n in lens]
    return torch.cat(made)


def _of_batches(lens: Any, batches: Any, like: torch.Tensor) -> torch.Tensor:
    """One stands for all, more than there are batches do no harm."""
    if not isinstance(lens, torch.Tensor):
        lens = lens[:batches] if len(lens) > 1 else lens
    found = tensor_of(lens, like)
    return found.expand(batches) if found.shape[0] == 1 else found[:batches]


def is_given(lens: Any) -> bool:
    if isinstance(lens, torch.Tensor):
        return lens.numel() > 0
    return lens is not None and len(lens) > 0


def _following(lens: Any, total: Any, like: torch.Tensor) -> Span:
    """Batches whose rows follow each other, by their ends."""
    if is_fixed(lens) and len(lens) == 1:
        return Span(None, None, total)
    ends = tensor_of(lens, like)
    before = torch.cat([ends.new_zeros(1), ends[:-1]])
    first = before.clamp(0, total)
    rows = torch.maximum(ends.clamp(max=total), first) - first
    size = total
    if is_fixed(lens):
        size = max(b - a for a, b in zip([0, *lens], lens, strict=False))
    return Span(first, rows, size, True)


def _padded(
    lens: Any, total: Any, batches: Any, padding: Any, like: Any
) -> Span:
    """Batches of one size, of which so many rows count; with padding these end
    that early, and are none where they would begin before the first."""
    if not is_given(lens):
        return Span(None, None, total)
    rows = _of_batches(lens, batches, like)
    if isinstance(lens, torch.Tensor):
        rows = torch.where(rows < 0, total, rows).clamp(max=total)
    if padding is None:
        return Span(None, rows, total)
    first = total - padding.reshape(()).to(torch.int64).clamp(min=0) - rows
    rows = torch.where(first < 0, 0, rows)
    return Span(first.clamp(min=0), rows, total)


def of_queries(c: Call, z: Sizes) -> Span:
    if z.packed:
        return _following(c.query_lens, z.rows, c.query)
    if z.one_row:
        return Span(None, None, z.rows)
    return _padded(c.query_lens, z.rows, z.batch, c.query_padding, c.query)


def of_keys(c: Call, z: Sizes, batches: Any) -> Span:
    paged = c.block_table is not None
    if z.packed and not paged:
        return _following(c.key_lens, z.tokens, c.query)
    total = c.block_table.shape[1] * z.tokens if paged else z.tokens
    found = _padded(c.key_lens, total, batches, c.key_padding, c.query)
    if paged and is_fixed(c.key_lens):  # blocks behind all lengths are unread
        blocks = -(-max(c.key_lens) // z.tokens)
        return Span(None, found.rows, blocks * z.tokens)
    return found


def aside(t: torch.Tensor, span: Span) -> torch.Tensor:
    """[batch, heads, memory, width] -> [batches, heads, size, width]."""
    if span.first is None:
        return t
    at = span.each(t).clamp(0, t.shape[2] - 1)
    batch = _batch_index(at, span)
    return t.transpose(1, 2)[batch, at].transpose(1, 2)


def _batch_index(at: torch.Tensor, span: Span) -> torch.Tensor:
    if span.packed:
        return torch.zeros_like(at)
    return torch.arange(at.shape[0], device=at.device)[:, None].expand_as(at)


def in_memory(t: torch.Tensor, span: Span, rows: Any, fill: float) -> Any:
    """_aside's counterpart; rows of memory that are no batch's are `fill`."""
    if span.first is None:
        return t
    assert span.rows is not None
    memory = torch.arange(rows, device=t.device)
    if span.packed:
        ends = span.first + span.rows
        batch = (memory[:, None] >= ends).sum(-1).clamp(max=ends.shape[0] - 1)
        batch = batch[None]
    else:
        batch = torch.arange(t.shape[0], device=t.device)[:, None]
    i = memory - span.first[batch]
    ok = (i >= 0) & (i < span.rows[batch])
    batch, i = torch.broadcast_tensors(batch, i.clamp(0, span.size - 1))
    found = t.transpose(1, 2)[batch, i].transpose(1, 2)
    return torch.where(ok[:, None, :, None], found, fill)
