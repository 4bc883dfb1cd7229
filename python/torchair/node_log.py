"""What the log says, at DEBUG, of each node that is imported."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch

from .origin import location_of

logger = logging.getLogger("torchair")


def logs_nodes() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def log_node(
    node: torch.fx.Node,
    values: Mapping[torch.fx.Node, int],
    results: Sequence[int | None],
) -> None:
    """The node's target, operands and results, as torch has them and as values
    of the engine's graph before its passes. values: those of nodes before."""
    place = location_of(node)
    said = [f"{node.name}, target: {node.target}"]
    said[0] += f", at {place}" if place else ""
    said += [
        f"  input: {_typed(operand)}, value {values[operand]}"
        for operand in node.all_input_nodes
        if operand in values
    ]
    made = [str(ref) for ref in results if ref is not None]
    said.append(f"  output: {_typed(node)}, value {', '.join(made) or 'none'}")
    logger.debug("\n".join(said))


def _typed(node: torch.fx.Node) -> str:
    """ "relu: float32[2, 3]"."""
    value = node.meta.get("val")
    several = value if isinstance(value, (tuple, list)) else (value,)
    return f"{node.name}: {', '.join(map(_type, several))}"


def _type(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
