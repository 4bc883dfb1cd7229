"""Layers of an encoder that are one operator each: `nn.TransformerEncoderLayer`
calls the one for inference, `nn.MultiheadAttention` the other where Dynamo does
not see it. They are written out while the graph is traced.

A row whose keys are all masked is 0, as `scaled_dot_product_attention` makes
it; kernels of these operators give NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_ATEN = torch.ops.aten
_OF_KEYS = 1  # mask_type; 0: of pairs of query and key; 2, None: of scores


def _projected(
    operands: Sequence[Tensor], weight: Tensor, bias: Tensor
) -> Sequence[Tensor]:
    query, key, value = operands
    if query is key and key is value:
        return F.linear(query, weight, bias).chunk(3, -1)
    parts = zip(operands, weight.chunk(3), bias.chunk(3), strict=True)
    return [F.linear(*part) for part in parts]


def _kept(mask: Tensor | None, kind: int | None) -> Tensor | None:
    """Which scores [batch, heads, queries, keys] count. A mask is true, or no
    zero, where they do not; [queries, keys], [batch, keys] or as they are."""
    if mask is None:
        return None
    kept = mask.logical_not()
    return kept[:, None, None] if kind == _OF_KEYS else kept


def _weighted(
    query: Tensor, key: Tensor, value: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = query * query.shape[-1] ** -0.5 @ key.transpose(-2, -1)
    if kept is not None:
        scores = scores.masked_fill(kept.logical_not(), float("-inf"))
    weights = _ATEN._safe_softmax.default(scores, -1)
    return weights @ value, weights


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> Any:
    """query [batch, queries, width], key and value [batch, keys, width]. The
    weights are [batch, heads, queries, keys], their average over heads, or
    None."""
    if query.is_nested:
        return NotImplemented
    kept = _kept(mask, mask_type)
    q, k, v = (
        x.unflatten(-1, (heads, -1)).transpose(1, 2)
        for x in _projected((query, key, value), qkv_weight, qkv_bias)
    )
    weights = None
    if need_weights:
        mixed, weights = _weighted(q, k, v, kept)
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        mixed = F.scaled_dot_product_attention(q, k, v, kept)
    mixed = mixed.transpose(1, 2).flatten(2)
    return F.linear(mixed, proj_weight, proj_bias), weights


def _encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """x [batch, tokens, width]: attention and two products, each with a norm
    before it or behind its sum with what it was given."""
    if x.is_nested:
        return NotImplemented
    attention = qkv_weight, qkv_bias, proj_weight, proj_bias

    def attend(x: Tensor) -> Tensor:
        how = mask, False, True, mask_type
        found: Tensor
        found, _ = _attention(x, x, x, width, heads, *attention, *how)
        return found

    def feed(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        inner = F.gelu(inner) if use_gelu else F.relu(inner)
        return F.linear(inner, ffn_weight_2, ffn_bias_2)

    for part, weight, bias in (
        (attend, norm_weight_1, norm_bias_1),
        (feed, norm_weight_2, norm_bias_2),
    ):
        shape = (width,)
        if norm_first:
            x = part(F.layer_norm(x, shape, weight, bias, eps)) + x
        else:
            x = F.layer_norm(part(x) + x, shape, weight, bias, eps)
    return x


DECOMPOSITIONS = {
    _ATEN._native_multi_head_attention.default: _attention,
    _ATEN._transformer_encoder_layer_fwd.default: _encoder_layer,
}
