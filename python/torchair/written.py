"""Operators that are written in others before AOTAutograd traces them, for both
modes: they fuse then, and programs without Python can compute them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from . import comm, converters, encoders, norms

_ATEN = torch.ops.aten
# Of these torch has the formula.
_TORCHS = (
    _ATEN.affine_grid_generator.default,
    _ATEN.block_diag.default,
    _ATEN.ldexp.Tensor,
    _ATEN.renorm.default,
    _ATEN.rrelu_with_noise_backward.default,
    _ATEN.soft_margin_loss_backward.default,
)


def _trilinear(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    sums: Sequence[int],
    unrolled: int = 1,
) -> Tensor:
    """Sum over the dimensions `sums` of a * b * c, each of which lacks the
    dimensions that it is to be expanded along: two products of matrices."""
    count = a.dim() + len(expand_a)

    def names(without: Sequence[int]) -> str:
        left = sorted(set(range(count)) - {dim % count for dim in without})
        return "".join(ascii_lowercase[dim] for dim in left)

    operands = ",".join(map(names, (expand_a, expand_b, expand_c)))
    return torch.einsum(f"{operands}->{names(sums)}", a, b, c).contiguous()


_ALL: dict[Any, Any] = {
    **comm.DECOMPOSITIONS,
    **norms.DECOMPOSITIONS,
    **encoders.DECOMPOSITIONS,
    **get_decompositions(_TORCHS),
    _ATEN._trilinear.default: _trilinear,
}


def table() -> dict[Any, Any]:
    """By operator, for AOTAutograd; not those that have a user's converter,
    which is to see them."""
    return {op: f for op, f in _ALL.items() if converters.find(op) is None}
