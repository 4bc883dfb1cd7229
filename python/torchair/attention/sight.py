"""What each query of a call sees, as one mask: how many keys there are, the
band of its mode, and the mask of the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from .arguments import FAR, Call
from .forms import Sizes
from .spans import Span, is_given, tensor_of

_FAR = 2**40  # of bands: farther than any key, and far from overflow


@dataclass(frozen=True)
class Keys:
    """Which keys there are. number: [keys], the j of each; exists: [batches or
    1, 1, 1, keys], None: all; count: of a batch, a number or [batches, 1, 1,
    1]."""

    number: torch.Tensor
    exists: torch.Tensor | None
    count: Any
    size: Any
    shifted: bool = False


def _plain_keys(span: Span, like: torch.Tensor) -> Keys:
    j = torch.arange(span.size, device=like.device)
    count = span.count()
    exists = None if span.rows is None else j < count
    return Keys(j, exists, count, span.size)


def keys_of(c: Call, span: Span, like: torch.Tensor) -> Keys:
    """The prefix, as far as it counts, is in front of those of a batch."""
    own = _plain_keys(span, like)
    if c.key_prefix is None:
        return own
    room = c.key_prefix.shape[1 if c.input_layout[1] == "S" else 2]
    lens = c.prefix_lens
    if not is_given(lens):
        length: Any = room
    else:
        length = tensor_of(lens, like)[0]
        length = torch.where(length < 0, room, length.clamp(max=room))
    j = torch.arange(room + span.size, device=like.device)
    inside = j < room
    exists = torch.where(inside, j < length, j - room < own.count)
    number = torch.where(inside, j, j - room + length)
    return Keys(number, exists, own.count + length, room + span.size, True)


def _band(c: Call, z: Sizes, queries: Span, keys: Keys) -> tuple[Any, Any]:
    """How far a query sees back and ahead; None: as far as there are keys."""
    if z.one_row and c.query_rope is None:
        return None, None
    padded = c.query_padding is not None or c.key_padding is not None
    pre, following = (
        None if n >= FAR else max(n, -_FAR)
        for n in (int(c.pre_tokens), int(c.next_tokens))
    )
    mode = c.sparse_mode
    if mode == 0:
        free = c.atten_mask is None or padded
        return (None, None) if free else (pre, following)
    if mode == 2:
        return None, 0
    if mode not in (3, 4):
        return None, None
    more = keys.count - queries.count()
    if mode == 3:
        return None, more
    return (
        None if pre is None else pre - more,
        None if following is None else following + more,
    )


def _cut(t: torch.Tensor, rows: Any, columns: Any, fill: Any) -> torch.Tensor:
    """A mask's last axes in these sizes; beyond its own it is `fill`."""
    t = t[:, :, :rows, :columns]
    short = rows - t.shape[2], columns - t.shape[3]
    if short == (0, 0):
        return t
    return F.pad(t, (0, short[1], 0, short[0]), value=fill)


def _columns(t: Any, at: torch.Tensor, fill: Any) -> Any:
    """Columns `at`, [.., 1, keys]; `fill` where there is no such one."""
    n = t.shape[-1]
    at = at.expand(torch.broadcast_shapes(at.shape, (*t.shape[:-1], 1)))
    t = t.expand(*at.shape[:-1], n)
    return torch.where(at < n, t.gather(-1, at.clamp(0, n - 1)), fill)


def _of_keys(t: torch.Tensor, queries: Span, keys: Keys, fill: Any) -> Any:
    if not keys.shifted:
        return _cut(t, queries.size, keys.size, fill)
    t = _cut(t, queries.size, t.shape[3], fill)
    return _columns(t, keys.number.view(1, 1, 1, -1), fill)


def _tree(mask: torch.Tensor, queries: Span, keys: Keys) -> Any:
    """What a mask of the last keys hides."""
    rows = queries.count()
    j = keys.number - (keys.count - rows)  # [batches or 1, 1, 1, keys]
    if mask.dim() == 4:
        j = j.view(-1, 1, 1, keys.size)
        mask = _cut(mask, queries.size, mask.shape[3], True)
        return (j >= 0) & _columns(mask, j, True)
    squares = torch.zeros((), dtype=torch.int64, device=mask.device)
    if queries.rows is not None:
        each = queries.rows * queries.rows
        squares = (each.cumsum(0) - each).view(-1, 1, 1, 1)
    i = torch.arange(queries.size, device=mask.device)[:, None]
    at = squares + i * rows + j
    n = mask.shape[0]
    if n == 0:
        return j.expand_as(at) >= 0
    return (j >= 0) & ((at >= n) | mask[at.clamp(0, n - 1)])


def _hidden(given: Any, c: Call, queries: Span, keys: Keys) -> Any:
    mask = given.get("mask")
    if mask is None:
        return None
    mask = mask != 0
    if c.sparse_mode == 9:
        return _tree(mask, queries, keys)
    return _of_keys(mask, queries, keys, True)


def visible_of(
    given: Any, c: Call, z: Sizes, queries: Span, keys: Keys
) -> tuple[torch.Tensor | None, bool]:
    """[batches or 1, 1, rows, keys] of True where a query sees a key, None:
    everywhere; or, second, keys up to its own number."""
    back, ahead = _band(c, z, queries, keys)
    hidden = _hidden(given, c, queries, keys)
    seen = [] if keys.exists is None else [keys.exists]
    if hidden is not None:
        seen.append(~hidden)
    elif not seen and back is None and isinstance(ahead, int) and ahead == 0:
        return None, True
    i = torch.arange(queries.size, device=c.query.device)[:, None]
    if back is not None:
        seen.append(keys.number >= i - back)
    if ahead is not None:
        seen.append(keys.number <= i + ahead)
    if not seen:
        return None, False
    found = seen[0]
    for other in seen[1:]:
        found = found & other
    return found.view(-1, 1, *found.shape[-2:]) if found.dim() > 1 else (
        found.view(1, 1, 1, -1)
    ), False  # fmt: skip


def mask_of(given: Any, visible: Any, queries: Span, keys: Keys) -> Any:
    """What the scores take: visible, and what is added to them."""
    if given.get("pse") is None:
        return visible
    bias = _of_keys(given["pse"].float(), queries, keys, 0.0)
    if visible is None:
        return bias
    return torch.where(visible, bias, float("-inf"))
