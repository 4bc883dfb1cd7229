"""Tensors shown when they are computed: eagerly at once, in a captured or
compiled graph at each of its runs.

`npu::print_npugraph_tensor` and `npu::save_npugraph_tensor` are operators, so
that a function with them compiles as one graph and FX passes may insert them.
Both become operators of torchair, which have no other form and a side effect.
"""

from __future__ import annotations

import itertools
import os

import torch

from .. import checks
from . import streams

_library = torch.library.Library("torchair", "FRAGMENT")
_library.define("print_tensor(Tensor input, str name) -> ()")
_library.define(
    "save_tensors(Tensor[] inputs, str path, int call, bool many) -> ()"
)
_calls = itertools.count()
_saved = itertools.count()
_numbers: dict[int, int] = {}  # of calls that have saved


def _print(input: torch.Tensor, name: str) -> None:
    print(f"{name}: {input}" if name else str(input), flush=True)


def _save(inputs: list[torch.Tensor], path: str, call: int, many: bool) -> None:
    """call: the file's name gets a number, the same at each run of a graph;
    -1: it does not."""
    if call >= 0:
        number = _numbers.get(call)
        if number is None:
            number = _numbers[call] = next(_saved)
        stem, suffix = os.path.splitext(path)
        path = f"{stem}_{number}{suffix}"
    own = [t.detach().clone() for t in inputs]
    torch.save(own if many else own[0], path)


for _op, _kernel in (("print_tensor", _print), ("save_tensors", _save)):
    _library.impl(_op, _kernel, "CPU")
    torch.library.register_fake(f"torchair::{_op}", lambda *_: None)
    torch.fx.node.has_side_effect(getattr(torch.ops.torchair, _op).default)


def _print_op(input: torch.Tensor, *, tensor_name: str | None = None) -> None:
    torch.ops.torchair.print_tensor(input.detach(), tensor_name or "")


def _save_all(
    inputs: list[torch.Tensor], path: str | None, overwrite: bool, many: bool
) -> None:
    path = path or "npugraph_tensor.pt"
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"save_path: there is no folder {folder!r}; please make it"
        )
    call = -1
    if not overwrite:
        stem, suffix = os.path.splitext(path)
        device = streams.current_stream().device_index
        path, call = f"{stem}_device_{device}{suffix or '.pt'}", next(_calls)
    detached = [t.detach() for t in inputs]
    torch.ops.torchair.save_tensors(detached, path, call, many)


def _save_op(
    input: torch.Tensor,
    *,
    save_path: str | None = None,
    overwrite: bool = False,
) -> None:
    _save_all([input], save_path, overwrite, False)


def _save_list_op(
    input: list[torch.Tensor],
    *,
    save_path: str | None = None,
    overwrite: bool = False,
) -> None:
    _save_all(list(input), save_path, overwrite, True)


_OPTIONS = "*, str? save_path=None, bool overwrite=False) -> ()"
_npu = torch.library.Library("npu", "FRAGMENT")
for _name, _schema, _call in (
    (
        "print_npugraph_tensor",
        "(Tensor input, *, str? tensor_name=None) -> ()",
        _print_op,
    ),
    ("save_npugraph_tensor", f"(Tensor input, {_OPTIONS}", _save_op),
    (
        "save_npugraph_tensor.tensors",
        f"(Tensor[] input, {_OPTIONS}",
        _save_list_op,
    ),
):
    _npu.define(f"{_name}{_schema}")
    _npu.impl(_name, _call, "CompositeImplicitAutograd")
    _packet, _, _overload = _name.partition(".")
    torch.fx.node.has_side_effect(
        getattr(getattr(torch.ops.npu, _packet), _overload or "default")
    )


def print_npugraph_tensor(
    input: torch.Tensor, *, tensor_name: str | None = None
) -> None:
    """Prints the tensor: now, or in a graph at each run."""
    torch.ops.npu.print_npugraph_tensor(input, tensor_name=tensor_name)


def save_npugraph_tensor(
    input: torch.Tensor | list[torch.Tensor],
    *,
    save_path: str | None = None,
    overwrite: bool = False,
) -> None:
    """Saves a tensor, or a list, with torch.save: now, or in a graph at each
    run, which then rewrites the same file.

    The file is <stem>_device_<d>_<n>.pt, with a number n for each call; with
    overwrite=True it is save_path itself. FileNotFoundError where the folder
    is missing.
    """
    wanted = "a tensor or a list of them"
    if not isinstance(input, (list, tuple)):
        checks.is_a(torch.Tensor, input, "save_npugraph_tensor: input", wanted)
    op = torch.ops.npu.save_npugraph_tensor
    if isinstance(input, torch.Tensor):
        op.default(input, save_path=save_path, overwrite=overwrite)
    else:
        op.tensors(list(input), save_path=save_path, overwrite=overwrite)
