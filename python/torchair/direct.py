"""Which inference graphs are called without AOTAutograd's runtime wrapper.

At every call the wrapper counts a write of each input that the graph writes,
gives inputs and views of them where the graph's outputs are that, and tells
Dynamo the dynamic sizes of outputs. `_native.Direct` does just this, with the
same functions of torch, before and after the program. `plan` says what there
is to do for a graph, or why its calls keep the wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import compat

Out = tuple[int, Any, bool, Any]  # as `_native.Direct` takes it
_AS_IS = ("non_alias", "unsafe_view_alias", "custom_function_view")


@dataclass(frozen=True)
class Plan:
    """What a call of the program lacks."""

    wrote: tuple[int, ...] = ()  # inputs whose version counters advance
    outs: tuple[Out, ...] | None = None  # None: all as the program gives them
    held: list[Any] = field(default_factory=list)  # arguments before Dynamo's


class Kept(Exception):
    """Why the calls of a graph keep the wrapper."""


def is_subclass(meta: Any) -> bool:
    return type(meta).__name__ == "SubclassCreationMeta"


REASONS: Sequence[tuple[Callable[[Any], Any], str]] = (
    (
        lambda meta: meta.num_mutated_inp_runtime_indices,
        "an input gets another shape or other memory, or is written by torch",
    ),
    (
        lambda meta: meta.num_intermediate_bases,
        "an output is a view of another one",
    ),
    (
        lambda meta: (
            meta.num_graphsafe_rng_states or meta.is_rng_op_functionalized
        ),
        "the state of a generator is an argument",
    ),
    (
        lambda meta: meta.grad_enabled_mutation is not None,
        "the function changes the grad mode",
    ),
    (
        lambda meta: any(map(is_subclass, meta.subclass_inp_meta)),
        "an input is a subclass of Tensor",
    ),
    (
        # the wrapper turns it off
        lambda meta: torch._C._is_any_autocast_enabled(),
        "autocast is on",
    ),
)


def plan(meta: Any, nargs: int, program_args: int, held: list[Any]) -> Plan:
    """What the wrapper of this inference graph does; Kept: it stays.

    meta: AOTAutograd's ViewAndMutationMeta; nargs: arguments that Dynamo
    gives; program_args: arguments of the program; held: tensors that Dynamo's
    graph has itself, as that of an optimizer's step has the parameters.
    """
    if meta is None:
        raise Kept("torch does not say what the wrapper does")
    if len(held) + nargs != program_args:
        raise Kept("arguments are joined: some are the same, or overlap")
    for found, why in REASONS:
        if found(meta):
            raise Kept(why)
    wrote = tuple(meta.mutated_graph_handled_indices_seen_by_autograd)
    if not meta.num_outputs_aliased and not meta.dynamic_outputs:
        return Plan(wrote, held=held)
    outs = tuple(_out(meta, info) for info in meta.output_info)
    return Plan(wrote, outs, held)


def _out(meta: Any, info: Any) -> Out:
    dims = info.dynamic_dims if meta.dynamic_outputs else None
    if dims is not None and compat.mark_dynamic() is None:
        raise Kept("outputs have dynamic sizes, which this torch notes itself")
    kind = info.output_type.name
    if kind in _AS_IS:
        return (-1, None, False, dims)
    if kind == "is_input":
        return (info.base_idx, None, False, dims)
    if kind != "alias_of_input":
        raise Kept("an output is a view of another one")
    had, wants = (
        meta.input_info[info.base_idx].requires_grad,
        info.requires_grad,
    )
    if wants and not had:
        raise Kept("a view of an input requires a gradient, the input does not")
    return (info.base_idx, _views(info), had and not wants, dims)


def _views(info: Any) -> Any:
    """The view operators between an input and an output."""
    steps = compat.view_steps(info)
    if steps is None:
        raise Kept("a view of an input has sizes that change")
    return steps


def make(
    program: Any, found: Plan, look: Callable[..., None] | None = None
) -> Any:
    """The program as Dynamo calls it. look: sees the arguments before it."""
    from ._native import Direct

    return Direct(
        program,
        found.wrote,
        found.outs,
        torch._C._increment_version,
        compat.apply_views(),
        compat.mark_dynamic(),
        look,
        found.held,
    )


def takes_wrapped(gm: torch.fx.GraphModule) -> bool:
    """Is an argument of Dynamo's graph a tensor with others inside, as one is
    that a collective of eager code has begun? AOTAutograd takes them out."""
    return any(
        is_traceable_wrapper_subclass(node.meta.get("example_value"))
        for node in gm.graph.find_nodes(op="placeholder")
    )


def asks_for_objects(gm: torch.fx.GraphModule) -> bool:
    """Does Dynamo's graph, or one in it, take streams, events or modules from
    the table that the code around it fills?"""
    return any(
        node.op == "call_function" and _asks(node.target)
        for part in gm.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
    )


def _asks(target: Any) -> bool:
    module = getattr(target, "__module__", None) or ""
    return (
        module.startswith("torch._dynamo.")
        or str(target).startswith("streams.")
        or str(target) == "invoke_leaf_function"
    )
