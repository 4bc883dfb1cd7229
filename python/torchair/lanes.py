"""Streams and events of a graph: passes of passes.py.

A lane is the work of one stream. Scope nodes say which nodes belong to it,
event nodes what it waits for:

    pair_streams   a stream that is set becomes a scope
    check_scopes   every scope that is entered is left
    join_lanes     a side lane starts after the graph's start, and the graph
                   ends after the lane, where the function does not say so
    order          node.meta["lane"] and node.meta["after"]; the nodes go away

Data that crosses lanes is a dependency anyway, so nothing here can change a
result; `after` holds what the user ordered beyond that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from . import compat, ops, syncs
from .logs import logger
from .operators import remembered
from .scope import (
    AICORE,
    DATA_DUMP,
    NEVER_TIMEOUT,
    SET_STREAM,
    STREAM_LABEL,
    SUPER_KERNEL,
    SUPER_KERNEL_OPTIONS,
    VECTORCORE,
)

MAIN = "default"
_START = "air_graph_start"
_SUPER = "super_kernel_scope_"


@remembered
def _marker(target: Any) -> str:
    """ "scope_enter": the name where it is an operator of ours."""
    if isinstance(target, torch._ops.OpOverload):
        name = target._schema.name
        namespace, _, short = name.partition("::")
        if namespace in ops.NAMESPACES and short in ops.NAMES:
            return short
        if namespace == "npu" and short.startswith(_SUPER):
            return short
        if namespace == "streams":
            return name
    return ""


def _op(node: Node) -> str:
    return _marker(node.target)


@remembered
def _concerns(target: Any) -> bool:
    return bool(_marker(target)) or syncs.is_wrapped(target)


def has_lanes(graph: Graph) -> bool:
    """Is there anything for the passes here, and for that of syncs.py?"""
    return any(
        _concerns(n.target) or _annotated(n) is not None for n in graph.nodes
    )


def _annotated(node: Node) -> str | None:
    """The stream of `with torch.Stream(...)`, which Dynamo annotates."""
    custom = node.meta.get("custom")
    index = custom.get("stream") if isinstance(custom, dict) else None
    return None if index is None else _indexed(index)


# ---- pair_streams ----


def entry_stream() -> str:
    """The stream that is current where the graph is compiled, as a lane is
    called: it is the main one."""
    streams: Any = sys.modules.get("torchair.npu.streams")
    if streams is None:
        return MAIN
    now = streams.current_stream()
    return f"npu_{now.device_index}_{now.stream_id}"


def pair_streams(graph: Graph) -> bool:
    """Setting a stream enters a scope; setting one that is open already, or
    that of the beginning, leaves those opened since. True: there were some.

    RuntimeError where one is open in the end.
    """
    found = [
        n
        for n in graph.nodes
        if _op(n) == "scope_enter" and SET_STREAM in _attributes(n)
    ]
    opened = [entry_stream()]
    for node in found:
        _pair(graph, node, opened)
        graph.erase_node(node)
    if len(opened) > 1:
        raise RuntimeError(
            f"stream {opened[-1]} is still set where the function ends: "
            "restore the stream, or use the `with` form"
        )
    return bool(found)


def _pair(graph: Graph, node: Node, opened: list[str]) -> None:
    stream = _attributes(node)[SET_STREAM]
    with graph.inserting_before(node):
        if stream not in opened:
            _call(graph, "scope_enter", [STREAM_LABEL], [stream])
            opened.append(stream)
        while opened[-1] != stream:
            _call(graph, "scope_exit")
            opened.pop()


# ---- check_scopes ----


def check_scopes(graph: Graph) -> None:
    """RuntimeError where scopes are not paired."""
    open_scopes: list[Node] = []
    kernels: list[str] = []
    for node in graph.nodes:
        op = _op(node)
        if op == "scope_enter":
            open_scopes.append(node)
        elif op == "scope_exit":
            if not open_scopes:
                raise RuntimeError(
                    f"{node} leaves a scope that no scope_enter began; insert "
                    "both, or use the context manager"
                )
            open_scopes.pop()
        elif op == _SUPER + "begin":
            kernels.append(_scope_name(node))
        elif op == _SUPER + "end":
            _leave_kernel(kernels, node)
    if open_scopes:
        raise RuntimeError(
            f"{open_scopes[-1]} enters a scope that no scope_exit leaves: "
            "restore the stream before the function returns, or use the "
            "`with` form"
        )
    if kernels:
        raise RuntimeError(
            f"super kernel scope {kernels[-1]!r} begins and does not end"
        )


def _scope_name(node: Node) -> str:
    return str(node.args[0] if node.args else node.kwargs.get("scope_name"))


def _leave_kernel(kernels: list[str], node: Node) -> None:
    name = _scope_name(node)
    if name not in kernels:
        raise RuntimeError(
            f"super kernel scope {name!r} ends and did not begin"
        )
    kernels.remove(name)


# ---- lanes ----


def _attributes(node: Node) -> dict[str, str]:
    keys: Any = node.args[0]
    values: Any = node.args[1]
    return dict(zip(keys, values, strict=True))


def walk(graph: Graph) -> Iterator[tuple[Node, str, dict[str, str]]]:
    """(node, its lane, attributes of the scopes around it), in order."""
    stack: list[dict[str, str]] = [{}]
    for node in list(graph.nodes):
        op = _op(node)
        if op == "scope_enter":
            stack.append(stack[-1] | _attributes(node))
        inside = stack[-1]
        yield node, inside.get(STREAM_LABEL, _annotated(node) or MAIN), inside
        if op == "scope_exit" and len(stack) > 1:
            stack.pop()


def lane_of(node: Node) -> str:
    lane: str = node.meta.get("lane", MAIN)
    return lane


def assign(graph: Graph) -> None:
    """node.meta["lane"], "scope" with all attributes, "cores" where they are
    limited, and "torchair_scope_data_dump"."""
    for node, lane, inside in walk(graph):
        node.meta["lane"] = lane
        inside = _shown(inside)
        if inside:
            node.meta["scope"] = inside
        if AICORE in inside:
            node.meta["cores"] = (inside[AICORE], inside[VECTORCORE])
        elif lane != MAIN and (cores := _stream_cores(lane)):
            node.meta["cores"] = cores
        if DATA_DUMP in inside:
            node.meta["torchair_scope_data_dump"] = True
        if NEVER_TIMEOUT in inside and node.op == "call_function":
            logger.debug(
                "Set attribute %s: %s on op: %s",
                NEVER_TIMEOUT,
                inside[NEVER_TIMEOUT],
                node.name,
            )


def _stream_cores(lane: str) -> tuple[str, str] | None:
    """The limit of a stream of torch.npu whose lane it is, where it has one."""
    limits: Any = sys.modules.get("torchair.npu.limits")
    kind, _, rest = lane.partition("_")
    device, _, number = rest.partition("_")
    if limits is None or kind != "npu" or not number.isdigit():
        return None
    found = limits.limit_of(int(device), int(number))
    return None if found is None else (str(found[0]), str(found[1]))


def _shown(inside: dict[str, str]) -> dict[str, str]:
    """Without what belongs to a super kernel that has no name."""
    hidden = {"", SUPER_KERNEL, SUPER_KERNEL_OPTIONS}
    if inside.get(SUPER_KERNEL):
        hidden = {""}
    return {k: v for k, v in inside.items() if k not in hidden}


# ---- join_lanes ----


def _call(graph: Graph, op: str, *args: Any) -> Node:
    return graph.call_function(getattr(torch.ops.air, op).default, args)


def _in_lane(graph: Graph, lane: str, op: str, tag: str) -> None:
    _call(graph, "scope_enter", [STREAM_LABEL], [lane])
    _call(graph, op, tag)
    _call(graph, "scope_exit")


def join_lanes(graph: Graph) -> None:
    """A capture holds a side stream only if that waits for the capturing one,
    and is waited for in the end."""
    lanes = {lane: None for _, lane, _ in walk(graph)}
    lanes.pop(MAIN, None)
    nodes = list(graph.nodes)
    first = next((n for n in nodes if n.op == "call_function"), None)
    if not lanes or first is None:
        return
    with graph.inserting_before(first):
        _call(graph, "tagged_event_record", _START)
        for lane in lanes:
            _in_lane(graph, lane, "tagged_event_wait", _START)
    with graph.inserting_before(nodes[-1]):
        for lane in lanes:
            tag = f"air_graph_end_{lane}"
            _in_lane(graph, lane, "tagged_event_record", tag)
            _call(graph, "tagged_event_wait", tag)


# ---- order ----


class _Order:
    """What each lane has issued and waits for."""

    def __init__(self) -> None:
        self.last: dict[str, Node] = {}  # by lane
        self.events: dict[str, Node | None] = {}
        self.records: dict[Node, Node | None] = {}
        self.pending: dict[str, list[Node]] = {}
        self.readers: dict[Node, list[Node]] = {}  # of a value: what they await

    def wait(self, lane: str, what: Node | None) -> None:
        if what is not None:
            self.pending.setdefault(lane, []).append(what)

    def marker(self, op: str, node: Node, lane: str) -> None:
        args: Any = node.args
        if op in ("tagged_event_record", "tagged_event_record_on_stream"):
            at = lane if op == "tagged_event_record" else _stream(args[1:])
            self.events[args[0]] = self.last.get(at)
        elif op in ("tagged_event_wait", "tagged_event_wait_on_stream"):
            at = lane if op == "tagged_event_wait" else _stream(args[1:])
            self.wait(at, self.events.get(args[0]))
        elif op == "tagged_stream_wait_stream":
            self.wait(_stream(args), self.last.get(_stream(args[3:])))
        elif op == "record":
            self.records[node] = self.last.get(lane)
        elif op == "wait":
            for tensor in args[0]:
                self.wait(lane, self.records.get(tensor, tensor))
        elif op == "wait_tensor":
            self.readers.setdefault(args[0], []).append(args[1])
        elif op == "streams::record_event":
            self.events[f"event_{args[0]}"] = self.last.get(_indexed(args[1]))
        elif op == "streams::wait_event":
            self.wait(_indexed(args[1]), self.events.get(f"event_{args[0]}"))
        elif op == "streams::wait_stream":
            self.wait(_indexed(args[0]), self.last.get(_indexed(args[1])))

    def issue(self, node: Node, lane: str) -> None:
        waits = self.pending.pop(lane, [])
        for read in node.all_input_nodes:
            waits = waits + self.readers.get(read, [])
        beyond = [w for w in waits if w not in node.all_input_nodes]
        if beyond:
            node.meta["after"] = list(dict.fromkeys(beyond))
        self.last[lane] = node


def _stream(args: Any) -> str:
    stream_id, index, kind = args[:3]
    name = f"{kind}_{index}_{stream_id}"
    return MAIN if name == entry_stream() else name


def _indexed(index: Any) -> str:
    """Dynamo gives number 0 to the current stream, where there is one."""
    if index == 0 and torch.accelerator.is_available():
        return MAIN
    return MAIN if compat.is_main_stream(index) else f"stream_{index}"


def refuse_waits(graph: Graph, captures: bool) -> None:
    """NotImplementedError for npu_wait_tensor where calls are captured."""
    found = [n for n in graph.nodes if _op(n) == "wait_tensor"]
    if captures and found:
        raise NotImplementedError(
            f"{found[0]}: npu_wait_tensor is for mode max-autotune; where "
            "calls are captured, order streams with torchair.ops.record and "
            "wait"
        )


def order(graph: Graph) -> None:
    """Dependencies instead of scope and event nodes, which go away; a result
    of `record` that something else uses stays."""
    found, gone = _Order(), []
    assign(graph)
    for node in graph.nodes:
        op = _op(node)
        if op:
            found.marker(op, node, lane_of(node))
            gone.append(node)
        elif node.op == "call_function":
            found.issue(node, lane_of(node))
    for node in reversed(gone):
        if not node.users:
            graph.erase_node(node)
