"""Calls of training graphs without AOTAutograd's runtime wrappers.

torch calls a differentiated graph through some eight frames of Python: grad
mode, views to replay, saved tensors, gradients laid out anew. A graph with
nothing unusual about it needs none: `forward` and `backward` of an
autograd.Function that call the two programs, in C (native/py_trained.c). That
Function is a subclass of the one that torch made, so who looks at it (compiled
autograd) finds what it looks for; and its `backward` hands over to torch's
where a call is unusual.

Which graphs are of that kind is known once both programs are there, so the
first calls go torch's way. The record of the forward says why a graph keeps
to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import compat, compat_training, direct

Compiled = Callable[..., Any]
_TENSORS = ("non_alias", "unsafe_view_alias", "custom_function_view")
_WAITS = "no gradient was computed yet"

_REASONS: Sequence[tuple[Callable[[Any], Any], str]] = (
    *direct.REASONS,
    (
        lambda meta: meta.num_outputs_aliased,
        "an output is an input, or a view of one",
    ),
    (lambda meta: meta.dynamic_outputs, "outputs have dynamic sizes"),
    (
        lambda meta: (
            meta.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        ),
        "the backward writes an input",
    ),
    (
        lambda meta: getattr(meta, "num_opaque_objects_saved_for_bw", 0),
        "the backward needs objects that are no tensors",
    ),
    (
        lambda meta: getattr(meta, "num_tensors_saved_with_no_vc_check", 0),
        "saved tensors may be written",
    ),
)


class Trained:
    """What Dynamo calls: torch's `compiled`, later the programs.

    forward, backward: the compilers of the two graphs.
    """

    def __init__(self, compiled: Compiled, forward: Any, backward: Any) -> None:
        # Dynamo keeps `compiled`, and for as long as it does, this.
        self.compiled = weakref.ref(compiled)
        self.forward, self.backward = forward, backward
        self.apply: Compiled | None = None
        self.decided = False
        self._tell(_kept_when_compiled() or _WAITS)

    def __call__(self, *args: Any) -> Any:
        apply = self.apply
        if apply is not None and not _transforms():
            return apply(*args)
        compiled = self.compiled()
        assert compiled is not None, "Dynamo dropped a graph that it calls"
        results = compiled(*args)
        if not self.decided:
            self._decide(args, _function_of(results))
        return results

    def _decide(self, args: Sequence[Any], found: Any) -> None:
        """found: torch's Function, whose backward may not be compiled yet."""
        if getattr(found, "compiled_bw", None) is None:
            return
        try:
            self.apply = _calls(self, found, args)
            self._tell("")
        except (direct.Kept, AttributeError) as why:
            self._tell(str(why))

    def _tell(self, why: str) -> None:
        self.decided = why != _WAITS
        for made in (self.forward, self.backward):
            if made.record is not None:
                made.record.wrapper = why


def _kept_when_compiled() -> str:
    """Why the graph that is compiled now keeps torch's wrappers."""
    if not compat_training.can_train_directly():
        return "this torch has other wrappers"
    if not torch.is_grad_enabled():
        return "the function changes the grad mode"
    if torch._C._is_any_autocast_enabled():
        return "autocast is on"
    if compat_training.inlines_saved_tensors_hooks():
        return "hooks of saved tensors are part of the graph"
    return ""


_transforms = torch._C._are_functorch_transforms_active  # within vmap or grad


def _function_of(results: Sequence[Any]) -> Any:
    """torch's autograd.Function that made the results, or None."""
    for result in results:
        node = getattr(result, "grad_fn", None)
        found = getattr(type(node), "_forward_cls", None)
        if hasattr(found, "compiled_bw"):
            return found
    return None


def _check(trained: Trained, found: Any, args: Sequence[Any]) -> None:
    """Kept: why the graph keeps torch's wrappers."""
    forward, backward = trained.forward, trained.backward
    for unusual, why in _REASONS:
        if unusual(found.metadata):
            raise direct.Kept(why)
    if found.maybe_subclass_metadata is not None:
        raise direct.Kept("a tensor is of a subclass of Tensor")
    run = compat_training.without_idle(found.compiled_fw)
    if run is not forward.made or found.compiled_bw is not backward.made:
        raise direct.Kept("torch wraps the program")
    if len(args) != forward.nargs or len(backward.gives) != len(args):
        raise direct.Kept("arguments are joined: some are the same, or overlap")
    if any(map(compat_training.is_backward_state, args)):
        raise direct.Kept("torch traces hooks of gradients")
    if not all(map(_is_at_home, args)):
        raise direct.Kept("a tensor is on a device that is not the engine's")


def _is_at_home(x: Any) -> bool:
    here = (*compat.HOST_DEVICES, "cuda")
    return not isinstance(x, torch.Tensor) or x.device.type in here


def _calls(trained: Trained, found: Any, args: Sequence[Any]) -> Compiled:
    """What calls the programs; Kept: why nothing must."""
    _check(trained, found, args)
    meta = found.metadata
    apply = compat_training.apply_of(_subclass(found))
    wrote = tuple(meta.mutated_graph_handled_indices_seen_by_autograd)
    # What never gets a gradient is no part of the graph.
    detached = [
        i
        for i, (given, x) in enumerate(
            zip(trained.backward.gives, args, strict=True)
        )
        if not given and getattr(x, "requires_grad", False)
    ]
    if not wrote and not detached:
        return apply

    def call(*args: Any) -> Any:
        if wrote:
            count_writes([args[i] for i in wrote])
        taken = list(args)
        for i in detached:
            taken[i] = taken[i].detach()
        return apply(*taken)

    count_writes = torch.autograd.graph.increment_version
    return call


def _subclass(found: Any) -> Any:
    """Of torch's Function: one that calls the programs."""
    from ._native import Backward, Forward

    meta = found.metadata
    infos = meta.output_info
    boxed = getattr(found, "boxed_grads_call", False)
    tangents = [
        i
        for i, o in enumerate(infos)
        if o.output_type.name in _TENSORS
        and issubclass(o.raw_type, torch.Tensor)
        and compat_training.needs_tangent(o)
    ]
    layouts = [m.memory_format for m in meta.subclass_tangent_meta]
    if len(layouts) != len(tangents):
        raise direct.Kept("torch does not say how gradients lie")
    run = Forward(
        compat_training.without_idle(found.compiled_fw),
        meta.num_forward_returns,
        found.num_symints_saved_for_bw,
        tuple(i for i, o in enumerate(infos) if not o.requires_grad),
    )
    run_back = Backward(
        found.compiled_bw,
        _asks(meta.deterministic is False),
        found.backward,
        tuple(
            (i, layout, compat_training.is_dense(layout))
            for i, layout in zip(tangents, layouts, strict=True)
        ),
        _lay_out(),
        boxed,
    )

    class Function(found):  # type: ignore[misc]
        forward = run
        backward = staticmethod(run_back)

    compat_training.run_node(Function, run_back, boxed)
    return Function


def _lay_out() -> Callable[[Any, Any], Any]:
    lay_out = compat_training.lay_out()
    return lambda grad, layout: lay_out(grad, layout) if grad.dim() else grad


def _asks(random: bool) -> tuple[Callable[[], bool], ...]:
    """Where one of these is true torch's own backward must run. random: it was
    traced where algorithms need not be deterministic."""
    usual = (torch.is_grad_enabled, _transforms)
    asked = torch.are_deterministic_algorithms_enabled
    return (*usual, asked) if random else usual
