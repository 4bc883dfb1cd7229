"""The calls of torch.distributed that Dynamo does not trace by itself.

Dynamo has a table of collectives and what it traces in their place. `extend`
adds the missing ones (broadcast, all_to_all, reduce_scatter, send, recv), the
stacked form of all_gather_into_tensor, and irecv and batch_isend_irecv, whose
tensors torch's own replacements leave as they were. Each writes what a
functional collective gives into the caller's tensors. `patch_for_hcom` is the
older way to the same end.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

Traced = Callable[..., Any]

_REDUCTIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")


def _group(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def _rank_in(group: Any, rank: int | None, group_rank: int | None) -> int:
    """Of the one at the other end, in the group."""
    if group_rank is not None:
        return group_rank
    return int(dist.get_group_rank(_group(group), rank))  # type: ignore


def _broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> None:
    from torch.distributed import _functional_collectives as functional

    root = _rank_in(group, src, group_src)
    tensor.copy_(functional.broadcast(tensor, root, _group(group)))


def _all_gather_into_tensor(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    group: Any = None,
    async_op: bool = False,
) -> None:
    """output_tensor: [ranks * n, ...] or stacked, [ranks, n, ...]."""
    from torch.distributed import _functional_collectives as functional

    flat = functional.all_gather_tensor(input_tensor, 0, _group(group))
    output_tensor.copy_(flat.view(output_tensor.shape))


def _all_to_all(
    output_tensor_list: list[torch.Tensor],
    input_tensor_list: list[torch.Tensor],
    group: Any = None,
    async_op: bool = False,
) -> None:
    from torch.distributed import _functional_collectives as functional

    found = functional.all_to_all_single(
        torch.cat([t.reshape(-1) for t in input_tensor_list]),
        [t.numel() for t in output_tensor_list],
        [t.numel() for t in input_tensor_list],
        _group(group),
    )
    begin = 0
    for out in output_tensor_list:
        out.copy_(found[begin : begin + out.numel()].view(out.shape))
        begin += out.numel()


def _name_of(op: Any) -> str:
    """By a walk: Dynamo of 2.11 cannot look it up."""
    for name in _REDUCTIONS:
        if op is getattr(dist.ReduceOp, name):
            return name.lower()
    raise ValueError(f"reduce_scatter: unsupported reduction {op}")


def _reduce_scatter(
    output: torch.Tensor,
    input_list: list[torch.Tensor],
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> None:
    from torch.distributed import _functional_collectives as functional

    if not isinstance(op, str):  # Dynamo of 2.14 gives the name
        op = _name_of(op)
    found = functional.reduce_scatter_tensor(
        torch.cat([t.reshape(-1) for t in input_list]),
        op,
        0,
        _group(group),
    )
    output.copy_(found.view(output.shape))


def _send(
    tensor: torch.Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    torch.ops._c10d_functional.wait_tensor(
        _isend(tensor, dst, group, tag, group_dst)
    )


def _isend(
    tensor: torch.Tensor,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> torch.Tensor:
    """Dynamo reads `wait()` of the result as wait_tensor."""
    name = _group(group).group_name
    peer = _rank_in(group, dst, group_dst)
    return torch.ops._c10d_functional.isend(tensor, peer, tag, name)  # type: ignore


def _begin_recv(
    tensor: torch.Tensor,
    src: int | None,
    group: Any,
    tag: int,
    group_src: int | None = None,
) -> torch.Tensor:
    name = _group(group).group_name
    peer = _rank_in(group, src, group_src)
    return torch.ops._c10d_functional.irecv(tensor, peer, tag, name)  # type: ignore


def _irecv(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> torch.Tensor:
    """The graph waits at once; when it is waited for is the engine's choice."""
    came = _begin_recv(tensor, src, group, tag, group_src)
    tensor.copy_(torch.ops._c10d_functional.wait_tensor(came))
    return came


def _recv(
    tensor: torch.Tensor,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    _irecv(tensor, src, group, tag, group_src)
    peer = _rank_in(group, src, group_src)
    return int(dist.get_global_rank(_group(group), peer))


def _batch_isend_irecv(
    op_list: list[str],
    peer_list: list[int],
    tag_list: list[int],
    tensors: list[torch.Tensor],
    group_name: Any,
) -> list[torch.Tensor]:
    """What Dynamo makes of P2POps; op_list: "isend" or "irecv"."""
    begin: dict[str, Traced] = {"isend": _isend, "irecv": _begin_recv}
    rows = list(zip(op_list, tensors, peer_list, tag_list, strict=True))
    begun = [
        begin[op](tensor, peer, group_name, tag)
        for op, tensor, peer, tag in rows
    ]
    for (op, tensor, _, _), result in zip(rows, begun, strict=True):
        if op == "irecv":
            tensor.copy_(torch.ops._c10d_functional.wait_tensor(result))
    return begun


# By the name in torch.distributed; needs: an operator that torch must have.
_TRACED: tuple[tuple[str, Traced, str], ...] = (
    ("broadcast", _broadcast, "broadcast"),
    ("all_gather_into_tensor", _all_gather_into_tensor, "wait_tensor"),
    ("all_to_all", _all_to_all, "all_to_all_single"),
    ("reduce_scatter", _reduce_scatter, "reduce_scatter_tensor"),
    ("send", _send, "isend"),
    ("recv", _recv, "irecv"),
    ("isend", _isend, "isend"),
    ("irecv", _irecv, "irecv"),
    ("batch_isend_irecv", _batch_isend_irecv, "irecv"),
)


def extend() -> None:
    """Adds the functions above to Dynamo's table. They stand in torch's module
    because Dynamo guards them by their name there."""
    if not dist.is_available():
        return
    from torch.distributed import _functional_collectives as functional

    table = functional.traceable_collective_remaps
    for name, traced, needs in _TRACED:
        if not hasattr(torch.ops._c10d_functional, needs):
            continue  # 2.11 has no isend
        original = getattr(dist.distributed_c10d, name)
        traced.__name__ = f"_torchair_{name}"
        setattr(functional, traced.__name__, traced)
        table[original] = traced


# ---- patch_for_hcom ----

_PATCHED = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "broadcast",
    "all_to_all_single",
    "all_to_all",
)


def _patched(original: Traced) -> Traced:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    call.torchair_patched = original  # type: ignore[attr-defined]
    return call


def patch_for_hcom() -> None:
    """Replaces all_reduce, all_gather, all_gather_into_tensor, broadcast,
    all_to_all_single and all_to_all of torch.distributed (and DeepSpeed's
    all_reduce and inference_all_reduce, where that is imported) by functions
    that can be traced; outside compiled functions they are what they were.

    With torch 2.3.1 and later collectives are traced without it, and a
    UserWarning says so. Inside a compiled function an unknown reduction is a
    ValueError; async_op=True breaks the graph, or with fullgraph=True is
    Dynamo's error.
    """
    from torch.distributed import _functional_collectives as functional

    warnings.warn(
        "torchair.patch_for_hcom: this version of torch traces collectives "
        "without it; the call can be removed",
        stacklevel=2,
    )
    table = functional.traceable_collective_remaps
    for name in _PATCHED:
        now = getattr(dist, name)
        if not hasattr(now, "torchair_patched"):
            made = _patched(now)
            table[made] = table[now]
            setattr(dist, name, made)
    deepspeed = sys.modules.get("deepspeed.comm")
    for name in ("all_reduce", "inference_all_reduce"):
        if hasattr(deepspeed, name):
            setattr(deepspeed, name, dist.all_reduce)
