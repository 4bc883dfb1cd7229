"""What an operator's results look like, found out once for each kind of call.

Fake kernels take 0.3 ms apiece, more than the operator itself; layers of a
model repeat, and graphs of several sizes share most of their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch


def leaves(tree: Any) -> Iterator[Any]:
    """Of tuples, lists and dicts, in order."""
    if isinstance(tree, (tuple, list)):
        for x in tree:
            yield from leaves(x)
    elif isinstance(tree, dict):
        yield from leaves(list(tree.values()))
    else:
        yield tree


def mapped(tree: Any, kind: type, fn: Callable[[Any], Any]) -> Any:
    """The tree with fn(leaf) for its leaves of a type."""
    if isinstance(tree, kind):
        return fn(tree)
    if isinstance(tree, list):
        return [mapped(x, kind, fn) for x in tree]
    if isinstance(tree, tuple):
        return tuple([mapped(x, kind, fn) for x in tree])
    if isinstance(tree, dict):
        return {k: mapped(x, kind, fn) for k, x in tree.items()}
    return tree


@dataclass(frozen=True, slots=True)
class Made:
    """A result. argument: the tensor argument that it is, or is a part of;
    offset: elements from the start of the storage, of a part from that of
    the argument."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    nbytes: int
    device: torch.device
    argument: int | None = None
    part: bool = False

    @staticmethod
    def of(
        t: torch.Tensor, argument: int | None = None, part: bool = False
    ) -> Made:
        return Made(
            t.dtype,
            tuple(t.shape),
            t.stride(),
            int(t.storage_offset()),
            t.untyped_storage().nbytes(),
            t.device,
            argument,
            part,
        )


# Besides tensors: what sizes of results can depend on.
_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


def key_of(func: Any, args: Any, kwargs: Any) -> Any:
    """Equal for calls whose results look alike; None: nobody knows."""
    seen: dict[int, int] = {}
    parts: list[Any] = [func, torch.get_default_dtype(), *kwargs]
    for x in leaves(_counted((args, kwargs))):
        if isinstance(x, torch.Tensor):
            parts.append(
                (
                    seen.setdefault(id(x), len(seen)),
                    x.dtype,
                    tuple(x.shape),
                    x.stride(),
                    x.device,
                    x.is_conj(),
                    x.is_neg(),
                )
            )
        elif isinstance(x, _PLAIN):
            parts.append((type(x), x))
        else:
            return None
    return tuple(parts)


def _counted(tree: Any) -> Any:
    """With the lengths of lists, which leaves alone do not show."""
    if isinstance(tree, (tuple, list)):
        return [len(tree), *map(_counted, tree)]
    if isinstance(tree, dict):
        return [_counted(x) for x in tree.values()]
    return tree


class Known:
    """Results by key. Old ones go where there are too many."""

    _LIMIT = 4096

    def __init__(self) -> None:
        self.found: dict[Any, Any] = {}

    def find(self, key: Any) -> Any:
        return None if key is None else self.found.get(key)

    def keep(self, key: Any, made: Any) -> None:
        if key is None:
            return
        if len(self.found) >= self._LIMIT:
            self.found.clear()
        self.found[key] = made
