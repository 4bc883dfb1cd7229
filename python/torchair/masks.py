"""Masks as torch's fused attention of a GPU takes them.

`scaled_dot_product_attention` wants the keys of a mask side by side. One that
is broadcast along them, as that of an encoder of Transformers without padding
(`query >= 0`), makes it write out all scores, and a training step keep them. So
the mask is copied, before AOTAutograd sees the call.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from . import schema

_ATTEND = torch.nn.functional.scaled_dot_product_attention


def lay(gm: GraphModule) -> None:
    """gm: Dynamo's; made anew where it has such masks."""
    laid: dict[Node, Node] = {}
    for node in gm.graph.find_nodes(op="call_function", target=_ATTEND):
        mask = schema.argument(node, 3, "attn_mask", None)
        if isinstance(mask, Node) and _is_spread(mask):
            if mask not in laid:
                with gm.graph.inserting_after(mask):
                    laid[mask] = gm.graph.call_method("contiguous", (mask,))
            node.replace_input_with(mask, laid[mask])
    if laid:
        gm.recompile()


def _is_spread(mask: Node) -> bool:
    value = mask.meta.get("example_value")
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cuda"
        and value.dim() > 1
        and value.stride(-1) != 1
    )
