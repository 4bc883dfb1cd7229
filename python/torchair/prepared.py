"""Graphs as the importer takes them: indices of triangles and windows of
signals, which depend on sizes alone, become constants of the graph; vectors of
decompositions that nobody looks at are not made; gradients of bags get the bag
of each index where it was not made."""

from __future__ import annotations

from typing import Any

import torch

from . import compat, schema

aten = torch.ops.aten
_WINDOWS = ("bartlett", "blackman", "hamming", "hann", "kaiser")
_KNOWN = (
    aten.tril_indices.default,
    aten.triu_indices.default,
    *(
        getattr(getattr(aten, f"{name}_window"), overload)
        for name in _WINDOWS
        for overload in ("default", "periodic")
    ),
)
_MOST = 1 << 20  # bytes of one
# Results that are vectors, and the argument before the one that asks for them,
# where it is missing. Values alone, as of svdvals, are traced with vectors: as
# if they had gradients.
_VECTORS: dict[Any, tuple[set[int], Any]] = {
    aten._linalg_svd.default: ({0, 2}, False),
    aten._linalg_eigh.default: ({1}, "L"),
}


def prepare(gm: torch.fx.GraphModule) -> None:
    op = aten._embedding_bag_backward.default
    for node in _nodes(gm, op):
        _write_bags(gm.graph, node)
    shown = _shown(gm)
    for op in _KNOWN:
        for node in _nodes(gm, op):
            if _is_known(node):
                _replace(gm, node, node in shown)
    for op, (vectors, how) in _VECTORS.items():
        for node in _nodes(gm, op):
            if not vectors & schema.used_items(node):
                given: Any = (*node.args, how)[:2]
                node.args = (*given, False)


def _shown(gm: torch.fx.GraphModule) -> set[Any]:
    """What results are, or are views of: callers may write them."""
    (output,) = gm.graph.find_nodes(op="output")
    return {schema.base_of(result) for result in output.all_input_nodes}


def _is_known(node: torch.fx.Node) -> bool:
    value = node.meta["val"]
    return (
        all(isinstance(n, (int, float)) for n in node.args)
        and value.nbytes <= _MOST
        and value.device.type == "cpu"
    )


def _nodes(gm: torch.fx.GraphModule, op: Any) -> Any:
    return gm.graph.find_nodes(op="call_function", target=op)


def _replace(
    gm: torch.fx.GraphModule, node: torch.fx.Node, copied: bool
) -> None:
    name = f"_{node.name}"
    with compat.real_tensors():
        found = node.target(*node.args, **node.kwargs)  # type: ignore[operator]
    gm.register_buffer(name, found, persistent=False)
    with gm.graph.inserting_before(node):
        made = gm.graph.get_attr(name)
        made.meta.update(node.meta)
        if copied:
            made = gm.graph.call_function(aten.clone.default, (made,))
            made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    gm.graph.erase_node(node)


def _write_bags(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """(grad, indices, offsets, offset2bag, ..., mode, sparse, ...)"""
    args: list[Any] = list(node.args)
    index, offsets, bags = args[1:4]
    on_cpu = index.meta["val"].device.type == "cpu"
    if node.kwargs or args[9] or not on_cpu:
        return  # sparse gradients; a GPU has them
    with graph.inserting_before(node):
        if bags.meta["val"].numel() == 0:
            bags = _bags_of(graph, index, offsets)
        given = (*args[:2], bags, *args[4:9], *args[10:])
        op = aten._embedding_bag_dense_backward.default
        made = graph.call_function(op, given)
    made.meta.update(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _bags_of(graph: torch.fx.Graph, index: Any, offsets: Any) -> torch.fx.Node:
    """The last bag that begins at each index or before it."""
    x, call = index.meta["val"], graph.call_function
    dtype = offsets.meta["val"].dtype  # a search is for numbers of one
    places = call(aten.arange.default, (x.shape[0],), {"dtype": dtype})
    how = {"right": True, "out_int32": dtype == torch.int32}
    begun = call(aten.searchsorted.Tensor, (offsets, places), how)
    last = call(aten.sub.Tensor, (begun, 1))
    for made in (places, begun, last):
        made.meta["val"] = x.new_empty(x.shape, dtype=dtype)
    return last
