"""Operators that quantise by token, alone and behind a norm, and the patterns
that make one of the other (`pattern_fusion_pass`).

In a compiled graph each is one node until the passes over FX are done, then
what its body says, which the engine fuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchair import inlined, passes

from ._kernels import library

_DEFINITIONS = (
    "npu_dynamic_quant(Tensor x, *, Tensor? smooth_scales=None,"
    " Tensor? group_index=None, ScalarType? dst_type=None)"
    " -> (Tensor, Tensor)",
    "npu_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, *,"
    " Tensor? smooth_scale1=None, Tensor? smooth_scale2=None,"
    " Tensor? beta=None, float epsilon=1e-06, bool[2] output_mask=[True, True])"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "npu_add_rms_norm_cast(Tensor x1, Tensor x2, Tensor gamma,"
    " float epsilon=1e-06) -> (Tensor, Tensor, Tensor, Tensor)",
)
_MOST = 127  # of int8
ops = torch.ops.npu


def dynamic_quant(
    x: torch.Tensor,
    *,
    smooth_scales: torch.Tensor | None = None,
    group_index: torch.Tensor | None = None,
    dst_type: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int8 of x's sizes, float32 without the last): the values of a token,
    multiplied by smooth_scales, are the integers times the token's scale."""
    if group_index is not None or dst_type not in (None, torch.int8):
        raise RuntimeError(
            "npu_dynamic_quant: group_index and a dst_type other than "
            "torch.int8 are not known here; leave them out"
        )
    wide = x.float()
    if smooth_scales is not None:
        wide = wide * smooth_scales.float()
    scale = wide.abs().amax(-1, keepdim=True) / _MOST
    tiny = torch.finfo(torch.float32).tiny  # a token of zeros stays zeros
    parts = torch.round(wide / scale.clamp_min(tiny))
    return parts.to(torch.int8), scale.squeeze(-1)


def add_rms_norm_dynamic_quant(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    *,
    smooth_scale1: torch.Tensor | None = None,
    smooth_scale2: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    epsilon: float = 1e-6,
    output_mask: Any = (True, True),
) -> tuple[torch.Tensor, ...]:
    """(integers, integers by smooth_scale2, x1 + x2, scale, scale by
    smooth_scale2); what belongs to a smooth_scale2 that is None is empty."""
    y, _, x = ops.npu_add_rms_norm(x1, x2, gamma, epsilon)
    if beta is not None:
        y = y + beta
    first = dynamic_quant(y, smooth_scales=smooth_scale1)
    second = first[0].new_empty(0), first[1].new_empty(0)
    if smooth_scale2 is not None:
        second = dynamic_quant(y, smooth_scales=smooth_scale2)
    return first[0], second[0], x, first[1], second[1]


def add_rms_norm_cast(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, ...]:
    """(norm in float32, norm, rstd, x1 + x2)."""
    y, rstd, x = ops.npu_add_rms_norm(x1, x2, gamma, epsilon)
    # Never the same memory as y: an operator gives no aliases.
    return y.to(torch.float32, copy=True), y, rstd, x


# ---- patterns ----


def _quantised(x1: Any, x2: Any, gamma: Any, smooth: Any, *eps: Any) -> Any:
    y, _, x = ops.npu_add_rms_norm(x1, x2, gamma, *eps)
    parts, scale = ops.npu_dynamic_quant(y, smooth_scales=smooth)
    return parts, x, scale


def _quantised_fused(x1: Any, x2: Any, gamma: Any, smooth: Any, *e: Any) -> Any:
    found = ops.npu_add_rms_norm_dynamic_quant(
        x1, x2, gamma, smooth_scale1=smooth, epsilon=_epsilon(e)
    )
    return found[0], found[2], found[3]


def _flat(x1: Any, x2: Any, gamma: Any, *eps: Any) -> Any:
    y, _, x = ops.npu_add_rms_norm(x1, x2, gamma, *eps)
    parts, scale = ops.npu_dynamic_quant(y.flatten(0, 1))
    return parts, x, scale.view(-1, 1)


def _flat_fused(x1: Any, x2: Any, gamma: Any, *eps: Any) -> Any:
    found = ops.npu_add_rms_norm_dynamic_quant(
        x1, x2, gamma, epsilon=_epsilon(eps)
    )
    return found[0].flatten(0, 1), found[2], found[3].view(-1, 1)


def _wide(x1: Any, x2: Any, gamma: Any, *eps: Any) -> Any:
    y, _, x = ops.npu_add_rms_norm(x1, x2, gamma, *eps)
    rows = y.view(-1, y.shape[-1])
    return rows, x, rows.to(torch.float32)


def _wide_fused(x1: Any, x2: Any, gamma: Any, *eps: Any) -> Any:
    found = ops.npu_add_rms_norm_cast(x1, x2, gamma, _epsilon(eps))
    wide, y, _, x = found
    size = y.shape[-1]
    return y.view(-1, size), x, wide.view(-1, size)


def _epsilon(given: tuple[Any, ...]) -> Any:
    return given[0] if given else 1e-6


_RULES: tuple[tuple[Callable[..., Any], Callable[..., Any], int], ...] = (
    (_quantised, _quantised_fused, 4),
    (_flat, _flat_fused, 3),
    (_wide, _wide_fused, 3),
)
_EXAMPLE = 1e-5  # an epsilon that is nobody's default


def _add_rules() -> None:
    """Each with the epsilon that stands there, and without one."""
    sizes = ((2, 3, 8), (2, 3, 8), (8,), (8,))
    for search, fused, count in _RULES:  # inputs are told apart by identity
        inputs = [torch.empty(s, dtype=torch.float16) for s in sizes[:count]]
        for with_epsilon in (True, False):
            scalars = {"epsilon": _EXAMPLE} if with_epsilon else None
            named = _named(search, count, with_epsilon)
            passes.register_replacement(
                named,
                _named(fused, count, with_epsilon),
                inputs,
                extra_check=_are_rows,
                search_fn_pattern=_of_any_sizes(named, inputs, scalars),
                scalar_workaround=scalars,
            )


def _of_any_sizes(fn: Any, inputs: list[Any], scalars: Any) -> Any:
    """The pattern of fn with views to any sizes, which may be symbols: what
    they have to be is for `_are_rows`. torch would trace fn again for each
    match, and does not find views to sizes that are computed."""
    from inspect import signature

    from torch._inductor.pattern_matcher import fx_to_pattern

    names = list(signature(fn).parameters)
    gm = passes.trace(fn, [*inputs, *(scalars or {}).values()])
    return fx_to_pattern(
        gm,
        ignore_types=(int,),  # all of them are sizes of views
        argnames=names,
        scalar_workaround=scalars or {},
    )


_VIEW = torch.ops.aten.view.default


def _are_rows(match: Any) -> bool:
    """Is a norm seen as its flatten(0, 1) or as rows, a scale as a column?"""
    return all(
        _is_row_view(node) for node in match.nodes if node.target is _VIEW
    )


def _is_row_view(node: Any) -> bool:
    source = node.args[0]
    now, then = node.meta["val"].shape, source.meta["val"].shape
    users = {u.target for u in node.users}
    if source.args[0].target is ops.npu_dynamic_quant.default:
        return len(now) == 2 and _same(now[1:], [1])
    if ops.npu_dynamic_quant.default in users:
        return len(then) > 1 and _same(now[1:], then[2:])
    return len(now) == 2 and _same(now[1:], then[-1:])


def _same(sizes: Any, others: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return len(sizes) == len(others) and all(
        statically_known_true(a == b)
        for a, b in zip(sizes, others, strict=True)
    )


def _named(fn: Callable[..., Any], count: int, epsilon: bool) -> Any:
    """With arguments that have names, as patterns want them."""
    if count == 4 and epsilon:
        return lambda a, b, c, d, epsilon: fn(a, b, c, d, epsilon)
    if count == 4:
        return lambda a, b, c, d: fn(a, b, c, d)
    if epsilon:
        return lambda a, b, c, epsilon: fn(a, b, c, epsilon)
    return lambda a, b, c: fn(a, b, c)


def install(fragment: Any) -> None:
    """Defines the operators; the patterns once a graph has a norm."""
    kernels = library("npu")
    bodies: tuple[Callable[..., Any], ...] = (
        dynamic_quant,
        add_rms_norm_dynamic_quant,
        add_rms_norm_cast,
    )
    for definition, body in zip(_DEFINITIONS, bodies, strict=True):
        name = definition.partition("(")[0]
        fragment.define(definition)
        kernels.impl(name, body, "CompositeExplicitAutograd")
        torch.library.register_fake(f"npu::{name}", body, lib=fragment)
        inlined.register(getattr(ops, name).default, body)
    passes.rules_of(ops.npu_add_rms_norm.default, _add_rules)
