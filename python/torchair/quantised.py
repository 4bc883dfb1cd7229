"""Weights of 8 and 4 bits: how they are made and stored, and the operator
`torch.ops.air.quantised_mm`, one engine node that reads them as they are.

    y[m, n] = sum over k of a[m, k] * w[n, k]  +  bias[n]
    w[n, k] = q[n, k] * scale[n, k // group]  +  zero[n, k // group]

q: int8 [n, k]; or two of 4 bits in a byte, uint8 [n, k / 2], the lower one
first, stored plus 8. `rounded` lets w be rounded to the dtype of a, as it is
where a model dequantises it before the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import own

SCHEMA = (
    "quantised_mm(Tensor a, Tensor weight, Tensor? scale, Tensor? zero, "
    "Tensor? bias, int bits, bool rounded=False) -> Tensor"
)
GROUPS = (32, 64, 128)
KEPT = {8: torch.int8, 4: torch.uint8}  # what a stored weight is of


def unpack(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """The numbers of a stored weight, int8 [n, k]."""
    if bits == 8:
        return weight
    pairs = torch.stack([weight & 15, weight >> 4], -1)
    return pairs.flatten(-2).to(torch.int8) - 8


def dequantise(
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    zero: torch.Tensor | None,
    bits: int,
) -> torch.Tensor:
    """What a stored weight stands for, float32 [n, k]."""
    found = unpack(weight, bits).float()
    for factors, combine in ((scale, torch.mul), (zero, torch.add)):
        if factors is not None:
            rows, groups = factors.shape
            split = found.view(rows, groups, -1)
            found = combine(split, factors.float().unsqueeze(-1)).flatten(1)
    return found


def _check_operands(a: Any, weight: Any, bits: int) -> None:
    """ValueError naming the operand of quantised_mm that cannot be."""
    if bits not in KEPT:
        raise ValueError(f"quantised_mm: bits is 8 or 4, not {bits}")
    if weight.dim() != 2 or weight.dtype != KEPT[bits]:
        raise ValueError(
            f"quantised_mm: weight of {bits} bits is a matrix of {KEPT[bits]}, "
            f"not {weight.dtype} {list(weight.shape)}: see quantised.store"
        )
    depth = weight.shape[1] * 8 // bits
    if a.dim() != 2 or a.shape[1] != depth:
        raise ValueError(
            f"quantised_mm: a is [rows, {depth}], as deep as the weight, not "
            f"{list(a.shape)}"
        )


def _compute(
    a: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor | None,
    zero: torch.Tensor | None,
    bias: torch.Tensor | None,
    bits: int,
    rounded: bool = False,
) -> torch.Tensor:
    _check_operands(a, weight, bits)
    w = dequantise(weight, scale, zero, bits)
    if rounded:
        w = w.to(a.dtype).float()
    y = a.float() @ w.t()
    return (y if bias is None else y + bias.float()).to(a.dtype)


def _sizes(
    a: torch.Tensor,
    weight: torch.Tensor,
    scale: Any,
    zero: Any,
    bias: Any,
    bits: int,
    rounded: bool = False,
) -> torch.Tensor:
    _check_operands(a, weight, bits)
    return a.new_empty(a.shape[0], weight.shape[0])


_library = own.define(SCHEMA, _compute, _sizes)


@dataclass
class Stored:
    """A weight of few bits. error: root mean square of what was lost, as a
    share of the root mean square of the weight."""

    weight: torch.Tensor
    scale: torch.Tensor  # [n, groups]; bfloat16 where groups are small
    bits: int
    group: int  # numbers that share a scale
    error: float


def store(weight: torch.Tensor, bits: int, group: int) -> Stored:
    """Quantises a float weight [n, k], symmetrically: of each group the
    number that is largest in size becomes the last one of that sign.

    group: for 4 bits, a divisor of k; of 8 bits a row is one. ValueError
    names the argument that cannot be.
    """
    _check_weight(weight, bits, group)
    depth = weight.shape[1]
    group = depth if bits == 8 else group
    some = max(1, _AT_ONCE[weight.is_cuda] // max(1, depth))
    pieces = [_piece(w, bits, group) for w in weight.detach().split(some)]
    numbers, scales, lost, size = zip(*pieces, strict=True)
    error = (sum(lost) / sum(size)) ** 0.5 if sum(size) else 0.0
    return Stored(torch.cat(numbers), torch.cat(scales), bits, group, error)


def _check_weight(weight: torch.Tensor, bits: int, group: int) -> None:
    if bits not in KEPT:
        raise ValueError(f"bits is 8 or 4, not {bits}")
    if weight.dim() != 2 or not weight.is_floating_point():
        raise ValueError(
            "weight is a matrix of floating point, not "
            f"{weight.dtype} {list(weight.shape)}"
        )
    depth = weight.shape[1]
    if bits == 4 and (group < 1 or depth % group or depth % 2):
        raise ValueError(
            f"group divides the weight's even row of {depth} numbers, "
            f"{group} does not"
        )


_AT_ONCE = (1 << 19, 1 << 24)  # of a CPU: the cache holds them; of a GPU


def _piece(
    weight: torch.Tensor, bits: int, group: int
) -> tuple[torch.Tensor, torch.Tensor, float, float]:
    """Rows as they are stored, their scales; squares of what was lost, and of
    all."""
    split = weight.float().reshape(weight.shape[0], -1, group)
    if bits == 8:
        scale = split.abs().amax(-1) / 127
    else:  # -8 has no counterpart: it is for the largest, whatever its sign
        at = split.abs().argmax(-1, keepdim=True)
        scale = (split.gather(-1, at).squeeze(-1) / -8).bfloat16()
    used = scale.float()  # what was rounded of it is lost once, not twice
    safe = torch.where(used == 0, 1.0, used).unsqueeze(-1)
    q = (split / safe).round().clamp(*((-127, 127) if bits == 8 else (-8, 7)))
    lost = (split - q * safe).square().sum().item()
    numbers = q.reshape(weight.shape).to(torch.int8)
    return _pack(numbers, bits), scale, lost, split.square().sum().item()


def _pack(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 8:
        return numbers
    pairs = (numbers + 8).to(torch.uint8).unflatten(-1, (-1, 2))
    packed: torch.Tensor = pairs[..., 0] | pairs[..., 1] << 4
    return packed
