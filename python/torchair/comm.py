"""Collectives in the engine's graph: a START node and a WAIT node each.

AOTAutograd's graphs have functional collectives of torch.distributed: one
operator begins the exchange and gives a tensor, `wait_tensor` says when the
tensor is there. The engine runs what needs neither in between. Both nodes call
torch's own operators, so the process group, its backend and its errors are
torch's. START nodes of a graph keep their order: what all ranks trace in the
same order, they begin in the same order, whatever else differs in their
graphs. See docs/distributed.md.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch

from . import schema
from .hosts import Call
from .sizes import Args

CALL, START, WAIT = range(3)  # air_host_kind
NAMESPACE = "_c10d_functional"
_WAIT = "wait_tensor"
# These copy what they are given; the others may read it until they are done.
_COPIES = {"all_reduce", "all_reduce_coalesced", "broadcast"}

# What is on its way, by address: torch finds the work of a tensor by its
# storage, and the engine hands out another tensor over the same memory. A
# result lives as long as the run that it belongs to.
_in_flight: weakref.WeakValueDictionary[int, torch.Tensor] = (
    weakref.WeakValueDictionary()
)


def kind_of(node: torch.fx.Node) -> int | None:
    """What the engine's node is; None: the node is no collective. One whose
    result is read without waiting is a CALL, which waits itself."""
    target = node.target
    if getattr(target, "namespace", "") != NAMESPACE:
        return None
    if _name(target) == _WAIT:
        return WAIT
    return START if _readers_wait(node) else CALL


def _name(target: Any) -> str:
    return str(target._schema.name.partition("::")[2])


def _readers_wait(node: torch.fx.Node) -> bool:
    """Each result is waited for, and read by nothing else."""
    results = [node]
    if isinstance(node.meta.get("val"), (tuple, list)):
        results = list(node.users)
    return bool(results) and all(
        user.op == "call_function"
        and getattr(user.target, "namespace", "") == NAMESPACE
        and _name(user.target) == _WAIT
        for result in results
        for user in result.users
    )


def describe(node: torch.fx.Node) -> str:
    """ "sum, group 0 of 4": what dumps and reports say of it."""
    target: Any = node.target
    names = [a.name for a in target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    said = [str(given[k]) for k in ("reduce_op",) if k in given]
    said += [f"from {given[k]}" for k in ("src",) if k in given]
    said += [f"to {given[k]}" for k in ("dst",) if k in given]
    group = given.get("group_name")
    if group is not None:
        said.append(f"group {group} of {_size(group)}")
    return ", ".join(said)


def _size(group: Any) -> Any:
    try:
        found = _resolve(group)
    except (RuntimeError, TypeError):  # gone, or an object of its own
        return "?"
    return found.size()


def _resolve(name: Any) -> Any:
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d
    return c10d._resolve_process_group(name)


def target_of(node: torch.fx.Node) -> Any:
    """What a START node calls."""
    return _isend if _name(node.target) == "isend" else node.target


def _isend(tensor: Any, dst: int, tag: int, group_name: str) -> Any:
    """torch keeps the work of its own for two tensors, what it gives and what
    was sent; one of them can never be waited for."""
    result = tensor.new_empty(0)
    result.work = _resolve(group_name).send([tensor], dst, tag)
    return result


def starting(node: torch.fx.Node, call: Call, kind: int) -> Call:
    """The call of a START node, or of a CALL that waits for its results."""
    reads_on = _name(node.target) not in _COPIES
    gathers = _name(node.target).startswith("all_gather")

    def start(args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        if reads_on:
            tensors = tuple(t.clone() for t in tensors)
        if gathers:  # gloo refuses a gather of scalars
            tensors = tuple(t if t.dim() else t.view(1) for t in tensors)
        results = call(args, tensors)
        for result in results:
            if kind == START:
                _in_flight[result.data_ptr()] = result
            else:
                _wait(result)
        return results

    return start


def _wait(tensor: torch.Tensor) -> None:
    work = getattr(tensor, "work", None)
    if work is None:
        torch.ops._c10d_functional.wait_tensor(tensor)
    else:
        work.wait()


def waiting(argument: int | None) -> Call:
    """The call of a WAIT node. argument: its operand is that argument of the
    graph, begun by eager code."""

    def wait(args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        (tensor,) = tensors if argument is None else (args[argument],)
        _wait(_in_flight.pop(tensor.data_ptr(), tensor))
        return ()

    return wait


def wait_node(
    importing: Any, node: torch.fx.Node, value: torch.Tensor
) -> Sequence[int]:
    """The importer's WAIT node for `wait_tensor`."""
    (operand,) = node.all_input_nodes
    refs: Sequence[int] = importing.host(
        node,
        schema.target_name(node.target),
        f"for {operand}",
        waiting(importing.arg_of.get(operand)),
        [operand],
        [value],
        WAIT,
    )
    return refs
