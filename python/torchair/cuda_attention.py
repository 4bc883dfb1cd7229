"""Attention as torch's graphs of a GPU have it: three operators by what eager
would run. Where only the result is looked at and nothing is dropped they are
one row of the engine, unless torch's kernel is much faster."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from . import cuda_seeds, schema
from .cuda import hints
from .origin import location_of
from .schema import Refused, bound

aten = torch.ops.aten
_ROW = aten._scaled_dot_product_flash_attention_for_cpu.default
_OPERATORS = (
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
)


# Operations from which torch's kernel is the faster one, on an H100 (figures:
# docs/cuda-figures.md): of halves without a mask in the first and the last,
# of halves otherwise, of float32, which ours multiplies one by one.
_FLASH = (_OPERATORS[0], _OPERATORS[2])
_MANY, _MANY_MASKED, _MANY_FLOATS = 5e8, 2.5e9, 2e8
_PAD = 8  # numbers of 16 bits in 16 bytes
_DROPPED = 8  # which argument behind `out` the dropped share is


def _beside(x: torch.Tensor) -> torch.Tensor:
    """[batch, heads, rows, width] whose heads lie side by side in a row."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _apart(x: torch.Tensor) -> torch.Tensor:
    """The same with 16 bytes of nothing behind each batch."""
    _, heads, rows, width = x.shape
    strides = (heads * rows * width + _PAD, width, heads * width, 1)
    return x.new_empty_strided(x.shape, strides).copy_(x)


def own_plan(operator: Any) -> Any:
    """cuDNN's gradient of attention, its operands laid out so that it is right.

    torch (2.11 and 2.13) keeps the kernel by sizes, the strides of query, key
    and value, and the share that is dropped, bit for bit; the result and the
    gradient that comes in are read as they lay when it was made. Eager may have
    made it for another layout. So ours is kept by what no model gives it: a
    share of -0.0, which is none, or where some is dropped strides of the query;
    and both lie in one way.
    """

    def call(
        grad: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        rest = list(args)
        if rest[_DROPPED] == 0:
            rest[_DROPPED] = -0.0
        else:
            query = _apart(query)
        grad, out = _beside(grad), _beside(out)
        return operator(grad, query, key, value, out, *rest, **kwargs)

    return call


def is_large(node: torch.fx.Node, given: dict[str, Any]) -> bool:
    """Has torch a much faster kernel? By the sizes that were traced."""
    query = given["query"].meta["val"]
    many = _MANY
    if query.dtype == torch.float32:
        many = _MANY_FLOATS
    elif node.target not in _FLASH or given.get("attn_bias") is not None:
        many = _MANY_MASKED
    return is_many(query, given["key"].meta["val"], many)


def is_many(
    query: torch.Tensor, key: torch.Tensor, many: float = _MANY
) -> bool:
    dims = hints([*query.shape, key.shape[-2]])
    return dims is not None and 4 * math.prod(dims) >= many


def rewrite(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    """The result; others, which a backward reads, have no row."""
    for user in node.users:
        if user.target is not operator.getitem or (
            user.args[1] != 0 and user.users
        ):
            raise Refused("more than the result of attention is used")
    given = bound(node)
    if is_large(node, given):
        raise Refused("torch's kernel is faster for so many queries")
    row = schema.find_row(_ROW)
    if row is None or row.kinds & at.without:
        raise Refused(schema.NO_ROW)
    args = [given["query"], given["key"], given["value"], 0.0]
    kwargs = {
        "attn_mask": given.get("attn_bias"),
        "scale": given["scale"],
    }
    attrs = schema.attributes(at, row, [*args, given["is_causal"]], kwargs)
    refs = at.graph.node(row.name, attrs, location_of(node), row.nresults)
    first = at.check_type(refs[0], value[0])
    return [first, *[None] * (len(value) - 1)]


HOST_TARGETS = {
    aten._scaled_dot_product_cudnn_attention_backward.default: own_plan,
    cuda_seeds.GRADIENT: cuda_seeds.seeded,
}
REWRITES = dict.fromkeys(_OPERATORS, rewrite)
