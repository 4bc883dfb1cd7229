"""npu_fused_infer_attention_score, both versions: attention for inference
over caches of any layout, docs/attention.md.

Two libraries have the operators: `npu`, whose lengths are lists of integers,
as torch_npu's are, and `air`, whose lengths are tensors, as torchair.ops
wants them. They are one thing otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import compat, inlined
from . import arguments, core
from .arguments import FusedAttentionError as FusedAttentionError

_libraries: dict[str, Any] = {}


def _kernel(version: int, name: str) -> Callable[..., Any]:
    """The function `name` of run.py, imported when it is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from . import run

        return getattr(run, name)(version, args, kwargs)

    return call


def _into(version: int, compute: str) -> Callable[..., Any]:
    """Results in the caller's memory."""
    kernel = _kernel(version, compute)

    def call(
        *args: Any, workspace: Any = None, out: Any, **kwargs: Any
    ) -> None:
        found = kernel(*args, **kwargs)
        for to, result in zip(out, found, strict=True):
            if to.shape != result.shape and result.numel():
                raise FusedAttentionError(
                    f"{arguments.op_name(version)}: out has a tensor of shape "
                    f"{list(to.shape)}; {list(result.shape)} is due"
                )
            if result.numel() and not to.is_meta:
                to.copy_(result)

    return call


def _workspace(*args: Any, **kwargs: Any) -> torch.Tensor:
    """The engine has memory of its own: nothing is needed."""
    return args[0].new_empty(0, dtype=torch.uint8)  # type: ignore


def _schemas(namespace: str, version: int) -> list[str]:
    tensors = namespace == "air"
    found = [arguments.schema(version, tensors)]
    if not tensors:
        plain = found[0].rpartition(" -> ")[0]
        found += [
            arguments.schema(version, tensors, "out"),
            f"_{plain}".replace("(", "_get_max_workspace(", 1) + " -> Tensor",
        ]
    return found


def register(namespace: str) -> None:
    """Defines the operators of a namespace, once: "npu" or "air"."""
    if namespace in _libraries:
        return
    make: Any = torch.library.Library
    library = _libraries[namespace] = make(namespace, "FRAGMENT")
    for version in (1, 2):
        for schema in _schemas(namespace, version):
            name = schema.partition("(")[0]
            library.define(schema)
            if name.endswith(".out"):
                kernels = _into(version, "compute"), _into(version, "meta")
            elif name.endswith("workspace"):
                kernels = _workspace, _workspace
            else:
                kernels = _kernel(version, "compute"), _kernel(version, "meta")
            for key in ("CPU", "CUDA"):
                library.impl(name, kernels[0], key)
            compat.register_fake(library, name, kernels[1])
            if name == arguments.op_name(version):
                op = getattr(getattr(torch.ops, namespace), name).default
                body = _kernel(version, "decomposed")
                inlined.register(op, body, lambda node: _is_apart(node))


def _is_apart(node: torch.fx.Node) -> bool:
    """Is it on a device that the engine's kernel is not for?"""
    value = node.meta["val"][0]
    return value.device.type not in compat.HOST_DEVICES


def version_of(target: Any) -> int | None:
    """1 or 2; None where it is another operator."""
    schema = getattr(target, "_schema", None)
    return _VERSIONS.get(getattr(schema, "name", ""))


def rewrite_of(target: Any) -> Any:
    """For the importer: what writes a node of this operator, if it is one."""
    if target is torch.ops.air.dense_attention.default:
        return core.rewrite
    version = version_of(target)
    if version is None or target._overloadname != "default":
        return None
    from . import run

    return functools.partial(run.rewrite, version)


_VERSIONS = {
    f"{namespace}::{arguments.op_name(version)}": version
    for namespace in ("air", "npu")
    for version in (1, 2)
}
