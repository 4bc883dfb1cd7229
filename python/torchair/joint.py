"""Forward and backward as one graph (`aot_config_enable_joint_graph`): a call
computes results and gradients at once and leaves the gradients where
`loss.backward()` would have left them. Results need no gradient then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import compat
from .config import CompilerConfig

Compiled = Callable[..., Any]


def wanted(config: CompilerConfig, inputs: Sequence[Any]) -> bool:
    """Is it asked for, and is there anything to differentiate?"""
    return (
        not config.captures
        and bool(config.experimental_config.aot_config_enable_joint_graph)
        and torch.is_grad_enabled()
        and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
    )


@dataclass
class How:
    """compiler: of the joint graph; apart: a back end that makes two graphs,
    for sizes that change."""

    compiler: Callable[..., Compiled]
    decompositions: dict[Any, Any]
    apart: Callable[..., Compiled]


class _Losing(torch.nn.Module):
    """Dynamo's graph, of whose results only the loss is differentiated."""

    def __init__(self, gm: torch.fx.GraphModule, index: int) -> None:
        super().__init__()
        self.gm, self.index = gm, index

    def forward(self, *args: Any) -> tuple[Any, ...]:
        results = tuple(self.gm(*args))
        loss = _loss(results, self.index)
        return tuple(r if r is loss else _alone(r) for r in results)


def _alone(result: Any) -> Any:
    return result.detach() if isinstance(result, torch.Tensor) else result


def _loss(results: Sequence[Any], index: int) -> torch.Tensor:
    """Result `index`; ValueError where it is not one to differentiate."""
    name = "aot_config_output_loss_index"
    if index >= len(results):
        raise ValueError(
            f"{name} is {index}, but the function has {len(results)} "
            "results; set the index of the loss, from 0"
        )
    loss = results[index]
    if (
        not isinstance(loss, torch.Tensor)
        or loss.numel() != 1
        or not loss.requires_grad
    ):
        raise ValueError(
            f"{name} is {index}, but that result is no number that "
            "depends on something with requires_grad; set the index of "
            "the loss, or switch aot_config_enable_joint_graph off"
        )
    return loss


def make(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    config: CompilerConfig,
    how: How,
) -> Compiled:
    """The callable for Dynamo: takes what gm takes, gives what it gives.
    Sizes that change make two graphs of it, called one after the other.

    ValueError where the result that is to be the loss is none.
    """
    from torch._functorch.aot_autograd import aot_export_module

    loss = config.experimental_config.aot_config_output_loss_index.raw
    with compat.aot_settings(inputs):
        if any(isinstance(x, torch.SymInt) for x in inputs):
            return _call_both(how.apart(gm, inputs), loss)
        joint, signature = aot_export_module(
            _Losing(gm, loss),
            list(inputs),
            trace_joint=True,
            output_loss_index=loss,
            decompositions=how.decompositions,
        )
    return _call(how.compiler(joint, list(inputs)), signature)


def _call_both(run: Compiled, index: int) -> Compiled:
    def call(*args: Any) -> tuple[Any, ...]:
        results = run(*args)
        torch.autograd.backward(_loss(results, index))
        return tuple(map(_alone, results))

    return compat.untraced(call)


def _call(run: Compiled, signature: Any) -> Compiled:
    inputs = {name: i for i, name in enumerate(signature.user_inputs)}
    # Results come in this order: new values of inputs, the user's, gradients.
    written = [inputs[n] for n in signature.user_inputs_to_mutate.values()]
    grads = signature.backward_signature.gradients_to_user_inputs
    wanting = [inputs[name] for name in grads.values()]
    first = len(written) + len(signature.user_outputs)

    def call(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            results = run(list(args))
            for i, value in zip(written, results, strict=False):
                args[i].copy_(value)
        for i, grad in zip(wanting, results[first:], strict=True):
            if grad is not None and args[i].requires_grad:
                torch.autograd.backward([args[i]], [grad])
        return tuple(results[len(written) : first])

    return compat.untraced(call)
