"""Gears: what `inference.set_dim_gears` said, as guards of a graph.

The graph keeps its symbols, so it is traced once. Guards let it be used for
the combinations of gears only; for any other sizes Dynamo compiles again, and
that is refused here. All other symbols are bound to their sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from . import names
from .logs import logger
from .sizes import expression, is_symbolic

_MOST = 100  # combinations


def apply(gm: torch.fx.GraphModule, policy: str) -> None:
    """Adds the guards where an input of the graph has gears.

    AssertionError: the sizes at hand are no combination, the lists of policy
    "zip" differ in length, or there are more than 100 combinations.
    """
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    dims: list[Any] = []
    lists: list[Sequence[int]] = []
    known = _all_gears(inputs)
    for node in inputs:
        value = node.meta.get("example_value")
        for dim, sizes in known.get(node.name, {}).items():
            dims.append(value.shape[dim])
            lists.append(sizes)
    if not dims:
        return
    found = combinations(lists, policy)
    _guard(dims, found)
    for node in inputs:
        _bind(node.meta.get("example_value"), dims)
    _log(gm, inputs, known, found)


def _log(
    gm: torch.fx.GraphModule,
    inputs: list[torch.fx.Node],
    known: dict[str, Gears],
    found: Sequence[tuple[int, ...]],
) -> None:
    """What a graph engine is told of the sizes."""
    shapes = []
    for name, node in zip(names.of_arguments(gm), inputs, strict=True):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            free = known.get(node.name, {})
            dims = [-1 if d in free else s for d, s in enumerate(value.shape)]
            shapes.append(f"{name}:{_joined(dims)}")
    logger.info("ge.inputShape: %s", ";".join(shapes))
    logger.info("ge.dynamicDims: %s", ";".join(map(_joined, found)))
    logger.info("ge.dynamicNodeType: 1")


def _joined(numbers: Sequence[Any]) -> str:
    return ",".join(map(str, numbers))


Gears = dict[int, Sequence[int]]
# By the number of a compiled frame, by name of an input: later calls come with
# tensors that nobody marked. A frame's first compilation starts anew.
_frames: dict[int, dict[str, Gears]] = {}


def _all_gears(inputs: list[torch.fx.Node]) -> dict[str, Gears]:
    found = {n.name: _gears(n) for n in inputs if _gears(n)}
    at = torch._guards.CompileContext.current_compile_id()
    frame = getattr(at, "frame_id", None)
    if at is None or frame is None:
        return found
    if at.frame_compile_id == 0:
        _frames.pop(frame, None)
    if found:
        _frames[frame] = found
    return _frames.get(frame, found)


def _gears(node: torch.fx.Node) -> Gears:
    given = node.meta.get("grapharg")
    tensor = getattr(given, "example", None)
    return getattr(tensor, "dim_gears", None) or {}


def combinations(
    lists: Sequence[Sequence[int]], policy: str
) -> list[tuple[int, ...]]:
    """Of one size from each list; each once."""
    if policy == "product":
        found = list(dict.fromkeys(itertools.product(*lists)))
    else:
        if len({len(sizes) for sizes in lists}) > 1:
            raise AssertionError(
                "dynamic_gears_merge_policy zip: lists of "
                f"{[len(sizes) for sizes in lists]} gears cannot be taken "
                "position by position; make them equally long, or use product"
            )
        found = list(dict.fromkeys(zip(*lists, strict=True)))
    if len(found) > _MOST:
        raise AssertionError(
            f"set_dim_gears: {len(found)} combinations of gears by policy "
            f"{policy}, at most {_MOST}; give shorter lists"
        )
    return found


def _guard(dims: Sequence[Any], found: Sequence[tuple[int, ...]]) -> None:
    import sympy

    now = tuple(d.node.hint if is_symbolic(d) else int(d) for d in dims)
    if now not in found:
        raise AssertionError(
            f"set_dim_gears: sizes {list(now)} are no combination of gears; "
            f"there are {[list(c) for c in found]}"
        )
    symbolic = [d for d in dims if is_symbolic(d)]
    if not symbolic:
        return
    allowed = [
        sympy.And(
            *(
                sympy.Eq(expression(d) if is_symbolic(d) else int(d), size)
                for d, size in zip(dims, sizes, strict=True)
            )
        )
        for sizes in found
    ]
    symbolic[0].node.shape_env.evaluate_expr(sympy.Or(*allowed))


def _bind(value: Any, dims: Sequence[Any]) -> None:
    """Dims of a tensor that have no gears are what they are now."""
    if not isinstance(value, torch.Tensor):
        return
    free = {str(expression(d)) for d in dims if is_symbolic(d)}
    for size in value.shape:
        if is_symbolic(size) and str(expression(size)) not in free:
            int(size)
