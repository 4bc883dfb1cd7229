"""make_graphed_callables: forward and backward of a callable as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from .. import checks
from . import streams
from .graphs import NPUGraph, graph
from .pools import Handle, graph_pool_handle

Tensors = tuple[torch.Tensor | None, ...]


@dataclass
class _Part:
    """One callable. inputs: its arguments, then the module's parameters."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    leaves: list[torch.Tensor]
    spec: TreeSpec
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...] = ()
    output_spec: TreeSpec | None = None
    grad_outputs: Tensors = ()
    grad_inputs: Tensors = ()
    forward: NPUGraph = field(default_factory=NPUGraph)
    backward: NPUGraph | None = None


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Handle | None = None,
) -> Any:
    """Callables whose forward and backward are replays.

    callables: a module or function, or a tuple of them in the order they run
    in; sample_args: its positional arguments, tensors only, or a tuple of
    such tuples. Arguments at other addresses are copied into the sample ones
    at each call. allow_unused_input: inputs may have no gradient; pool: see
    NPUGraph.capture_begin. The result has the type of `callables`; a module
    is changed in place and runs graphed only in the training mode it was
    captured in.

    TypeError for arguments and results that are not tensors; RuntimeError for
    modules with hooks or with buffers that need gradients, and under autocast
    with its weight cache.
    """
    if torch._C._is_any_autocast_enabled() and (
        torch.is_autocast_cache_enabled()
    ):
        raise RuntimeError(
            "make_graphed_callables does not work with autocast's weight "
            "cache; use torch.autocast(..., cache_enabled=False)"
        )
    single = not isinstance(callables, tuple)
    if single:
        callables, sample_args = (callables,), (sample_args,)
    checks.is_a(
        int,
        num_warmup_iters,
        "make_graphed_callables: num_warmup_iters",
        "an int",
    )
    for call in callables:
        checks.calls(call, "make_graphed_callables: a callable")
    if len(callables) != len(sample_args):
        raise ValueError(
            f"{len(callables)} callables, but {len(sample_args)} sample_args"
        )
    parts = [_part(c, a) for c, a in zip(callables, sample_args, strict=True)]
    _warm_up(parts, num_warmup_iters, allow_unused_input)
    pool = graph_pool_handle() if pool is None else pool
    for part in parts:
        _capture_forward(part, pool)
    for part in reversed(parts):
        _capture_backward(part, pool, allow_unused_input)
    made = tuple(_graphed(p) for p in parts)
    return made[0] if single else made


def _part(call: Any, args: Any) -> _Part:
    if not isinstance(args, tuple):
        args = (args,)
    leaves, spec = tree_flatten(args)
    _only_tensors(leaves, "sample_args")
    parameters: tuple[torch.Tensor, ...] = ()
    if isinstance(call, torch.nn.Module):
        _check_module(call)
        parameters = tuple(call.parameters())
    return _Part(call, args, leaves, spec, (*leaves, *parameters))


def _only_tensors(leaves: Sequence[Any], what: str) -> None:
    for x in leaves:
        if not isinstance(x, torch.Tensor):
            raise TypeError(
                f"make_graphed_callables: {what} must be tensors only, got "
                f"{type(x).__name__}"
            )


def _check_module(module: torch.nn.Module) -> None:
    if (
        module._forward_hooks
        or module._forward_pre_hooks
        or (module._backward_hooks)
    ):
        raise RuntimeError(
            "make_graphed_callables: the module has hooks; register them "
            "after the call, they run outside of the graphs"
        )
    if any(b.requires_grad for b in module.buffers()):
        raise RuntimeError(
            "make_graphed_callables: buffers must not need gradients"
        )


def _warm_up(parts: list[_Part], iterations: int, unused: bool) -> None:
    """Eager steps on a stream of their own, so that what is made lazily is
    there before the capture."""
    with streams.stream(streams.Stream()):
        for part in parts:
            for _ in range(iterations):
                outputs, _spec = tree_flatten(part.call(*part.args))
                _gradients(part, outputs, None, unused)


def _gradients(
    part: _Part,
    outputs: Sequence[Any],
    grads: Sequence[torch.Tensor | None] | None,
    unused: bool,
) -> Tensors:
    """Of the inputs; None where one needs none."""
    roots = [i for i, o in enumerate(outputs) if _needs_grad(o)]
    wanted = [t for t in part.inputs if t.requires_grad]
    if not roots or not wanted:
        return tuple(None for _ in part.inputs)
    given = [
        torch.zeros_like(outputs[i]) if grads is None else grads[i]
        for i in roots
    ]
    found = iter(
        torch.autograd.grad(
            [outputs[i] for i in roots], wanted, given, allow_unused=unused
        )
    )
    return tuple(next(found) if t.requires_grad else None for t in part.inputs)


def _needs_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad


def _capture_forward(part: _Part, pool: Handle) -> None:
    with graph(part.forward, pool=pool):
        found = part.call(*part.args)
    outputs, part.output_spec = tree_flatten(found)
    _only_tensors(outputs, "results")
    part.outputs = tuple(outputs)


def _capture_backward(part: _Part, pool: Handle, unused: bool) -> None:
    part.grad_outputs = tuple(
        torch.empty_like(o) if o.requires_grad else None for o in part.outputs
    )
    part.grad_inputs = tuple(None for _ in part.inputs)
    if any(g is not None for g in part.grad_outputs):
        part.backward = NPUGraph()
        with graph(part.backward, pool=pool):
            part.grad_inputs = _gradients(
                part, part.outputs, part.grad_outputs, unused
            )
    part.outputs = tuple(o.detach() for o in part.outputs)


def _place(target: torch.Tensor, value: torch.Tensor) -> None:
    if (
        target.data_ptr() != value.data_ptr()
        or target.stride() != value.stride()
    ):
        target.copy_(value)


class _Replay(torch.autograd.Function):
    """forward(part, *inputs): both directions are one replay each."""

    @staticmethod
    def forward(ctx: Any, part: _Part, *inputs: torch.Tensor) -> Any:
        ctx.part = part
        with torch.no_grad():
            for target, value in zip(part.leaves, inputs, strict=False):
                _place(target, value)
        part.forward.replay()
        plain = [o for o in part.outputs if not o.is_floating_point()]
        found = tuple(o.detach() for o in part.outputs)
        ctx.mark_non_differentiable(
            *[f for f in found if not f.is_floating_point()][: len(plain)]
        )
        return found

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        part: _Part = ctx.part
        for target, value in zip(part.grad_outputs, grads, strict=True):
            if target is not None:
                _place(target, value)
        if part.backward is not None:
            part.backward.replay()
        # We keep these tensors, so autograd copies what it stores in .grad:
        # the next replay writes the same memory.
        return None, *part.grad_inputs


def _caller(part: _Part) -> Callable[..., Any]:
    parameters = part.inputs[len(part.leaves) :]
    replay: Any = _Replay.apply

    def call(*args: Any) -> Any:
        leaves, spec = tree_flatten(args)
        if spec != part.spec:
            raise TypeError(
                "a graphed callable takes the arguments it was captured with: "
                f"{part.spec}, got {spec}"
            )
        _check_like(part, leaves)
        found = replay(part, *leaves, *parameters)
        assert part.output_spec is not None
        return tree_unflatten(list(found), part.output_spec)

    return call


def _check_like(part: _Part, leaves: Sequence[Any]) -> None:
    _only_tensors(leaves, "arguments")
    for i, (want, got) in enumerate(zip(part.leaves, leaves, strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            raise RuntimeError(
                f"argument {i} is {got.dtype}{list(got.shape)}; captured was "
                f"{want.dtype}{list(want.shape)}"
            )


def _graphed(part: _Part) -> Any:
    call = _caller(part)
    module = part.call
    if not isinstance(module, torch.nn.Module):
        return call
    eager, training = module.forward, module.training

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == training and not kwargs:
            return call(*args)
        return eager(*args, **kwargs)

    module.forward = forward
    return module
