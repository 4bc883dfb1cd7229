"""Collectives of torch.distributed on tensors of the device: gloo on the host
memory that they are.

torch's operators for the device look for a process group's backend of it.
Gloo becomes that, and the operators give it the tensors of the CPU on the same
memory. The name "hccl", which programs for an NPU give, is gloo as well, unless
another package has a backend of that name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ._kernels import KEY, is_npu, library, to_cpu


def _on_host(op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(
            lambda x: to_cpu(x) if is_npu(x) else x, (args, kwargs)
        )
        return op(*args, **kwargs)

    return kernel


def _gloo(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from torch.distributed import ProcessGroupGloo

    return ProcessGroupGloo(store, rank, size, timeout=timeout)


def _register() -> None:
    ours = library("c10d")
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(KEY):
        space, _, rest = name.partition("::")
        if space == "c10d":
            packet, _, overload = rest.partition(".")
            op = getattr(getattr(torch.ops.c10d, packet), overload or "default")
            ours.impl(op, _on_host(op), KEY, allow_override=True)


def install() -> None:
    """Registers all of it; once a process. Nothing where torch was built
    without torch.distributed or gloo."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch's kernels give way
        _register()
    kind: Any = dist.Backend
    if "HCCL" not in kind._plugins:
        kind.register_backend("hccl", _gloo, devices=["npu", "cpu"])
    kind.default_device_backend_map["npu"] = "gloo"
    if "npu" not in kind.backend_capability["gloo"]:
        kind.backend_capability["gloo"].append("npu")
