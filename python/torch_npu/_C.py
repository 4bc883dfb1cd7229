"""The names of torch_npu._C that programs touch: shape handling by hand.

There is no C++ behind them; what is not here is not emulated.
"""

from __future__ import annotations

import enum
from typing import Any

import torch

from ._inductor.gears import parse_config
from ._inductor.shapes import (
    STRATEGIES,
    BatchStrategy,
    NPUShapeHandling,
    SequenceStrategy,
    Strategy,
)

__all__ = ["ShapePolicy", "ShapeType"]


def _weak_ref_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without a hold on its memory: torchair.npu.weak_ref_tensor."""
    from torchair.npu import weak_ref_tensor

    return weak_ref_tensor(tensor)


class ShapeType(enum.Enum):
    BATCHSIZE = "BATCHSIZE"
    SEQLEN = "SEQLEN"


class ShapePolicy(enum.Enum):
    TIMES = "TIMES"
    CUSTOM = "CUSTOM"


_ShapeOpStrategyBase = Strategy
_BSShapeOpStrategy = BatchStrategy
_SeqShapeOpStrategy = SequenceStrategy
_DefaultBSShapeOp = BatchStrategy
_DefaultSeqShapeOp = SequenceStrategy


class _NPUShapeHandling(NPUShapeHandling):
    """Shape handling that is told its configs one by one."""

    def __init__(self) -> None:
        super().__init__()
        self._batch = self._sequence = None
        self._kinds = dict(STRATEGIES)

    def initialize(self, type: ShapeType, *args: Any, **kwargs: Any) -> None:
        """initialize(type, gears, dimensions, indices, value=0.0) or
        initialize(type, min_size, max_size, policy, dimensions, indices,
        value=0.0)."""
        if not isinstance(type, ShapeType):
            raise TypeError(f"type must be a ShapeType, got {type!r}")
        by_gears = "gears" in kwargs or (
            args and isinstance(args[0], (list, tuple))
        )
        names = ["gears"] if by_gears else ["min_size", "max_size", "policy"]
        names += ["dimensions", "indices", "value"]
        config = dict(zip(names, args, strict=False)) | kwargs
        if isinstance(config.get("policy"), ShapePolicy):
            config["policy"] = config["policy"].value
        parsed = parse_config({"type": type.value, **config})
        strategy = self._kinds[type.value](parsed)
        if type is ShapeType.BATCHSIZE:
            self._batch = strategy
        else:
            self._sequence = strategy

    def register_batch_size_strategy(self, custom_strategy: Any) -> None:
        """A subclass of Strategy instead of BatchStrategy."""
        self._batch = self._register("BATCHSIZE", custom_strategy, self._batch)

    def register_sequence_strategy(self, custom_strategy: Any) -> None:
        self._sequence = self._register(
            "SEQLEN", custom_strategy, self._sequence
        )

    def _register(
        self, kind: str, strategy: Any, now: Strategy | None
    ) -> Strategy | None:
        if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
            raise TypeError(
                f"a subclass of Strategy is needed, got {strategy!r}"
            )
        self._kinds[kind] = strategy
        return strategy(now.config) if now else None
