"""Captured attention whose lengths NPUGraph.update replaces.

The operators of library `npu` take lengths as lists, which a capture would
freeze. Those of library `air` are the same with lengths in tensors: they are
what is captured, as a node of the engine like any other, on memory that an
update writes. A replay launches nothing else.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import attention
from ..attention import arguments


def names_of(version: int) -> list[str]:
    """The arguments that are lengths, as that version calls them."""
    found = [
        row.public(version)
        for row in arguments.ROWS
        if row.type == arguments.LENGTHS
    ]
    return [name for name in dict.fromkeys(found) if name]


class Lengths:
    """What an update of one captured operator may write."""

    def __init__(self, op: Any, tensors: dict[str, torch.Tensor]) -> None:
        self.op, self.tensors = op, tensors

    def takes(self, given: dict[str, Any]) -> bool:
        """May `update` be called with these, and are they all it needs?"""
        return all(
            name in self.tensors
            and isinstance(value, (list, tuple))
            and len(value) in (1, self.tensors[name].numel())
            for name, value in given.items()
        )

    def update(self, given: dict[str, Any]) -> None:
        """RuntimeError where there are fewer or more than in the capture, or
        were none; nothing is written then."""
        new = {
            name: self._new(name, value)
            for name, value in given.items()
            if name in self.tensors
        }
        for name, value in new.items():
            self.tensors[name].copy_(value)

    def _new(self, name: str, value: Any) -> torch.Tensor:
        found = torch.as_tensor(value, dtype=torch.int64).reshape(-1)
        count = self.tensors[name].numel()
        if found.numel() not in (1, count):
            raise RuntimeError(
                f"{self.op}: {name} has {found.numel()} lengths, the capture "
                f"had {count}; give as many, or one for all"
            )
        return found


Taken = tuple[Any, tuple[Any, ...], dict[str, Any], Lengths]


def take(func: Any, args: Any, kwargs: Any) -> Taken | None:
    """(operator of library air, args, kwargs, Lengths) for a call of one of
    library npu; None where it is another, or has no lengths in lists."""
    version = attention.version_of(func)
    if version is None or func.namespace != "npu":
        return None
    names = [a.name for a in func._schema.arguments]
    known = names_of(version)
    tensors: dict[str, torch.Tensor] = {}

    def as_tensor(name: str, value: Any) -> Any:
        if name not in known or not isinstance(value, (list, tuple)):
            return value
        tensors[name] = torch.tensor(value, dtype=torch.int64)
        return tensors[name]

    new_args = [as_tensor(n, a) for n, a in zip(names, args, strict=False)]
    new_kwargs = {
        n: as_tensor(n, a)
        for n, a in kwargs.items()
        if n not in ("out", "workspace")
    }
    if not tensors or any(t.numel() == 0 for t in tensors.values()):
        return None
    attention.register("air")
    packet = getattr(torch.ops.air, arguments.op_name(version))
    return packet.default, tuple(new_args), new_kwargs, Lengths(func, tensors)
