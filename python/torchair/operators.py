"""What is known of an operator. A graph has many nodes and few operators, so
each thing is asked once for an operator and remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def remembered(ask: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """ask, called once for each object. They are told apart by identity, and
    kept: an operator's own hash is a Python function."""
    known: dict[int, tuple[Answer, Any]] = {}

    def answer(target: Any) -> Answer:
        found = known.get(id(target))
        if found is None:
            found = known[id(target)] = ask(target), target
        return found[0]

    return answer
