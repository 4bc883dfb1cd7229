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


def _wait_tensors(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Of a collective of several tensors, since torch 2.15."""
    return [torch.ops._c10d_functional.wait_tensor(t) for t in tensors]


DECOMPOSITIONS: dict[Any, Any] = {}
if hasattr(torch.ops._c10d_functional, "wait_tensors"):
    _several = torch.ops._c10d_functional.wait_tensors.default
    DECOMPOSITIONS[_several] = _wait_tensors


def kind_of(node: torch.fx.Node) -> int | None:
    """What the engine's node is; None: the node is no collective. One whose
    result is read without waiting is a CALL, which waits itself."""
    target = node.target
    if getattr(target, "namespace", "") != NAMESPACE:
        return None
    if name_of(target) == _WAIT:
        return WAIT
    return START if _readers_wait(node) else CALL


def name_of(target: Any) -> str:
    return str(target._schema.name.partition("::")[2])


def _readers_wait(node: torch.fx.Node) -> bool:
    """Each result is waited for, and read by nothing else."""
    results = [node]
    if isinstance(node.meta.get("val"), (tuple, list)):
        results = list(node.users)
    return bool(results) and all(
        user.op == "call_function"
        and getattr(user.target, "namespace", "") == NAMESPACE
        and name_of(user.target) == _WAIT
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
        found = resolve(group)
    except (RuntimeError, TypeError):  # gone, or an object of its own
        return "?"
    return found.size()


def resolve(name: Any) -> Any:
    """The process group of a name."""
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d
    return c10d._resolve_process_group(name)


def find_group(ranks: Sequence[int]) -> str | None:
    """The name of a group of this process with these ranks, in this order."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return None
    from torch.distributed import distributed_c10d

    world: Any = distributed_c10d._world
    for group, name in world.pg_names.items():
        if dist.get_process_group_ranks(group) == list(ranks):
            return str(name)
    return None


def target_of(node: torch.fx.Node) -> Any:
    """What a START node calls."""
    return isend if name_of(node.target) == "isend" else node.target


def isend(tensor: Any, dst: int, tag: int, group_name: str) -> Any:
    """torch keeps the work of its own for two tensors, what it gives and what
    was sent; one of them can never be waited for."""
    result = tensor.new_empty(0)
    result.work = resolve(group_name).send([tensor], dst, tag)
    return result


def starting(name: str, call: Call, kind: int) -> Call:
    """The call of a START node, or of a CALL that waits for its results.
    name: of the collective."""
    reads_on = name not in _COPIES
    gathers = name.startswith("all_gather")

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

    start.parts = ("start", (name, call, kind))  # type: ignore[attr-defined]
    return start


def _wait(tensor: torch.Tensor) -> None:
    work = getattr(tensor, "work", None)
    if work is None:
        torch.ops._c10d_functional.wait_tensor(tensor)
    else:
        work.wait()


def is_same_on_cpu(node: torch.fx.Node) -> bool:
    """torch's own operators are the same on the CPU, and process groups want
    CPU tensors; any other may look at the device of its arguments."""
    return schema.namespace_of(node.target) in ("aten", "prims", NAMESPACE)


def waiting(argument: int | None) -> Call:
    """The call of a WAIT node. argument: its operand is that argument of the
    graph, begun by eager code."""

    def wait(args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        (tensor,) = tensors if argument is None else (args[argument],)
        _wait(_in_flight.pop(tensor.data_ptr(), tensor))
        return ()

    wait.parts = ("wait", (argument,))  # type: ignore[attr-defined]
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
