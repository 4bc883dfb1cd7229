"""`torch.ops.air.dense_attention`: what is left of a call once layouts, caches
and lengths are out of the way (dense.py). One node of the engine where that
has a kernel, else torch's operators.

    score = scale * query . key + mask,  out = sum of softmax(score) * value

query: [batch, heads, rows, width]; key, value: fewer heads; mask: bool, True
where a query sees a key, or numbers that are added; it broadcasts. Rows that
see nothing are anything. sums: the logarithms of the sums of e^score,
[batch, heads, rows, 1], else an empty tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .. import own

_SCHEMA = (
    "dense_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, "
    "Tensor? weight_scale, float scale, bool causal, bool sums) "
    "-> (Tensor, Tensor)"
)
_HALVES = (torch.float16, torch.bfloat16)
_AT_ONCE = 1 << 26  # scores of floats that are in memory at a time


def _fold(t: Any, heads: int) -> Any:
    """Queries that share a key head as rows of one."""
    return t.unflatten(1, (heads, -1)).flatten(2, 3)


def _scores(
    q: torch.Tensor, k: torch.Tensor, mask: Any, causal: bool, first: int
) -> Any:
    """[batch, key heads, group, rows, keys] of queries `first` and on."""
    heads, rows = k.shape[1], q.shape[2]
    s = (_fold(q, heads) @ k.mT).unflatten(2, (-1, rows))
    if causal:
        i = torch.arange(first, first + rows, device=q.device)[:, None]
        seen = torch.arange(k.shape[2], device=q.device) <= i
        s = s.masked_fill(~seen, -math.inf)
    if mask is None:
        return s
    mask = mask[:, :, None] if mask.shape[1] == 1 else mask.unflatten(
        1, (heads, -1)
    )  # fmt: skip
    if mask.dtype is torch.bool:
        return s.masked_fill(~mask, -math.inf)
    return s + mask


def _in_floats(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    weight_scale: Any,
    causal: bool,
    first: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    s = _scores(q, k, mask, causal, first)
    top = s.amax(-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0)
    w = (s - top).exp_()
    total = w.sum(-1, keepdim=True)
    if weight_scale is not None:
        w = ((w / total) * weight_scale).round_().clamp_(-128, 127)
    out = w.flatten(2, 3) @ v
    out = out.unflatten(2, (-1, q.shape[2])).flatten(1, 2)
    if weight_scale is None:
        out = out / total.flatten(1, 2)
    return out, (top + total.log()).flatten(1, 2)


def _by_floats(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    weight_scale: Any,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """So many rows at a time that their scores do not fill the memory."""
    dtype, wide = q.dtype, (q.float() * scale, k.float(), v.float())
    per_row = q.shape[0] * q.shape[1] * k.shape[2]
    some = max(1, _AT_ONCE // max(1, per_row))
    parts = []
    for first in range(0, q.shape[2], some):
        rows = slice(first, first + some)
        seen = mask
        if mask is not None and mask.shape[2] > 1:
            seen = mask[:, :, rows]
        parts.append(
            _in_floats(
                wide[0][:, :, rows], *wide[1:], seen, weight_scale, causal,
                first,
            )
        )  # fmt: skip
    out, sums = (torch.cat(p, 2) for p in zip(*parts, strict=True))
    return out.to(dtype), sums


def _by_torch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Any,
    scale: float,
    causal: bool,
) -> torch.Tensor:
    """torch's kernels with a mask have no groups of heads: few queries of a
    group become rows, for many the keys are repeated."""
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    if mask is not None and mask.dtype is not torch.bool:
        mask = mask.to(q.dtype)
    attend = F.scaled_dot_product_attention
    if group == 1 or mask is None:
        return attend(
            q, k, v, mask, 0.0, causal, scale=scale, enable_gqa=group > 1
        )
    if q.shape[2] == 1 and mask.shape[1] == 1:
        out = attend(_fold(q, heads), k, v, mask, scale=scale)
        return out.reshape(*q.shape[:3], -1)
    k, v = (t.repeat_interleave(group, 1) for t in (k, v))
    return attend(q, k, v, mask, scale=scale)


def _compute(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    weight_scale: torch.Tensor | None,
    scale: float,
    causal: bool,
    sums: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    plain = weight_scale is None and not sums and query.dtype in _HALVES
    if plain and query.shape[-1] == value.shape[-1]:
        out = _by_torch(query, key, value, mask, scale, causal)
        return out.contiguous(), query.new_empty(0, dtype=torch.float32)
    out, logs = _by_floats(query, key, value, mask, weight_scale, scale, causal)
    return out, logs if sums else logs.new_empty(0)


def _sizes(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    weight_scale: Any,
    scale: float,
    causal: bool,
    sums: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = query.shape[:3]
    logs = (*rows, 1) if sums else (0,)
    return (
        query.new_empty(*rows, value.shape[-1]),
        query.new_empty(logs, dtype=torch.float32),
    )


def rewrite(at: Any, node: torch.fx.Node, values: Any) -> Sequence[int | None]:
    """The engine's attention; Refused: torch's operators do it."""
    from ..cuda import PLACE
    from ..cuda_attention import is_many
    from ..origin import location_of
    from ..schema import BOOL, FLOAT, NONE, VALUE, Refused, bound

    given = bound(node)
    if given["weight_scale"] is not None:
        raise Refused("weights of attention are rounded to 8 bits")
    mask: Any = given["mask"]
    q, k = given["query"].meta["val"], given["key"].meta["val"]
    halves = q.dtype in _HALVES and not given["sums"] and mask is None
    if at.place >= PLACE and halves and is_many(q, k):
        raise Refused("torch's kernel is faster for so many queries")
    attrs: list[Any] = []
    for name in ("query", "key", "value"):
        attrs += VALUE, at.ref(given[name])
    attrs += (NONE, None) if mask is None else (VALUE, at.ref(mask))
    attrs += FLOAT, 0.0, BOOL, given["causal"], FLOAT, given["scale"]
    attrs += BOOL, True
    out, sums = at.graph.node("air::attention", attrs, location_of(node), 2)
    out = at.check_type(out, values[0])
    if not given["sums"]:
        return [out, None]
    return [out, at.check_type(sums, values[1])]


_library = own.define(_SCHEMA, _compute, _sizes)
attend = torch.ops.air.dense_attention
