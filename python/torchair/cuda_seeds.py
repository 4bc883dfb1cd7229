"""Seeds of attention that drops weights, without a wait for each.

torch's kernel draws with a seed and an offset that the host gives it, and its
gradient wants both there again, on the CPU. The engine's results and what
backward is given are on the GPU. So forward fills them in there, where a copy
would wait for the GPU, and a backward reads all of its own when it begins:
one wait, not two for each attention.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import compat, schema

aten = torch.ops.aten
_AT = 7  # which argument the seed is; the offset and dropout_p are behind it
GRADIENT = aten._scaled_dot_product_efficient_attention_backward.default


class _Known(threading.local):
    """Of the backward that this thread runs: where a number lies on the GPU,
    and the number."""

    values: dict[int, torch.Tensor] = {}


_known = _Known()


def on_gpu(result: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A result of a HOST node as the engine takes it."""
    if result.device.type == "cpu" and not result.dim():
        number = result.item()
        return torch.full((), number, dtype=result.dtype, device=device)
    return result.to(device).contiguous()


def _read(tensors: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    numbers = torch.stack(list(tensors)).cpu().unbind()
    places = [t.data_ptr() for t in tensors]
    return dict(zip(places, numbers, strict=True))


def _on_cpu(x: torch.Tensor) -> torch.Tensor:
    known = _known.values.get(x.data_ptr())
    return x.cpu() if known is None else known


def seeded(operator: Any) -> Any:
    """A gradient of attention that may have dropped weights, with seed and
    offset of the draw where its kernel looks for them: on the CPU, unless it is
    captured and keeps their addresses."""

    def call(*args: Any, **kwargs: Any) -> Any:
        rest = args[_AT + 2 :]
        p = rest[0] if rest else kwargs["dropout_p"]
        if not p or torch.cuda.is_current_stream_capturing():
            return operator(*args, **kwargs)
        seeds = map(_on_cpu, args[_AT : _AT + 2])
        return operator(*args[:_AT], *seeds, *rest, **kwargs)

    return call


def _inputs(gm: torch.fx.GraphModule) -> list[int]:
    """Which inputs of a backward are seeds and offsets of what was dropped."""
    found = {
        arg
        for node in gm.graph.find_nodes(
            op="call_function", target=GRADIENT, sort=False
        )
        for arg in node.args[_AT : _AT + 2]
        if schema.bound(node)["dropout_p"]
    }
    places = gm.graph.find_nodes(op="placeholder")
    return [i for i, node in enumerate(places) if node in found]


def reading(
    gm: torch.fx.GraphModule, program: Callable[..., Any]
) -> Callable[..., Any]:
    """The program of a backward, which reads its seeds first."""
    inputs = _inputs(gm)
    if not inputs:
        return program

    def run(*args: Any) -> Any:
        boxed = len(args) == 1 and isinstance(args[0], list)
        given = args[0] if boxed else args
        if torch.cuda.is_current_stream_capturing():
            return program(*args)
        _known.values = _read([given[i] for i in inputs])
        try:
            return program(*args)
        finally:
            _known.values = {}

    run._boxed_call = True  # type: ignore[attr-defined]
    return compat.untraced(run)
