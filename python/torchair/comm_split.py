"""cc_parallel: an all-reduce of a product in pieces.

Rows of a product do not depend on each other, and an all-reduce works element
by element. So the product is computed in two halves, and while the first is on
its way to the other processes the second is computed:

    start(x[:n/2] w)   start(x[n/2:] w)   wait, wait, cat

Every process cuts at the same row, which only sizes of the graph decide.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from . import comm

aten = torch.ops.aten
_LEAST = 16  # rows that are worth two products
_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
}
_REDUCE = "all_reduce"


def split(gm: GraphModule) -> int:
    """Cuts what can be cut; how many all-reduces that were."""
    return sum(_split(gm.graph, node) for node in list(gm.graph.nodes))


def _split(graph: Graph, node: Node) -> bool:
    wait = _wait_of(node)
    if wait is not None:
        _forget_copies(graph, node.args[0], wait)
    chain = _chain(node) if wait is not None else None
    if wait is None or chain is None:
        return False
    product, views = chain
    rows = product.meta["val"].shape[0]
    half = (rows + 1) // 2
    begun = []
    with graph.inserting_before(node):
        for start, end in ((0, half), (half, rows)):
            piece = graph.call_function(
                product.target,  # type: ignore[arg-type]
                _arguments(graph, product, start, end),
            )
            begun.append(
                graph.call_function(
                    node.target,  # type: ignore[arg-type]
                    (piece, *node.args[1:]),
                    dict(node.kwargs),
                )
            )
    with graph.inserting_before(wait):
        done = [
            graph.call_function(
                wait.target,  # type: ignore[arg-type]
                (b,),
            )
            for b in begun
        ]
        whole = graph.call_function(aten.cat.default, (done, 0))
        for view in views:
            size: Any = view.args[1]
            whole = graph.call_function(aten.reshape.default, (whole, size))
    wait.replace_all_uses_with(whole)
    for old in (wait, node, *reversed(views), product):
        graph.erase_node(old)
    return True


def _wait_of(node: Node) -> Node | None:
    """The one reader of an all-reduce."""
    target: Any = node.target
    if getattr(target, "namespace", "") != comm.NAMESPACE:
        return None
    if comm.name_of(target) != _REDUCE or comm.kind_of(node) != comm.START:
        return None
    return next(iter(node.users)) if len(node.users) == 1 else None


def _forget_copies(graph: Graph, given: Any, wait: Node) -> None:
    """`all_reduce(y)` of torch.distributed writes y: the graph copies the sum
    into what was given, of which nothing is left."""
    want = wait.meta["val"]
    for copy in list(given.users):
        if copy.target is not aten.copy.default or copy.args != (given, wait):
            continue
        got = copy.meta["val"]
        if (got.dtype, got.shape, got.stride()) == (
            want.dtype,
            want.shape,
            want.stride(),
        ):
            copy.replace_all_uses_with(wait)
            graph.erase_node(copy)


def _chain(node: Node) -> tuple[Node, list[Node]] | None:
    """The product that is reduced, and the views of it in between."""
    views: list[Node] = []
    at: Any = node.args[0]
    while isinstance(at, Node) and len(at.users) == 1 and at.target in _VIEWS:
        views.insert(0, at)
        at = at.args[0]
    if not isinstance(at, Node) or len(at.users) != 1 or not _is_product(at):
        return None
    return at, views


def _is_product(node: Node) -> bool:
    if node.target is aten.addmm.default:
        bias: Any = node.args[0]
        if node.kwargs or bias.meta["val"].dim() != 1:
            return False
    elif node.target is not aten.mm.default:
        return False
    rows = node.meta["val"].shape[0]
    return type(rows) is int and rows >= _LEAST


def _arguments(
    graph: Graph, product: Node, start: int, end: int
) -> tuple[Any, ...]:
    *bias, left, right = product.args
    part = graph.call_function(aten.slice.Tensor, (left, 0, start, end))
    return (*bias, part, right)
