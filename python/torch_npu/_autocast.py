"""torch.autocast("npu"): which operators take which precision.

The lists are those torch gives every device of this kind: products in the
lower precision, what needs range or precision in float32, and operators of
several operands in the widest of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._kernels import library

KEY = "AutocastPrivateUse1"
_LOWER = """_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc
conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution
prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell
rnn_relu_cell scaled_dot_product_attention"""
_FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal
rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus
layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
soft_margin_loss triplet_margin_loss multi_margin_loss
binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp"""
# Of these, a dtype= that the caller gives decides.
_FLOAT32_UNLESS_ASKED = """prod prod.dim_int softmax.int log_softmax.int
cumprod cumsum linalg_vector_norm linalg_matrix_norm sum sum.dim_IntList"""
_WIDEST = """addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler
index_put tensordot scatter_add cat stack"""


def _find(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _may_cast(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor)
        and x.device.type == "npu"
        and x.is_floating_point()
        and x.dtype is not torch.float64
    )


def _cast(x: Any, dtype: torch.dtype) -> Any:
    if _may_cast(x):
        return x.to(dtype)
    if isinstance(x, (list, tuple)):
        return [_cast(y, dtype) for y in x]
    return x


def _tensors(x: Any) -> list[torch.Tensor]:
    if isinstance(x, (list, tuple)):
        return [t for y in x for t in _tensors(y)]
    return [x] if _may_cast(x) else []


def _lower(_args: Any, _kwargs: Any) -> torch.dtype:
    return torch.get_autocast_dtype("npu")


def _float32(_args: Any, _kwargs: Any) -> torch.dtype:
    return torch.float32


def _widest(args: Any, kwargs: Any) -> torch.dtype | None:
    found = _tensors([args, list(kwargs.values())])
    if any(t.dtype is torch.float32 for t in found):
        return torch.float32
    return torch.get_autocast_dtype("npu") if found else None


def _unless_asked(_args: Any, kwargs: Any) -> torch.dtype | None:
    return None if kwargs.get("dtype") is not None else torch.float32


def _kernel(
    op: Any, policy: Callable[[Any, Any], torch.dtype | None]
) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = policy(args, kwargs)
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            if dtype is not None:
                args = tuple(_cast(a, dtype) for a in args)
                kwargs = {k: _cast(v, dtype) for k, v in kwargs.items()}
            return op(*args, **kwargs)

    return kernel


_keys: Any = torch._C.DispatchKey
_EXCLUDED = torch._C.DispatchKeySet(_keys.AutocastPrivateUse1)


def install() -> None:
    ours = library("aten")
    library("_").fallback(torch.library.fallthrough_kernel, KEY)
    for names, policy in (
        (_LOWER, _lower),
        (_FLOAT32, _float32),
        (_FLOAT32_UNLESS_ASKED, _unless_asked),
        (_WIDEST, _widest),
    ):
        for name in names.split():
            op = _find(name)
            ours.impl(op, _kernel(op, policy), KEY)
