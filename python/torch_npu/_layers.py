"""Layers for which torch has entry points of their own on such a device."""

from __future__ import annotations

from typing import Any

import torch

from . import _kernels

aten = torch.ops.aten


def _convolution(*args: Any) -> Any:
    return _kernels.call(aten.convolution.default, *args)


def _convolution_backward(
    grad: Any,
    x: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> Any:
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return _kernels.call(
        aten.convolution_backward.default,
        grad,
        x,
        weight,
        [out_channels],
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        mask,
    )


def _sum(a: Any, b: Any, bias_a: Any, bias_b: Any) -> Any:
    return a + b if bias_a is None else a + bias_a + b + bias_b


def _lstm_cell(
    from_input: Any,
    from_hidden: Any,
    cell: Any,
    bias_input: Any = None,
    bias_hidden: Any = None,
) -> Any:
    """Gates in, forget, cell, out, as eager's CPU kernel has them."""
    gates = _sum(from_input, from_hidden, bias_input, bias_hidden)
    i, f, g, o = gates.chunk(4, 1)
    new_cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    hidden = o.sigmoid() * new_cell.tanh()
    return hidden, new_cell, gates


def _gru_cell(
    from_input: Any,
    from_hidden: Any,
    hidden: Any,
    bias_input: Any = None,
    bias_hidden: Any = None,
) -> Any:
    a = from_input if bias_input is None else from_input + bias_input
    b = from_hidden if bias_hidden is None else from_hidden + bias_hidden
    ra, za, na = a.chunk(3, 1)
    rb, zb, nb = b.chunk(3, 1)
    r, z = (ra + rb).sigmoid(), (za + zb).sigmoid()
    n = (na + nb * r).tanh()
    return (hidden - n) * z + n, r


def _attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The kernel that the CPU takes, where it would take it; so results are
    the CPU's, and a compiled graph has attention as one operator."""
    if not _cpu_kernel_takes(q, k, v, mask, dropout, causal, enable_gqa):
        return aten.scaled_dot_product_attention.default.decompose(
            q, k, v, mask, dropout, causal, scale=scale, enable_gqa=enable_gqa
        )
    if mask is not None and mask.dtype is torch.bool:
        zero = torch.zeros((), dtype=q.dtype, device=q.device)
        mask = torch.where(mask, zero, float("-inf"))
    return aten._scaled_dot_product_flash_attention_for_cpu.default(
        q, k, v, 0.0, causal, attn_mask=mask, scale=scale
    )[0]


def _cpu_kernel_takes(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, gqa: bool
) -> bool:
    tensors = (q, k, v)
    return (
        torch._C._get_flash_sdp_enabled()
        and dropout == 0.0
        and all(t.dim() == 4 and t.stride(-1) == 1 for t in tensors)
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and k.shape[1] == v.shape[1]
        and (gqa or q.shape[1] == k.shape[1])
        and q.dtype == k.dtype == v.dtype
        and q.is_floating_point()
        and (
            mask is None
            or (
                not causal
                and not gqa
                and mask.dim() in (2, 4)
                and not mask.requires_grad
                and mask.dtype in (torch.bool, q.dtype)
            )
        )
    )


def install() -> None:
    ours = _kernels.library("aten")
    ours.impl(aten.convolution_overrideable.default, _convolution, _kernels.KEY)
    ours.impl(
        aten.convolution_backward_overrideable.default,
        _convolution_backward,
        _kernels.KEY,
    )
    # Plain arithmetic, so that autograd sees through it.
    for key in (_kernels.KEY, "AutogradPrivateUse1"):
        ours.impl(aten._thnn_fused_lstm_cell.default, _lstm_cell, key)
        ours.impl(aten._thnn_fused_gru_cell.default, _gru_cell, key)
        ours.impl(aten.scaled_dot_product_attention.default, _attention, key)
