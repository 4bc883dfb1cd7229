"""Arguments of public functions: what is wrong with one, and what to give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def is_a(kinds: Any, value: Any, what: str, wanted: str) -> None:
    """TypeError: `what` must be `wanted`, where value is of none of the
    kinds. A bool is no int."""
    flag = isinstance(value, bool) and kinds is int
    if flag or not isinstance(value, kinds):
        raise TypeError(f"{what} must be {wanted}, got {type(value).__name__}")


def calls(value: Any, what: str) -> None:
    """TypeError where value is no function."""
    if not callable(value):
        raise TypeError(
            f"{what} must be a function, got {type(value).__name__}"
        )


def is_many(value: Any, what: str, wanted: str) -> None:
    """TypeError where value is no list, tuple or other collection."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{what} must be {wanted}, got {type(value).__name__}")


def maps_operators(value: Any, what: str) -> None:
    """TypeError where value is no dict of operators and functions."""
    is_a(dict, value, what, "a dict of operators, functions")
    for op, fn in value.items():
        is_a(
            torch._ops.OperatorBase,
            op,
            f"a key of {what}",
            "an operator such as torch.ops.aten.relu.default",
        )
        calls(fn, f"{what}[{op}]")
