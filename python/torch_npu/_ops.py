"""Operators of the vendor that examples use, and formats.

Each is a torch operator of namespace npu, so that patterns can name it, with
sizes, gradients and, in compiled graphs, a row of the engine's.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from torchair import attention, checks

from . import _attention, _llm, _quant, npu
from ._kernels import library

ND = 2  # aclFormat: plain strided memory
_PLAIN = {-1: ND, 0: 0, 1: 1, ND: ND, 27: 27, 30: 30}

_DEFINITIONS = (
    "npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06)"
    " -> (Tensor, Tensor)",
    "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma,"
    " float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
)


# ---- RMS norm ----


def _axes(gamma: torch.Tensor) -> list[int]:
    return list(range(-gamma.dim(), 0))


def _check_gamma(x: torch.Tensor, gamma: torch.Tensor) -> None:
    if gamma.dim() == 0 or x.shape[x.dim() - gamma.dim() :] != gamma.shape:
        raise RuntimeError(
            f"gamma must have the last sizes of the input {list(x.shape)}, "
            f"got {list(gamma.shape)}"
        )


def _rms_norm(
    x: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_gamma(x, gamma)
    wide = x.float() if x.dtype is not torch.float64 else x
    square = wide.square().mean(_axes(gamma), keepdim=True)
    rstd = torch.rsqrt(square + epsilon)
    return (wide * rstd * gamma).to(x.dtype), rstd


def _add_rms_norm(
    x1: torch.Tensor,
    x2: torch.Tensor,
    gamma: torch.Tensor,
    epsilon: float = 1e-6,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = x1 + x2
    y, rstd = _rms_norm(x, gamma, epsilon)
    return y, rstd, x


def _gradients(
    grad: torch.Tensor, x: torch.Tensor, gamma: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of x and gamma, for the gradient of y."""
    normal = x.to(rstd.dtype) * rstd
    scaled = grad.to(rstd.dtype) * gamma
    mean = (scaled * normal).mean(_axes(gamma), keepdim=True)
    of_x = rstd * (scaled - normal * mean)
    of_gamma = (grad.to(rstd.dtype) * normal).sum_to_size(gamma.shape)
    return of_x.to(x.dtype), of_gamma.to(gamma.dtype)


def _save_rms(ctx: Any, inputs: Any, output: Any) -> None:
    x, gamma, _ = inputs
    ctx.save_for_backward(x, gamma, output[1])
    ctx.mark_non_differentiable(output[1])


def _rms_backward(ctx: Any, grad: Any, _rstd: Any) -> Any:
    return *_gradients(grad, *ctx.saved_tensors), None


def _save_add(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[2], inputs[2], output[1])
    ctx.mark_non_differentiable(output[1])


def _add_backward(ctx: Any, grad: Any, _rstd: Any, grad_x: Any) -> Any:
    of_x, of_gamma = _gradients(grad, *ctx.saved_tensors)
    of_x = of_x + grad_x
    return of_x, of_x, of_gamma, None


# ---- in compiled graphs ----


def _fused(at: Any, node: Any, x: int, gamma: Any, epsilon: Any) -> Any:
    from torchair.schema import FLOAT, INTS, VALUE

    sizes = [at.sizes.dim(s) for s in gamma.meta["val"].shape]
    attrs = [VALUE, x, INTS, sizes, VALUE, at.ref(gamma), FLOAT, epsilon]
    return at.graph.node("_fused_rms_norm", attrs, None, 2)


def _argument(node: Any, index: int, default: Any) -> Any:
    given = node.args[index] if index < len(node.args) else None
    return node.kwargs.get("epsilon", default if given is None else given)


def _import_rms_norm(at: Any, node: Any, values: Any) -> Any:
    x, gamma = node.args[:2]
    refs = _fused(at, node, at.ref(x), gamma, _argument(node, 2, 1e-6))
    for ref, value in zip(refs, values, strict=True):
        at.check_type(ref, value)
    return refs


def _import_add_rms_norm(at: Any, node: Any, values: Any) -> Any:
    from torchair.schema import VALUE

    a, b, gamma = node.args[:3]
    added = [VALUE, at.ref(a), VALUE, at.ref(b)]
    x = at.add(node, "add.Tensor", added, values[2])
    refs = (*_fused(at, node, x, gamma, _argument(node, 3, 1e-6)), x)
    for ref, value in zip(refs, values, strict=True):
        at.check_type(ref, value)
    return refs


def install_rows() -> None:
    from torchair.rewrites import REWRITES

    ours = torch.ops.npu
    REWRITES[ours.npu_rms_norm.default] = _import_rms_norm
    REWRITES[ours.npu_add_rms_norm.default] = _import_add_rms_norm


# ---- caches ----


def scatter_update_(
    data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor, axis: int
) -> torch.Tensor:
    """Writes updates into data, from position indices[b] of `axis` on for
    each b of dim 0, and returns data.

    data, updates: equal but in `axis`, which is not 0; indices: int64 [B] or
    [1], each within data. A static KV cache is updated so, without a copy.
    """
    axis %= data.dim()
    if axis == 0 or indices.dim() != 1:
        raise ValueError(
            f"scatter_update_: axis {axis} must not be 0 and indices must "
            f"have one dim, got {list(indices.shape)}"
        )
    shape = [1] * data.dim()
    shape[axis] = updates.shape[axis]
    steps = torch.arange(updates.shape[axis], device=data.device).view(shape)
    first = indices.view([-1] + [1] * (data.dim() - 1))
    return data.scatter_(axis, (first + steps).expand_as(updates), updates)


# ---- formats ----


def get_npu_format(tensor: torch.Tensor) -> int:
    """The aclFormat of a tensor's memory: 2, ND, always."""
    checks.is_a(torch.Tensor, tensor, "get_npu_format: tensor", "a tensor")
    return ND


def npu_format_cast(
    tensor: torch.Tensor, acl_format: int, *_: Any, **__: Any
) -> torch.Tensor:
    """The tensor itself. Private formats do not exist here; asking for one
    warns, and get_npu_format goes on to say ND."""
    checks.is_a(torch.Tensor, tensor, "npu_format_cast: tensor", "a tensor")
    if isinstance(acl_format, torch.Tensor):
        acl_format = get_npu_format(acl_format)
    checks.is_a(int, acl_format, "npu_format_cast: acl_format", "an int")
    if acl_format not in _PLAIN:
        allowed = npu.config.allow_internal_format
        warnings.warn(
            f"format {acl_format} is private to a device that this process "
            "does not have: the tensor keeps its plain memory"
            + ("" if allowed else " (allow_internal_format is False as well)"),
            stacklevel=2,
        )
    return tensor


def install() -> None:
    """Defines the operators; once a process."""
    make: Any = torch.library.Library
    fragment = make("npu", "FRAGMENT")
    for definition in _DEFINITIONS:
        fragment.define(definition)
    kernels = library("npu")
    for name, fn, save, backward in (
        ("npu_rms_norm", _rms_norm, _save_rms, _rms_backward),
        ("npu_add_rms_norm", _add_rms_norm, _save_add, _add_backward),
    ):
        kernels.impl(name, fn, "CompositeExplicitAutograd")
        torch.library.register_fake(f"npu::{name}", fn, lib=fragment)
        torch.library.register_autograd(
            f"npu::{name}", backward, setup_context=save, lib=fragment
        )
    _fragments.append(fragment)
    _quant.install(fragment)
    _attention.register(fragment)
    _llm.register(fragment)
    attention.register("npu")


_fragments: list[Any] = []
