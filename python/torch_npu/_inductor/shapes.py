"""NPUShapeHandling: few sizes for a compiled function that is given many.

Tensors are padded to the next of a few sizes ("gears"), batches larger than
the largest gear are split; the function runs once for each part, and what was
added is taken off its results again. What to undo belongs to a call, not to
the object: an exception in between leaves nothing behind.

Two things that callers have to know. The padding of SEQLEN is not taken off:
results keep the padded length. And a function that reduces over the batch
(a mean, the statistics of BatchNorm) sees the padding rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchair import checks

from .gears import ShapeConfig, parse_configs

Tensors = list[torch.Tensor]
Call = tuple[tuple[Any, ...], dict[str, Any]]
_HOOKS = {
    "trans_pre_fn": "transform_pre_fn",
    "trans_post_fn": "transform_post_fn",
    "re_pre_fn": "recover_pre_fn",
    "re_post_fn": "recover_post_fn",
}


@dataclass(frozen=True)
class Options:
    """What torch.compile was given. hooks: arguments of NPUShapeHandling."""

    configs: Sequence[Any] | None
    hooks: dict[str, Callable[..., Any]]


def take_options(options: dict[str, Any]) -> Options | None:
    """Takes the options of shape handling out; None where it is off.

    TypeError, ValueError: a value that cannot be honoured.
    """
    enabled = options.pop("enable_shape_handling", False)
    configs = options.pop("shape_handling_configs", None)
    given = options.pop("shape_handling_dict", None)
    if not isinstance(enabled, bool):
        raise TypeError(
            f"enable_shape_handling must be True or False, got {enabled!r}"
        )
    if configs is not None and not isinstance(configs, (list, tuple)):
        raise TypeError(
            f"shape_handling_configs must be a list of dicts, got {configs!r}"
        )
    hooks = _check_hooks(given)
    if not enabled:
        if configs or hooks:
            raise ValueError(
                "shape_handling_configs and shape_handling_dict need "
                "enable_shape_handling=True"
            )
        return None
    parse_configs(configs)  # says now what is wrong with them
    return Options(configs, hooks)


def _check_hooks(given: Any) -> dict[str, Callable[..., Any]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"shape_handling_dict must be a dict, got {given!r}")
    hooks = {}
    for name, fn in given.items():
        if name not in _HOOKS:
            raise ValueError(
                f"unknown key {name!r} in shape_handling_dict; it has: "
                f"{', '.join(_HOOKS)}"
            )
        if fn is not None and not callable(fn):
            raise TypeError(f"{name} must be callable, got {fn!r}")
        if fn is not None:
            hooks[_HOOKS[name]] = fn
    return hooks


@dataclass(frozen=True)
class Undo:
    """What a call has to take back.

    dimension: of the batch; size, padded: of the last part.
    """

    dimension: int
    parts: int
    size: int
    padded: int


def _pad(tensor: torch.Tensor, dim: int, size: int, value: float) -> Any:
    """tensor with `value` at the end of a dimension, up to `size`."""
    missing = size - tensor.shape[dim]
    if missing == 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    fill = torch.full(shape, value, dtype=tensor.dtype, device=tensor.device)
    return torch.cat([tensor, fill], dim)


def _unpad(tensor: torch.Tensor, undo: Undo, number: int) -> torch.Tensor:
    dim = undo.dimension
    if tensor.dim() <= dim or tensor.shape[dim] != undo.padded:
        raise RuntimeError(
            f"result {number} has shape {list(tensor.shape)}, so the padding "
            f"of dimension {dim} (padded to {undo.padded}) cannot be taken "
            "off: give re_pre_fn and re_post_fn, or return results that have "
            "the batch dimension"
        )
    return tensor.narrow(dim, 0, undo.size)


class Strategy:
    """How one dimension is made to fit: a base class for one's own.

    transform(groups) -> (groups, undo) with one list of tensors a run;
    recover(results, undo) -> one list of tensors.
    """

    def __init__(self, config: ShapeConfig) -> None:
        self.config = config

    def indices(self, tensors: Tensors) -> list[int]:
        """Positions this config is about; decided once, then kept."""
        config = self.config
        if not config.indices:
            dim = config.dimensions[0]
            config.indices = [i for i, t in enumerate(tensors) if t.dim() > dim]
        for i in config.indices:
            if i >= len(tensors):
                raise ValueError(
                    f"{config.type}: index {i}, but the call has "
                    f"{len(tensors)} tensors"
                )
        return config.indices

    def size(self, tensors: Tensors, number: int, index: int) -> int:
        dim = self.config.dimension(number)
        tensor = tensors[index]
        if tensor.dim() <= dim:
            raise ValueError(
                f"{self.config.type}: tensor {index} has shape "
                f"{list(tensor.shape)}, dimension {dim} is asked for"
            )
        return tensor.shape[dim]

    def transform(self, tensors: Tensors) -> tuple[list[Tensors], Undo | None]:
        raise NotImplementedError

    def recover(self, results: list[Tensors], undo: Undo) -> Tensors:
        raise NotImplementedError


class SequenceStrategy(Strategy):
    """Pads each tensor to a gear of its own; nothing is undone."""

    def transform(self, tensors: Tensors) -> tuple[list[Tensors], Undo | None]:
        found = list(tensors)
        config = self.config
        for number, index in enumerate(self.indices(tensors)):
            size = self.size(tensors, number, index)
            gear = config.gear(size)
            if gear is None:
                raise RuntimeError(
                    f"SEQLEN: tensor {index} has length {size}, the greatest "
                    f"gear is {config.gears[-1]}"
                )
            dim = config.dimension(number)
            found[index] = _pad(found[index], dim, gear, config.value)
        return [found], None

    def recover(self, results: list[Tensors], undo: Undo) -> Tensors:
        return results[0]


class BatchStrategy(Strategy):
    """Pads the batch to a gear, splits it above the greatest one."""

    def transform(self, tensors: Tensors) -> tuple[list[Tensors], Undo | None]:
        indices = self.indices(tensors)
        if not indices:
            return [list(tensors)], None
        size = self._common_size(tensors, indices)
        config, dim = self.config, self.config.dimensions[0]
        most = config.gears[-1]
        starts = range(0, size, most) if size else range(1)
        groups = []
        for start in starts:
            length = min(most, size - start)
            gear = config.gear(length) or most
            group = list(tensors)
            for i in indices:
                part = tensors[i].narrow(dim, start, length)
                group[i] = _pad(part, dim, gear, config.value)
            groups.append(group)
        if len(groups) == 1 and gear == length:
            return [list(tensors)], None
        return groups, Undo(dim, len(groups), length, gear)

    def _common_size(self, tensors: Tensors, indices: list[int]) -> int:
        sizes = {i: self.size(tensors, n, i) for n, i in enumerate(indices)}
        if len(set(sizes.values())) > 1:
            raise RuntimeError(
                f"BATCHSIZE: tensors differ in dimension "
                f"{self.config.dimensions[0]}: {sizes} (index: size)"
            )
        return sizes[indices[0]]

    def recover(self, results: list[Tensors], undo: Undo) -> Tensors:
        if len(results) != undo.parts:
            raise RuntimeError(
                f"{undo.parts} parts were made, {len(results)} came back"
            )
        last = [_unpad(t, undo, i) for i, t in enumerate(results[-1])]
        if undo.parts == 1:
            return last
        columns = zip(*results[:-1], last, strict=True)
        return [torch.cat(column, undo.dimension) for column in columns]


STRATEGIES = {"BATCHSIZE": BatchStrategy, "SEQLEN": SequenceStrategy}


def _check_tensors(what: str, tensors: Any) -> Tensors:
    if not isinstance(tensors, (list, tuple)) or not all(
        isinstance(t, torch.Tensor) for t in tensors
    ):
        raise TypeError(f"{what} must be a list of tensors")
    return list(tensors)


class NPUShapeHandling:
    """Shape handling for one function.

    configs: dicts with `type` ("BATCHSIZE" or "SEQLEN"), `dimensions`,
    `indices`, `value`, `gears`, `min_size`, `max_size`, `policy`; none: batch
    sizes 1..1024 on dimension 0. The hooks replace taking tensors out of the
    arguments, putting them back, and both for results.
    """

    def __init__(
        self,
        configs: Sequence[Any] | None = None,
        transform_pre_fn: Callable[..., Any] | None = None,
        transform_post_fn: Callable[..., Any] | None = None,
        recover_pre_fn: Callable[..., Any] | None = None,
        recover_post_fn: Callable[..., Any] | None = None,
    ) -> None:
        parsed = {c.type: c for c in parse_configs(configs)}
        for hook in (
            transform_pre_fn,
            transform_post_fn,
            recover_pre_fn,
            recover_post_fn,
        ):
            if hook is not None:
                checks.calls(hook, "NPUShapeHandling: a hook")
        self._sequence = self._strategy(parsed.get("SEQLEN"))
        self._batch = self._strategy(parsed.get("BATCHSIZE"))
        self._transform_pre = transform_pre_fn
        self._transform_post = transform_post_fn
        self._recover_pre = recover_pre_fn
        self._recover_post = recover_post_fn
        self._open = threading.local()  # of transform() until recover()

    @staticmethod
    def _strategy(config: ShapeConfig | None) -> Strategy | None:
        return STRATEGIES[config.type](config) if config else None

    # ---- tensors ----

    def split(self, tensors: Tensors) -> tuple[list[Tensors], Undo | None]:
        """Groups of tensors, one a run, and what join() has to undo.

        RuntimeError: sizes that no gear takes; ValueError: indices and
        dimensions that the tensors do not have.
        """
        found = _check_tensors("tensors", tensors)
        if self._sequence is not None:
            (found,), _ = self._sequence.transform(found)
        if self._batch is None:
            return [found], None
        return self._batch.transform(found)

    def join(self, results: list[Tensors], undo: Undo | None) -> Tensors:
        if undo is None or self._batch is None:
            return results[0]
        return self._batch.recover(results, undo)

    def transform(self, tensors: Tensors) -> list[Tensors]:
        """split(); the next recover() of this thread undoes it."""
        self._open.undo = None
        groups, self._open.undo = self.split(tensors)
        return groups

    def recover(self, groups: list[Tensors]) -> Tensors:
        """join() of the results of the last transform() of this thread."""
        undo = getattr(self._open, "undo", None)
        self._open.undo = None
        return self.join([_check_tensors("results", g) for g in groups], undo)

    # ---- calls ----

    def transform_hook(self, *args: Any, **kwargs: Any) -> list[Call]:
        """The calls (args, kwargs) to make instead of this one."""
        self._open.undo = None
        calls, self._open.undo = self._calls(args, kwargs)
        return calls

    def recover_hook(self, groups: list[Any]) -> Any:
        """One result from those of the calls."""
        undo = getattr(self._open, "undo", None)
        self._open.undo = None
        return self._result(groups, undo)

    def run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """fn(*args, **kwargs) with sizes that are gears."""
        calls, undo = self._calls(args, kwargs)
        return self._result([fn(*a, **k) for a, k in calls], undo)

    def _calls(self, args: Any, kwargs: Any) -> tuple[list[Call], Undo | None]:
        if self._transform_pre is not None:
            tensors = self._transform_pre(*args, **kwargs)
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            places = [
                i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)
            ]
            tensors = [leaves[i] for i in places]
        groups, undo = self.split(tensors)
        if self._transform_post is not None:
            return list(self._transform_post(groups)), undo
        if self._transform_pre is not None:
            return [(tuple(g), {}) for g in groups], undo
        return [_rebuilt(leaves, places, g, spec) for g in groups], undo

    def _result(self, results: list[Any], undo: Undo | None) -> Any:
        if self._recover_pre is not None:
            tensors = self.join(self._recover_pre(results), undo)
            if self._recover_post is not None:
                return self._recover_post(tensors)
            return tensors
        if undo is None and self._recover_post is None:
            return results[0]
        flat = [pytree.tree_flatten(r) for r in results]
        places = [
            i for i, x in enumerate(flat[0][0]) if isinstance(x, torch.Tensor)
        ]
        tensors = self.join([[x[i] for i in places] for x, _ in flat], undo)
        if self._recover_post is not None:
            return self._recover_post(tensors)
        leaves, spec = flat[0]
        return pytree.tree_unflatten(_put(leaves, places, tensors), spec)


def _put(leaves: list[Any], places: list[int], tensors: Any) -> list[Any]:
    found = list(leaves)
    for i, tensor in zip(places, tensors, strict=True):
        found[i] = tensor
    return found


def _rebuilt(
    leaves: list[Any], places: list[int], group: Tensors, spec: Any
) -> Call:
    made = pytree.tree_unflatten(_put(leaves, places, group), spec)
    return made[0], made[1]
