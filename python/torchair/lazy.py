"""Inputs that are lazily conjugated or negated: a tensor made at each call, of
the numbers that one stands for, is what the program reads."""

from __future__ import annotations

from typing import Any

import torch

from .sizes import Unexpressible


def is_lazy(value: torch.Tensor) -> bool:
    return value.is_conj() or value.is_neg()


def entry(node: torch.fx.Node, value: torch.Tensor, dtype: str) -> Any:
    """Of the program's arguments."""
    if not is_lazy(value):
        return dtype
    _check(node)
    return dtype, "lazy"


def _check(node: torch.fx.Node) -> None:
    """Nothing may be written to such a tensor, or returned in its memory."""
    shows = [node]
    for shown in shows:  # grows
        for user in shown.users:
            op: Any = user.target
            schema = getattr(op, "_schema", None)
            returned = user.op == "output" and shown is not node
            if returned or (schema and schema.is_mutable):
                raise Unexpressible(f"input {node} is lazily conjugated")
            if getattr(op, "is_view", False):
                shows.append(user)
