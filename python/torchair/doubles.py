"""Convolutions and attention of float64 on a CPU, for which the engine has the
reference's kernels alone, a number at a time. Torch's are tens of times faster:
they are HOST nodes, but where the graph is for machines without torch.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from . import compat
from .schema import Refused

_ATEN = torch.ops.aten
_SLOW = {
    _ATEN.convolution.default,
    _ATEN.convolution_backward.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
}
_SAYS = "torch_is_faster"
REASON = "torch's kernel of float64 is faster"


def mark(graph: Graph) -> None:
    """Before the graph is imported."""
    for node in graph.nodes:
        if node.target not in _SLOW:
            continue
        operand = node.args[0].meta["val"]
        here = operand.device.type in compat.HOST_DEVICES
        if here and operand.dtype == torch.float64:
            node.meta[_SAYS] = True


def check(node: Node) -> None:
    """Refused where torch is to run the node."""
    if _SAYS in node.meta:
        raise Refused(REASON)
