"""Types of what passes over FX graphs inserted."""

from __future__ import annotations

from typing import Any

import torch


def propagate(gm: torch.fx.GraphModule) -> None:
    """node.meta["val"] where passes have made or changed nodes."""
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    values = [n.meta.get("val") for n in nodes]
    fakes = [v for v in values if isinstance(v, torch.Tensor)]
    mode = torch._guards.detect_fake_mode(fakes)
    if mode is None:
        return
    with mode:
        _Types(gm, mode).run(*values)


class _Types(torch.fx.Interpreter):
    """Computes the graph on fake tensors. Values of nodes that stayed as they
    were are kept: importers compare sizes by their symbols."""

    def __init__(self, gm: torch.fx.GraphModule, mode: Any) -> None:
        super().__init__(gm)
        self.mode = mode

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "get_attr":
            value = super().run_node(n)
            if isinstance(value, torch.Tensor):
                return self.mode.from_tensor(value, static_shapes=True)
            return value
        result = super().run_node(n)
        if n.op == "call_function":
            known = n.meta.get("val")
            if known is not None and _alike(known, result):
                return known
            n.meta["val"] = result
        return result


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return (
            a.dtype == b.dtype
            and a.device == b.device
            and _text(a.shape) == _text(b.shape)
            and _text(a.stride()) == _text(b.stride())
        )
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(_alike, a, b))
    return type(a) is type(b) and str(a) == str(b)


def _text(sizes: Any) -> list[str]:
    return [str(s) for s in sizes]
