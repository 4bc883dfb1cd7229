"""A call in operators of torch, for devices whose attention takes dense caches
only: the same results as air::fused_attention (src/driver/ref/fused.c), eager
or traced into a graph.

Rows of every batch are brought side by side, query i and key j of it at i and
j. What a query sees is a mask then, and core.attend does the rest. Nothing here
waits for the device: lengths in tensors stay data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import checks, forms, spans
from .arguments import Call
from .caches import Cache
from .core import attend
from .forms import Sizes
from .sight import keys_of, mask_of, visible_of
from .spans import Span, aside, in_memory, is_fixed

_INFINITY = float("inf")
_WIDE = ("out_scale", "sink")  # the result is rounded after these


def _operands(c: Call, z: Sizes) -> dict[str, torch.Tensor]:
    from .run import plain_scale

    return {
        name: form.of(plain_scale(argument, c.values[argument]))
        for name, (argument, form) in forms.operands(c, z).items()
    }


def _dtype(c: Call) -> torch.dtype:
    """In which it is computed: floats where numbers are rounded later, or
    stand for others."""
    wide = c.key.dtype is not c.query.dtype or c.query.dtype is torch.int8
    if wide or any(c.values[n] is not None for n in _WIDE):
        return torch.float32
    return c.query.dtype  # type: ignore[no-any-return]


def _query(given: Any, dtype: torch.dtype, span: Span) -> torch.Tensor:
    q = given["query"].to(dtype)
    if given.get("query_scale") is not None:
        q = q * given["query_scale"].float()[..., None]
    if "query_rope" in given:
        q = torch.cat([q, given["query_rope"].to(dtype)], -1)
    return aside(q, span)


def _key_and_value(
    c: Call, z: Sizes, given: Any, dtype: torch.dtype, span: Span, batches: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    cache = Cache(c, z, given, dtype)
    k, v = (cache.rows(n, span, z.tokens) for n in ("key", "value"))
    if c.key_rope is not None:
        k = torch.cat([k, cache.rows("key_rope", span, z.tokens)], -1)
    if c.key_prefix is not None:
        k, v = (
            torch.cat([cache.prefix(n, batches), t], 2)
            for n, t in (("key", k), ("value", v))
        )
    return k, v


def _with_sink(
    out: torch.Tensor, sums: torch.Tensor, sink: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    more = torch.logaddexp(sums, sink.float().view(1, -1, 1, 1))
    return out * (sums - more).exp(), more


def _cleared(out: Any, sums: Any, visible: Any, queries: Span) -> Any:
    """Rows that see nothing or are no batch's: 0 and +inf."""
    live = None if visible is None else visible.any(-1, keepdim=True)
    if queries.rows is not None:
        i = torch.arange(queries.size, device=out.device)[:, None]
        own = i < queries.count()
        live = own if live is None else live & own
    if live is None:
        return out, sums
    out = torch.where(live, out, 0.0)
    return out, None if sums is None else torch.where(live, sums, _INFINITY)


def _attended(
    c: Call, z: Sizes
) -> tuple[torch.Tensor, torch.Tensor | None, Span]:
    """Of queries side by side."""
    given, batches = _operands(c, z), checks.batches(c, z)
    queries, span = spans.of_queries(c, z), spans.of_keys(c, z, batches)
    dtype = _dtype(c)
    q = _query(given, dtype, queries)
    k, v = _key_and_value(c, z, given, dtype, span, batches)
    keys = keys_of(c, span, c.query)
    visible, causal = visible_of(given, c, z, queries, keys)
    mask = mask_of(given, visible, queries, keys)
    sums = c.lse or c.sink is not None
    weights = given.get("weight_scale")
    weights = None if weights is None else weights.float()
    out, logs = attend(q, k, v, mask, weights, float(c.scale), causal, sums)
    if c.sink is not None:
        out, logs = _with_sink(out, logs, c.sink)
    logs = logs if sums else None
    return *_cleared(out, logs, visible, queries), queries


def _is_empty(c: Call, z: Sizes) -> bool:
    """Are there no keys, whatever the lengths say?"""
    if c.block_table is not None and 0 in (
        c.block_table.shape[1],
        *c.key.shape,
    ):
        return True
    own = z.tokens == 0 or (
        c.block_table is not None
        and is_fixed(c.key_lens)
        and max(c.key_lens) == 0
    )
    return bool(own) and c.key_prefix is None


def compute(c: Call, z: Sizes) -> Any:
    """Results [batch, heads, rows, width] and [batch, heads, rows, 1] in the
    order of forms.order, the second None without softmax_lse_flag."""
    if _is_empty(c, z):
        sizes = z.batch, c.heads, z.rows
        out = c.query.new_zeros(*sizes, z.value_width, dtype=torch.float32)
        logs = c.query.new_full((*sizes, 1), _INFINITY, dtype=torch.float32)
        return _ordered(c, z, out, logs)
    out, logs, queries = _attended(c, z)
    out = in_memory(out, queries, z.rows, 0.0)
    if logs is not None:
        logs = in_memory(logs, queries, z.rows, _INFINITY)
    return _ordered(c, z, out, logs)


def _ordered(c: Call, z: Sizes, out: torch.Tensor, logs: Any) -> Any:
    out = out.to(forms.float_dtype(c)).permute(forms.order(z))
    if not c.lse:
        return out, None
    return out, logs.permute(0, 2, 1, 3) if z.packed else logs


def results(c: Call, z: Sizes) -> Sequence[torch.Tensor]:
    """As the operator gives them."""
    from .run import finish

    out, logs = compute(c, z)
    out = finish(c, z, out).reshape(forms.out_shape(c, z)).contiguous()
    if logs is None:
        return out, out.new_empty(0, dtype=torch.float32)
    return out, logs.reshape(forms.lse_shape(c, z)).contiguous()
