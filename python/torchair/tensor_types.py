"""Fake tensors in the engine's terms: a dtype and sizes, if it has such."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import cuda
from .schema import DTYPES
from .sizes import Sizes, Unexpressible

MAX_RANK = 8


class Type(NamedTuple):
    """type: dtype and sizes, as Graph.type gives them; exact: the engine can
    compute with the dtype."""

    type: tuple[int, tuple[int, ...]]
    exact: bool


def dtype_of(value: torch.Tensor) -> tuple[int, bool]:
    """(the engine's, exact)"""
    row = DTYPES.get(value.dtype)
    if row is None:
        raise Unexpressible(f"tensors of {value.dtype}")
    return row


class Types:
    """Of one graph, where few types are those of many tensors."""

    def __init__(self, sizes: Sizes, place: int) -> None:
        """place: of the graph's tensors, see cuda.py."""
        self.sizes = sizes
        self.place = place
        self._known: dict[Any, Type] = {}
        self._last: Any = None  # each is asked for twice in a row
        self._last_moved = False
        self._last_type: Any = None

    def of(
        self, value: torch.Tensor, what: str, node: object, moved: bool = False
    ) -> Type:
        """Of a value of the node. Unexpressible, which says what it is of it:
        the engine has no such tensors, or a size depends on data. moved: it
        may be somewhere else."""
        if value is not self._last or moved != self._last_moved:
            self._last_type = self._find(value, what, node, moved)
            self._last, self._last_moved = value, moved
        found: Type = self._last_type
        return found

    def _find(
        self, value: torch.Tensor, what: str, node: object, moved: bool
    ) -> Type:
        key = value.dtype, value.layout, value.device, value.shape, moved
        try:
            found = self._known.get(key)
        except TypeError:  # a symbol has no hash
            return self._make(value, f"{what} {node}", moved)
        if found is None:
            found = self._known[key] = self._make(
                value, f"{what} {node}", moved
            )
        return found

    def _make(self, value: torch.Tensor, what: str, moved: bool) -> Type:
        if value.layout != torch.strided:
            raise Unexpressible(f"{what} has layout {value.layout}")
        if not moved and not cuda.is_at(value, self.place):
            raise Unexpressible(f"{what} is on device {value.device}")
        if value.dim() > MAX_RANK:
            raise Unexpressible(f"{what} has {value.dim()} dimensions")
        dtype, exact = dtype_of(value)
        return Type((dtype, tuple(self.sizes.dims(value.shape))), exact)
