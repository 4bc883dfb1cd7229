"""Graphs of several GPUs, or of one and the CPU: parts of one GPU each, which
are programs of their own.

A node belongs to the GPU that its tensors are on; what reads one GPU and gives
a tensor of another, a copy, is torch's, as is what computes on the CPU. Nodes
of one GPU are one part, unless what is between them needs another part first:
a part has a level, one more than those that it needs. Parts run one after the
other on the host; on the GPUs they run beside each other, as torch's streams
allow.

Draws of a GPU keep their order. What writes an input comes last, unless only
its own part reads that input.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from . import compat, cuda, eager, schema
from .compiled import Record

Call = Callable[..., Any]
TORCH = ""  # in place of a GPU: torch's own


@dataclass
class Part:
    """Some nodes of a graph. where: their GPU as text, or TORCH."""

    where: str
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # by name in the graph
    results: list[str] = field(default_factory=list)
    gm: GraphModule | None = None
    static: set[int] = field(default_factory=set)  # inputs: parameters
    call: Call | None = None


# ---- which part ----


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    for v in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(v, torch.Tensor):
            yield v


def of_value(value: Any) -> set[str]:
    """The GPUs that a value's tensors are on."""
    return {str(v.device) for v in _tensors(value) if v.device.type == "cuda"}


def _of_node(node: Node) -> set[str]:
    return of_value(node.meta.get("val"))


def gpus(gm: GraphModule) -> set[str]:
    found: set[str] = set()
    return found.union(*map(_of_node, gm.graph.nodes))


def _floats(node: Node, loose: set[Node]) -> bool:
    """As good on a GPU: numbers, and what is on its way there."""
    around = (node, *node.all_input_nodes)
    tensors = [t for n in around for t in _tensors(n.meta.get("val"))]
    return node in loose or all(t.dim() == 0 for t in tensors)


def _place(node: Node, known: dict[Node, str], loose: set[Node]) -> str | None:
    """None: where its users are."""
    if node.target is operator.getitem:
        return known[node.all_input_nodes[0]]
    results = list(_tensors(node.meta.get("val")))
    made = _of_node(node)
    found = made.union(*map(_of_node, node.all_input_nodes))
    if not found and _floats(node, loose):
        return None
    on_one = len(found) == 1 and (not results or made == found)
    return found.pop() if on_one else TORCH


def _places(nodes: Sequence[Node], loose: set[Node]) -> dict[Node, str]:
    """loose: tensors of the CPU that are `cuda.movable`."""
    found: dict[Node, str] = {}
    left = []
    for node in nodes:
        place = _place(node, found, loose)
        found[node] = place or TORCH
        if place is None:
            left.append(node)
    for node in reversed(left):
        users = [found[u] for u in node.users if u in found]
        found[node] = next(filter(None, users), TORCH)
    return found


# ---- in which order ----


def _is_plain(node: Node) -> bool:
    """Has no other effects than writes and draws, whose order is known."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return not isinstance(target, torch._ops.OperatorBase)
    return target.namespace in ("aten", "prims")


def _written(node: Node) -> list[Node]:
    """What the node writes, and what that is a view of."""
    given = schema.bound(node)
    return [
        schema.base_of(given[a.name])
        for a in node.target._schema.arguments  # type: ignore[union-attr]
        if a.alias_info is not None
        and a.alias_info.is_write
        and isinstance(given[a.name], Node)
    ]


def _levels(
    nodes: Sequence[Node], places: dict[Node, str], late: set[Node]
) -> dict[Node, int]:
    """By node; of those in `late`: behind all others."""
    levels: dict[Node, int] = {}
    drew: dict[str, Node] = {}  # by place: the last that did
    top = 0
    for node in nodes:
        place = places[node]
        before = [n for n in node.all_input_nodes if n in levels]
        if schema.is_random(node.target):
            before += [drew[place]] if place in drew else []
            drew[place] = node
        if node.target is operator.getitem:
            levels[node] = levels[before[0]]
            continue
        levels[node] = max(
            (levels[n] + (places[n] != place) for n in before), default=0
        )
        if node in late:
            levels[node] = max(levels[node], top + 1)
        else:
            top = max(top, levels[node])
    return levels


def _sink(places: dict[Node, str], levels: dict[Node, int]) -> None:
    """What later parts of its GPU alone read, the turned weight of a product,
    is of the first of them."""
    for node in reversed(levels):
        users = [u for u in node.users if u.op != "output"]
        alone = users and all(places[u] == places[node] for u in users)
        several = isinstance(node.meta.get("val"), (tuple, list))
        if not alone or several or node.target is operator.getitem:
            continue
        if not schema.is_random(node.target) and not schema.mutates(node):
            levels[node] = min(levels[u] for u in users)


def _late(
    writes: Sequence[Node], places: dict[Node, str], levels: dict[Node, int]
) -> set[Node]:
    """Writes of what another part, or a view, may read."""
    found = set()
    for node in writes:
        for base in _written(node):
            for user in base.users:
                near = user in levels and (places[user], levels[user]) == (
                    places[node],
                    levels[node],
                )
                if not near or schema.viewed(user) is not None:
                    found.add(node)
    return found


def parts(gm: GraphModule) -> list[Part]:
    """In the order in which they run; none where the graph has to stay in one
    piece."""
    ends = ("placeholder", "get_attr", "output")
    nodes = [n for n in gm.graph.nodes if n.op not in ends]
    if not all(n.op == "call_function" and _is_plain(n) for n in nodes):
        return []
    places = _places(nodes, cuda.movable(gm.graph, cuda.PLACE))
    writes = [n for n in nodes if schema.mutates(n)]
    if any(u.op != "output" for n in writes for u in n.users):
        return []
    levels = _levels(nodes, places, set())
    _sink(places, levels)
    late = _late(writes, places, levels)
    levels = _levels(nodes, places, late)
    _sink(places, levels)
    found: dict[tuple[int, str], Part] = {}
    for node in nodes:
        key = levels[node], places[node]
        found.setdefault(key, Part(places[node])).nodes.append(node)
    return [found[key] for key in sorted(found)]


# ---- their graphs ----


def _cut(gm: GraphModule, part: Part, static: set[str]) -> None:
    """The part's graph; static: names of parameters."""
    inside = set(part.nodes)
    graph, made = Graph(), {}
    sizes = [
        n
        for n in gm.graph.nodes
        if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt)
    ]
    read = [i for n in part.nodes for i in n.all_input_nodes if i not in inside]
    for node in dict.fromkeys([*sizes, *read]):
        if node.op == "get_attr":
            continue
        made[node] = graph.placeholder(node.name)
        made[node].meta = dict(node.meta)
        if node.name in static:
            part.static.add(len(part.inputs))
        part.inputs.append(node.name)
    for node in dict.fromkeys(read):
        if node.op == "get_attr":
            made[node] = graph.node_copy(node)
    for node in part.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    left = [n for n in part.nodes if any(u not in inside for u in n.users)]
    part.results = [n.name for n in left]
    graph.output(tuple(made[n] for n in left))
    part.gm = GraphModule(gm, graph)


def cut(gm: GraphModule, static: set[int]) -> list[Part]:
    """The parts of a graph with tensors on several GPUs, or on one and the CPU;
    none: it stays as it is. static: which arguments are parameters."""
    on = gpus(gm)
    if not on or (len(on) == 1 and not cuda.needs_host(gm.graph)):
        return []
    found = parts(gm)
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    for part in found:
        _cut(gm, part, {names[i] for i in static})
    return found


# ---- running ----


def joined(gm: GraphModule, found: Sequence[Part]) -> Call:
    """The whole graph; each part has its call."""
    names = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    (output,) = gm.graph.find_nodes(op="output")
    constants = {
        n.name: operator.attrgetter(str(n.target))(gm)
        for n in gm.graph.find_nodes(op="get_attr")
    }
    wanted = output.args[0]
    kept = {n.name for n in output.all_input_nodes}
    last = {name: i for i, part in enumerate(found) for name in part.inputs}
    over = [
        [n for n in part.inputs if last[n] == i and n not in kept]
        for i, part in enumerate(found)
    ]

    def run(*args: Any) -> Any:
        values = constants | dict(zip(names, args, strict=True))
        del args
        for part, done in zip(found, over, strict=True):
            assert part.call is not None
            given = [values[name] for name in part.inputs]
            for name in done:
                del values[name]
            results = part.call(given)
            values.update(zip(part.results, results, strict=True))
            del results
        return torch.fx.node.map_arg(wanted, lambda n: values[n.name])

    return eager.boxed(run)


class How(NamedTuple):
    """make: a call of a graph of one GPU, with its record and what of its
    arguments are parameters; keep: is given records of parts; savers: of
    files, which cannot have several."""

    make: Callable[[GraphModule, Record, set[int]], Call]
    keep: Callable[[Record], None]
    savers: Sequence[Any]


def made(gm: GraphModule, static: set[int], record: Record, how: How) -> Call:
    """The call of a graph; where it is of several devices, of its parts. The
    first one's record is the graph's."""
    found = cut(gm, static)
    if not found:
        return how.make(gm, record, static)
    record.wrapper = "the graph is of several devices"
    for saver in how.savers:
        saver.reason = record.wrapper
    theirs = iter([record])
    for part in found:
        assert part.gm is not None
        if part.where == TORCH:
            part.call = compat.untraced(eager.boxed(part.gm))
            continue
        own = next(theirs, None)
        if own is None:
            own = record.part_of(len(record.parts) + 1)
            record.parts.append(own)
            how.keep(own)
        part.call = how.make(part.gm, own, part.static)
    return joined(gm, found)
