"""Outputs that are views. Where sizes vary AOTAutograd makes them again, on
the input or the value they belong to, and asks what the graph gave where in
the memory of that it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from .direct import is_subclass
from .schema import VALUE, base_of, viewed

_COPY = torch.ops.aten.copy_.default
_BY_STRIDES = torch.ops.aten.as_strided.default


def share_memory(outputs: Sequence[Any], outs: list[tuple[Any, ...]]) -> None:
    """Views of one value get the memory of the output that is it, or of the
    first. outs: what the program is told of the outputs."""
    views: dict[Any, list[int]] = {}
    for i, x in enumerate(outputs):
        if outs[i][0] == "result":
            views.setdefault(base_of(x), []).append(i)
    for base, at in views.items():
        like = next((i for i in at if outputs[i] is base), at[0])
        for i in at:
            if i != like:
                outs[i] = (*outs[i], like)


def result_of(at: Any, x: Node) -> int:
    """The graph's result for an output. What shows an input as another dtype
    is a copy: views of the input's tensor have its dtype."""
    ref: int = at.ref(x)
    base, value = base_of(x), x.meta["val"]
    if base.op == "call_function" or value.dtype == base.meta["val"].dtype:
        return ref
    return int(at.add(x, "clone", [VALUE, ref], value))


def take_views_of_inputs(graph: torch.fx.Graph, meta: Any) -> None:
    """AOTAutograd takes a view of an input that is written from its new value,
    before that is copied into the input; here it is taken from the input after
    the copy. meta: AOTAutograd's ViewAndMutationMeta of the graph, or None."""
    output = graph.find_nodes(op="output")[0]
    results = output.args[0]
    if meta is None or not isinstance(results, (tuple, list)):
        return
    copies: dict[Any, Node] = {
        copy.args[1]: copy
        for copy in graph.find_nodes(op="call_function", target=_COPY)
        if copy.args[0].op == "placeholder"
    }
    taken = list(results)
    with graph.inserting_before(output):
        for i in _places(meta) if copies else ():
            taken[i] = _again(taken[i], copies) or taken[i]
    output.args = (type(results)(taken),)


def _places(meta: Any) -> list[int]:
    """Which outputs of the graph are views of inputs."""
    if any(map(is_subclass, meta.subclass_fw_graph_out_meta)):
        return []  # which are several outputs
    before = len(meta.tokens) + meta.num_mutated_inp_runtime_indices
    return [
        before + i
        for i, info in enumerate(meta.output_info)
        if info.output_type.name == "alias_of_input"
    ]


def _again(x: Any, copies: dict[Any, Node]) -> Node | None:
    """The same view of the input that x's value is copied into; None where x
    is no such view."""
    steps: list[Node] = []
    value = x
    while value not in copies:
        source = viewed(value) if isinstance(value, Node) else None
        if source is None:
            return None
        listed = value.args[0] is not source
        steps += [value, value.args[0]] if listed else [value]
        value = source
    if not steps or not _fits(steps, copies[value]):
        return None
    made = {value: copies[value]}
    for step in reversed(steps):
        made[step] = _copied(step, made)
    return made[x]


def _fits(steps: list[Node], copy: Node) -> bool:
    into, value = (_value(node) for node in copy.args[:2])
    strides = any(step.target is _BY_STRIDES for step in steps)
    return not strides or str(into.stride()) == str(value.stride())


def _copied(step: Node, made: dict[Node, Node]) -> Node:
    new = step.graph.node_copy(step, lambda n: made.get(n, n))
    args, kwargs = map_arg((new.args, dict(new.kwargs)), _value)
    first: Any = new.all_input_nodes[0]
    first = _value(first)
    mode = (first[0] if isinstance(first, (tuple, list)) else first).fake_mode
    with mode:
        new.meta["val"] = new.target(*args, **kwargs)  # type: ignore[operator]
    return new


def _value(node: Any) -> Any:
    """What a copy_ gives is what it is copied into."""
    return (node.args[0] if node.target is _COPY else node).meta["val"]
