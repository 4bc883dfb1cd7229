"""Gears: the sizes a dimension is padded to, and what a config may say."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchair import checks

MOST_GEARS = 64
# type: (default dimension, greatest gear)
_TYPES = {"BATCHSIZE": (0, 8192), "SEQLEN": (1, 1310720)}
_KEYS = (
    "type",
    "dimensions",
    "indices",
    "value",
    "gears",
    "min_size",
    "max_size",
    "policy",
)


def times_gears(min_size: int, max_size: int) -> list[int]:
    """min_size, the powers of two between, max_size."""
    gears = [min_size]
    power = 1
    while power <= max_size:
        if power > min_size:
            gears.append(power)
        power *= 2
    if gears[-1] != max_size:
        gears.append(max_size)
    return gears


@dataclass
class ShapeConfig:
    """One checked config.

    dimensions: one for all indices, or one for each; indices: positions in
    the list of tensors, empty: decided at the first call.
    """

    type: str
    gears: list[int]
    dimensions: list[int]
    indices: list[int] = field(default_factory=list)
    value: float = 0.0

    def dimension(self, number: int) -> int:
        """Of the indexed tensor with this number."""
        one = len(self.dimensions) == 1
        return self.dimensions[0 if one else number]

    def gear(self, size: int) -> int | None:
        """The smallest gear >= size, None: there is none."""
        at = bisect_left(self.gears, size)
        return self.gears[at] if at < len(self.gears) else None


def _int(name: str, value: Any, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    return value


def _ints(name: str, value: Any) -> list[int]:
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{name} must be a list of integers, got {value!r}")
    return [_int(f"an item of {name}", v) for v in value]


def check_gears(kind: str, gears: Sequence[int]) -> list[int]:
    """Sorted, without repeats; RuntimeError outside the limits."""
    most = _TYPES[kind][1]
    found = sorted(set(gears))
    if not found or len(found) > MOST_GEARS:
        raise RuntimeError(
            f"{kind}: 1 to {MOST_GEARS} gears are possible, got {len(found)}"
        )
    if found[0] < 1 or found[-1] > most:
        raise RuntimeError(
            f"{kind}: gears lie in 1..{most}, got {found[0]}..{found[-1]}"
        )
    return found


def _dimensions(kind: str, given: Any, indices: list[int]) -> list[int]:
    if given is None:
        return [_TYPES[kind][0]]
    found = (
        _ints("dimensions", given)
        if isinstance(given, (list, tuple))
        else [_int("dimensions", given)]
    )
    if not found:
        raise ValueError("dimensions is empty: give a dimension, or leave it")
    if kind == "BATCHSIZE" and len(found) > 1:
        warnings.warn(
            f"BATCHSIZE has one dimension; of {found} the first is used",
            stacklevel=2,
        )
        return found[:1]
    if len(found) > 1 and len(found) != len(indices):
        raise ValueError(
            f"{len(found)} dimensions for {len(indices)} indices: give one "
            "for each index, or one for all"
        )
    return found


def _gears(kind: str, config: Mapping[str, Any]) -> list[int]:
    policy = config.get("policy", "TIMES")
    if policy not in ("TIMES", "CUSTOM"):
        raise ValueError(f"policy must be 'TIMES' or 'CUSTOM', got {policy!r}")
    given = _ints("gears", config.get("gears") or [])
    if given:
        return check_gears(kind, given)
    if policy == "CUSTOM":
        raise ValueError(
            "policy 'CUSTOM' needs gears; min_size and max_size belong to "
            "policy 'TIMES'"
        )
    low = _int("min_size", config.get("min_size", 1), 1)
    high = _int("max_size", config.get("max_size", 1024), 1)
    if low > high:
        raise ValueError(f"min_size {low} is greater than max_size {high}")
    return check_gears(kind, times_gears(low, high))


def parse_config(config: Any) -> ShapeConfig:
    """ValueError: what a config must not say; RuntimeError: gears."""
    if not isinstance(config, Mapping):
        raise ValueError(f"a config is a dict, got {config!r}")
    for key in config:
        if key not in _KEYS:
            raise ValueError(
                f"unknown key {key!r}; a config has: {', '.join(_KEYS)}"
            )
    kind = config.get("type")
    if kind not in _TYPES:
        raise ValueError(f"type must be 'BATCHSIZE' or 'SEQLEN', got {kind!r}")
    value = config.get("value", 0.0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"value must be a number, got {value!r}")
    indices = _ints("indices", config.get("indices") or [])
    return ShapeConfig(
        kind,
        _gears(kind, config),
        _dimensions(kind, config.get("dimensions"), indices),
        indices,
        float(value),
    )


def parse_configs(configs: Sequence[Any] | None) -> list[ShapeConfig]:
    """At most one of each type; none: batch sizes 1..1024 on dimension 0."""
    if configs is not None:
        checks.is_many(configs, "shape_handling_configs", "a list of dicts")
    given = list(configs or [{"type": "BATCHSIZE"}])
    if len(given) > 2:
        raise ValueError(f"at most two configs are possible, got {len(given)}")
    found = [parse_config(c) for c in given]
    if len(found) == 2 and found[0].type == found[1].type:
        raise ValueError(f"two configs of type {found[0].type}")
    return found
