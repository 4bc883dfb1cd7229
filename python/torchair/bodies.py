"""Graphs that operators hold: branches of cond, bodies of loops and scans,
regions that are compiled once (invoke_subgraph).

The operator stays a HOST node, since which graph runs how often is known when
its values are. What it calls are programs of the engine, made of the graphs;
where one refuses, torch runs that graph as it did. Dispatching such an
operator costs more than the calls, so it is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import several
from .compiled import Record
from .schema import with_effects

hops = torch.ops.higher_order
Call = Callable[..., Any]
Make = Callable[[GraphModule, Record, set[int]], Call]


def _cond(pred: Any, true: Call, false: Call, operands: Sequence[Any]) -> Any:
    return (true if pred else false)(*operands)


def _while_loop(
    cond: Call, body: Call, carried: Sequence[Any], more: Sequence[Any]
) -> Any:
    if not cond(*carried, *more):
        return tuple(
            x.clone() if isinstance(x, torch.Tensor) else x for x in carried
        )
    while True:
        carried = body(*carried, *more)
        if not cond(*carried, *more):
            return carried


def _scan(
    step: Call, init: Sequence[Any], xs: Sequence[Any], more: Sequence[Any]
) -> Any:
    carry, parts = tuple(init), []
    for row in zip(*(x.unbind() for x in xs), strict=True):
        results = step(*carry, *row, *more)
        carry = tuple(results[: len(init)])
        parts.append(results[len(init) :])
    stacked = (
        torch.stack(p) if isinstance(p[0], torch.Tensor) else None
        for p in zip(*parts, strict=True)
    )
    return *carry, *stacked


def _map(step: Call, xs: Sequence[Any], more: Sequence[Any]) -> Any:
    rows = zip(*(x.unbind() for x in xs), strict=True)
    parts = zip(*(step(*row, *more) for row in rows), strict=True)
    return tuple(
        torch.stack(p) if isinstance(p[0], torch.Tensor) else None
        for p in parts
    )


def _invoke(body: Call, _name: str, *operands: Any) -> Any:
    return body(*operands)


def _effect(_token: Any, op: Call, *args: Any, **named: Any) -> Any:
    """An operator whose effects are in an order, as HOST nodes are anyway."""
    found = op(*args, **named)
    return None, *(found if isinstance(found, tuple) else (found,))


# What calls the graphs, by operator, as torch's own kernels do.
_CALLS: dict[Any, Call] = {
    hops.cond: _cond,
    hops.while_loop: _while_loop,
    hops.scan: _scan,
    hops.map_impl: _map,
    hops.invoke_subgraph: _invoke,
}


def target_of(node: Node) -> Any:
    """What a HOST node calls for the node's operator."""
    if node.target is with_effects:
        return _effect
    if node.kwargs:
        return node.target
    return _CALLS.get(node.target, node.target)


def _held(gm: GraphModule) -> dict[str, GraphModule]:
    """The graphs that nodes of gm call, by name; of a graph of a GPU none,
    as that was never tried."""
    found: dict[str, GraphModule] = {}
    for node in gm.graph.nodes:
        if node.target not in _CALLS or node.kwargs:
            continue
        for held in node.all_input_nodes:
            name = str(held.target)
            if held.op == "get_attr" and "." not in name:
                found[name] = getattr(gm, name)
    if found and several.gpus(gm):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, GraphModule)}


def compile_held(
    gm: GraphModule, record: Record, make: Make, keep: Callable[[Record], None]
) -> None:
    """Has the graphs compiled that nodes of gm hold, each once, and puts the
    programs in their place. make: gives the call of a graph, which takes a
    list, for a record; keep: is given the records."""
    calls: dict[GraphModule, Call] = {}
    for name, held in _held(gm).items():
        if held not in calls:
            own = record.part_of(len(record.parts) + 1)
            own.name = f"{record.name}_{name}"
            record.parts.append(own)
            keep(own)
            compile_held(held, own, make, keep)
            single = _gives_one(held)
            calls[held] = _unboxed(make(held, own, set()), single)
        delattr(gm, name)
        setattr(gm, name, calls[held])


def _gives_one(held: GraphModule) -> bool:
    """Was its result a tensor? It is a tuple of it now."""
    (output,) = held.graph.find_nodes(op="output")
    if isinstance(output.args[0], (tuple, list)):
        return False
    output.args = ((output.args[0],),)
    held.recompile()
    return True


def _unboxed(call: Call, single: bool) -> Call:
    def run(*args: Any) -> Any:
        results = call(list(args))
        return results[0] if single else tuple(results)

    return run
