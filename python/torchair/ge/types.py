"""Dtypes and formats of the Ascend IR, from the engine's table."""

from __future__ import annotations

import enum
from typing import Any

import torch

from .. import _native

_ROWS = _native.ge_dtypes()


class DataType:
    """Integers, as attributes and C interfaces use them; tensor descriptors in
    files have other numbers."""

    DT_MAX = 42


for _row in _ROWS:
    setattr(DataType, _row[0], _row[1])

Format = enum.Enum(  # type: ignore[misc]
    "Format", _native.ge_formats(), module=__name__
)

NAMES: dict[int, str] = {number: name for name, number, _, _ in _ROWS}
_TO_GE: dict[torch.dtype, int] = {
    getattr(torch, name): number
    for _, number, _, name in _ROWS
    if hasattr(torch, name)
}
_TO_TORCH = {number: dtype for dtype, number in _TO_GE.items()}
# Bits without a dtype of torch's.
_TO_TORCH |= {n: torch.uint8 for n, t in NAMES.items() if "HIFLOAT8" in t}
_TO_TORCH |= {n: torch.uint8 for n, t in NAMES.items() if "FLOAT4" in t}


def ge_dtype(dtype: torch.dtype) -> int:
    """RuntimeError: the Ascend IR has none."""
    found = _TO_GE.get(dtype)
    if found is None:
        raise RuntimeError(f"{dtype} has no dtype in the Ascend IR")
    return found


def torch_dtype(number: Any) -> torch.dtype:
    """Of a DataType, or of torch's own. RuntimeError: torch has none."""
    if isinstance(number, torch.dtype):
        return number
    found = _TO_TORCH.get(number)
    if found is None:
        name = NAMES.get(number, repr(number))
        raise RuntimeError(
            f"torch has no dtype for {name}: take a DataType, such as "
            "torchair.ge.DataType.DT_FLOAT"
        )
    return found


def constant_dtype(v: Any) -> int:
    """Of what Const is given. TypeError: no numbers."""
    kinds: Any = DataType
    if v is None or isinstance(v, (str, bytes)):
        raise TypeError(
            "Const takes a number, a list of numbers, an array or a torch "
            f"tensor, not {v!r}"
        )
    if isinstance(v, bool):
        return int(kinds.DT_BOOL)
    if isinstance(v, int):
        return int(kinds.DT_INT64)
    if isinstance(v, float):
        return int(kinds.DT_FLOAT)
    if isinstance(v, torch.Tensor):
        return ge_dtype(v.dtype)
    if not hasattr(v, "dtype") and len(v) == 0:
        return int(kinds.DT_INT32)
    if isinstance(v, (list, tuple)):
        made = torch.tensor(v)
        floats = made.dtype == torch.float32
        return int(kinds.DT_DOUBLE) if floats else ge_dtype(made.dtype)
    return ge_dtype(torch.as_tensor(v).dtype)
