"""Operators for which the engine has the reference's kernels alone on a CPU,
which compute a number at a time: convolutions and attention of float64,
convolutions and products of integers. Torch's are ten times and more faster:
they are HOST nodes, but where the graph is for machines without torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from . import compat, schema
from .schema import Refused

_ATEN = torch.ops.aten
_FEW = 4096  # multiply-adds that take less time than a call of torch's
_CONVOLUTIONS = {
    _ATEN.convolution.default,
    _ATEN.convolution_backward.default,
}
_ATTENTION = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default,
}
# Where the first factor stands.
_PRODUCTS = {
    _ATEN.mm.default: 0,
    _ATEN.bmm.default: 0,
    _ATEN.mv.default: 0,
    _ATEN.addmm.default: 1,
    _ATEN.baddbmm.default: 1,
    _ATEN.addmv.default: 1,
}
_SAYS = "torch_is_faster"
REASON = "torch's kernel of this dtype is faster"


def mark(graph: Graph) -> None:
    """Before the graph is imported."""
    for node in graph.nodes:
        if _is_slow(node):
            node.meta[_SAYS] = True


def check(node: Node) -> None:
    """Refused where torch is to run the node."""
    if _SAYS in node.meta:
        raise Refused(REASON)


def _is_slow(node: Node) -> bool:
    target: Any = node.target
    product = _PRODUCTS.get(target)
    one_by_one = target in _CONVOLUTIONS
    if product is None and not one_by_one and target not in _ATTENTION:
        return False
    operand = list(schema.bound(node).values())[product or 0].meta["val"]
    if operand.device.type not in compat.HOST_DEVICES:
        return False
    if product is None and operand.dtype == torch.float64:
        return True
    whole = not operand.dtype.is_floating_point and not operand.is_complex()
    return whole and (one_by_one or _has_many(node, operand))


def _has_many(node: Node, factor: Any) -> bool:
    """Multiply-adds of a product; sizes that vary may become large."""
    sizes = [*factor.shape, *node.meta["val"].shape[factor.dim() - 1 :]]
    if not all(type(size) is int for size in sizes):
        return True
    return torch.Size(sizes).numel() > _FEW
