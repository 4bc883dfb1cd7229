"""As compat.py: torch's private names that training needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def can_train_directly() -> bool:
    """Are there all names of torch that trained.py uses?"""
    from torch._functorch._aot_autograd import runtime_wrappers

    base = torch._C._FunctionBase
    return (
        hasattr(base, "apply")
        and hasattr(base, "maybe_clear_saved_tensors")
        and hasattr(torch._C, "_are_functorch_transforms_active")
        and hasattr(runtime_wrappers, "coerce_to_expected_memory_format")
        and hasattr(runtime_wrappers, "_should_disable_saved_tensors_hooks")
    )


# Wrappers of AOTAutograd around a forward graph that do nothing where
# trained.py takes it: 2.11 puts them there all the same.
_IDLE = ("EffectTokensWrapper.", "FunctionalizedRngRuntimeWrapper.")


def without_idle(compiled: Any) -> Any:
    """What is called in the end, where the wrappers around it do nothing."""
    while True:
        code = getattr(compiled, "__code__", None)
        if not getattr(code, "co_qualname", "").startswith(_IDLE):
            return compiled
        compiled = compiled.__wrapped__


def inlines_saved_tensors_hooks() -> bool:
    """Does AOTAutograd make hooks of saved tensors a part of its graphs?"""
    from torch._functorch._aot_autograd import runtime_wrappers

    name = "_should_disable_saved_tensors_hooks"
    found: Any = getattr(runtime_wrappers, name, lambda: True)
    return bool(found())


def lay_out() -> Callable[..., Any]:
    """(gradient, layout) -> it as the graph of the backward was traced."""
    from torch._functorch._aot_autograd import runtime_wrappers

    return runtime_wrappers.coerce_to_expected_memory_format


def is_backward_state(argument: Any) -> bool:
    from torch.fx.experimental._backward_state import BackwardState

    return isinstance(argument, BackwardState)


def needs_tangent(info: Any) -> bool:
    """Does the backward take a gradient of this output? The name is that of
    2.13."""
    found = getattr(info, "requires_grad_for_backward", info.requires_grad)
    return bool(found)


def apply_of(function: Any) -> Callable[..., Any]:
    """apply of an autograd.Function, without the Python around it."""
    apply: Any = vars(torch._C._FunctionBase)["apply"]
    bound: Callable[..., Any] = apply.__get__(None, function)
    return bound


def run_node(function: Any, run: Any, boxed: bool) -> None:
    """Nodes of the autograd.Function call run(node, *gradients), without the
    Python around it. boxed: the gradients are one list."""
    name = "apply_boxed" if boxed else "apply"
    setattr(function._backward_cls, name, run)


def is_dense(layout: Any) -> bool:
    """Is a gradient that is contiguous as the backward was traced? layout: as
    `lay_out` takes it."""
    if layout.memory_format is not None:
        return bool(layout.memory_format == torch.contiguous_format)
    stride = 1
    for size, given in zip(
        reversed(layout.size), reversed(layout.stride), strict=True
    ):
        if given != stride and size != 1:
            return False
        stride *= size
    return True


def donate_nothing(meta: Any) -> None:
    """No saved tensor is overwritten; where torch is told nothing of it, it
    refuses backward(retain_graph=True) once the graph has run without."""
    if getattr(meta, "bw_donated_idxs", ()) is None:
        meta.bw_donated_idxs = []


def held_arguments() -> list[Any]:
    """Parameters and buffers of Dynamo's graph at hand, which AOTAutograd puts
    before the arguments: its own list, which torch empties when they go."""
    context = torch._guards.TracingContext.try_get()
    return getattr(context, "params_flat", None) or []
