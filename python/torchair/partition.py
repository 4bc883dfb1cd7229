"""How AOTAutograd's joint graph is cut into forward and backward, and what it
has to know of it before."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import operator
from collections.abc import Hashable, Iterator
from typing import Any

import torch

from . import images
from .inlined import call_like

aten = torch.ops.aten
_LOG_SOFTMAX = aten._log_softmax.default
_FUSED = (
    aten._log_softmax_backward_data.default,
    aten.nll_loss_forward.default,
    aten.nll_loss_backward.default,
)
_BEST = (aten.max.dim, aten.min.dim)
_TARGET = "torchair_target"
_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
# Result -> argument whose dtype it has where that is given.
_LIKE = {1: 1, 2: 1, 3: 3, 4: 4}

Pair = tuple[torch.fx.GraphModule, torch.fx.GraphModule]


def cut(
    joint: torch.fx.GraphModule,
    inputs: Any,
    captures: bool = False,
    **keywords: Any,
) -> Pair:
    """A partition_fn of aot_autograd: what is cheaper computed again by the
    region that needs it than kept is not kept.

    torch's minimum cut reckons with fusion much as the engine fuses. It keeps
    what products, attention, random numbers and long chains of sums give.
    captures: what is kept lies as eager's does (reduce-overhead).
    """
    from torch._functorch import config, partitioners

    describe_statistics(joint.graph)
    drop_detached(joint.graph)
    write_out(joint.graph)
    if config.cse:
        merge_equal(joint.graph)
    make: Any = partitioners.min_cut_rematerialization_partition
    if importlib.util.find_spec("networkx") is None:  # which it needs
        make = partitioners.default_partition
    # For its own merging torch imports Inductor's lowerings: half a second.
    with config.patch(cse=False), _as_computed(joint.graph):
        found: Pair = make(joint, inputs, **keywords)
    for part in found:
        _named_again(part)
    if not captures:
        images.keep_in_order(*found, keywords["num_fwd_outputs"])
    return found


@contextlib.contextmanager
def _as_computed(graph: torch.fx.Graph) -> Iterator[None]:
    """What reads a log_softmax fuses with it here. torch's cut takes it for an
    operator that reads memory, for which the whole result is kept. Places of
    extremes it takes for what fuses: here they are found in memory, and
    are not found again."""
    for target in _FUSED:
        for node in graph.find_nodes(op="call_function", target=target):
            node.meta[_TARGET], node.target = target, aten.mul.Tensor
    for target in _BEST:
        for node in graph.find_nodes(op="call_function", target=target):
            if any(user.args[1] == 1 for user in node.users):
                node.meta[_TARGET], node.target = target, aten.topk.default
    try:
        yield
    finally:
        _restore(graph)


def _restore(graph: torch.fx.Graph) -> None:
    for node in graph.nodes:
        node.target = node.meta.pop(_TARGET, node.target)


def _named_again(part: torch.fx.GraphModule) -> None:
    _restore(part.graph)
    part.recompile()


def drop_detached(graph: torch.fx.Graph) -> None:
    """What is behind autograd needs no detach; torch's cut takes it for an
    operator that reads memory."""
    for node in graph.find_nodes(
        op="call_function", target=aten.detach.default
    ):
        if not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def write_out(graph: torch.fx.Graph) -> None:
    """log_softmax as what it computes, if gradients read its result. So that
    may be computed again from the operand, of which often half as many bytes
    have to be kept (a large vocabulary in bfloat16)."""
    backward = aten._log_softmax_backward_data.default
    for node in graph.find_nodes(op="call_function", target=_LOG_SOFTMAX):
        if not any(user.target is backward for user in node.users):
            continue
        x, dim, _ = node.args
        with graph.inserting_before(node):
            found = _log_softmax(node, x, dim)
        node.replace_all_uses_with(found)
        graph.erase_node(node)


def _log_softmax(node: torch.fx.Node, x: Any, dim: Any) -> torch.fx.Node:
    """The engine computes it in this order, too, halves in float32."""

    call = functools.partial(call_like, node)
    given, wanted = x.meta["val"].dtype, node.meta["val"].dtype
    if given in (torch.float16, torch.bfloat16):
        x = call(aten._to_copy.default, x, dtype=torch.float32)
    elif given != wanted:
        x = call(aten._to_copy.default, x, dtype=wanted)
    x = call(aten.sub.Tensor, x, call(aten.amax.default, x, [dim], True))
    sums = call(aten.sum.dim_IntList, call(aten.exp.default, x), [dim], True)
    y = call(aten.sub.Tensor, x, call(aten.log.default, sums))
    if y.meta["val"].dtype != wanted:
        y = call(aten._to_copy.default, y, dtype=wanted)
    return y


def merge_equal(graph: torch.fx.Graph) -> None:
    """Of nodes that compute the same from the same the first is kept.

    Results of the graph stay apart, and so do views of them: who calls may
    write one, and not the other.
    """
    (output,) = graph.find_nodes(op="output")
    shown = {s for n in output.all_input_nodes for s in _storages(n)}
    first: dict[Hashable, torch.fx.Node] = {}
    writes = 0
    for node in list(graph.nodes):
        writes += _writes(node)
        if not _is_pure(node) or not shown.isdisjoint(_storages(node)):
            continue
        try:
            key = (node.target, _key(node.args), _key(node.kwargs), writes)
            kept = first.setdefault(key, node)
        except TypeError:  # an argument without a hash
            continue
        if kept is not node:
            node.replace_all_uses_with(kept)
            graph.erase_node(node)


def _writes(node: torch.fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return bool(target._schema.is_mutable)


def _is_pure(node: torch.fx.Node) -> bool:
    """Is a second node like this one known to give the same?"""
    if node.op != "call_function" or node.meta.get("unbacked_bindings"):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__module__", "") == "_operator"
    random = torch.Tag.nondeterministic_seeded in node.target.tags
    values = _tensors(node)
    dense = bool(values) and all(x.layout == torch.strided for x in values)
    return dense and not random and not _writes(node)


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [x for x in values if isinstance(x, torch.Tensor)]


def _storages(node: torch.fx.Node) -> set[int]:
    """Of what it gives; sparse tensors have none."""
    return {
        x.untyped_storage()._cdata
        for x in _tensors(node)
        if x.layout == torch.strided
    }


def _key(x: Any) -> Hashable:
    """Equal where arguments are the same: 1, 1.0 and True are not."""
    if isinstance(x, (list, tuple)):
        return (type(x), *map(_key, x))
    if isinstance(x, dict):
        return tuple((name, _key(value)) for name, value in x.items())
    return (type(x), str(x) if isinstance(x, float) else x)


def describe_statistics(graph: torch.fx.Graph) -> None:
    """The statistics of batch norms get the dtype that they have.

    torch 2.13 says that those of bfloat16 and float16 inputs are saved in the
    input's dtype and kept running in float32; its kernel gives them the
    dtypes of weight and of the running statistics. Saved for the backward as
    torch says, they would be rounded.
    """
    for node in graph.find_nodes(op="call_function", target=_NORM):
        values = list(node.meta["val"])
        for i, like in _LIKE.items():
            given = node.args[like]
            if isinstance(given, torch.fx.Node):
                values[i] = _of_dtype(values[i], given.meta["val"].dtype)
        node.meta["val"] = tuple(values)
        for user in node.users:
            if user.target is operator.getitem:
                user.meta["val"] = values[user.args[1]]


def _of_dtype(value: Any, dtype: torch.dtype) -> Any:
    if value.dtype == dtype:
        return value
    with value.fake_mode:
        return torch.empty_like(value, dtype=dtype)
