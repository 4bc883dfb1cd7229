"""HOST nodes inside CUDA graphs: which may be, and how they are recorded.

The driver captures a stream of its own while an operator of torch runs on it.
What the operator allocates meanwhile comes from a private pool of torch's
allocator, which is kept as long as the graph: nobody else gets that memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import cuda, schema
from .capture import CaptureOptions
from .hosts import Call
from .sizes import Args

# Operators that wait for the GPU though no tag of theirs says so: they look at
# what they have computed, or at their operands, on the CPU.
WAITING = frozenset(
    {
        "aten._assert_async",
        "aten._linalg_check_errors",
        "aten._linalg_det",
        "aten._linalg_eigh",
        "aten._linalg_eigvals",
        "aten._linalg_slogdet",
        "aten._linalg_solve_ex",
        "aten._linalg_svd",
        "aten._pack_padded_sequence",
        "aten._unique2",
        "aten.bincount",
        "aten.embedding_bag",
        "aten.equal",
        "aten.histc",
        "aten.is_nonzero",
        "aten.linalg_cholesky_ex",
        "aten.linalg_eig",
        "aten.linalg_inv_ex",
        "aten.linalg_ldl_factor_ex",
        "aten.linalg_lstsq",
        "aten.linalg_lu",
        "aten.linalg_lu_factor_ex",
        "aten.linalg_qr",
        "aten.masked_scatter",
        "aten.multinomial",
        "aten.unique_consecutive",
        "aten.unique_dim",
    }
)
# Their results depend on data: how many elements, or a number of Python.
_DATA = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


CUSTOM = "a custom operator may work on the CPU, too"
DRAWS = "it draws random numbers"
_INDEX = ("aten.index", "aten.index_put", "aten._unsafe_index")


def _is_elsewhere(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "cuda"


def _depends_on_data(
    target: torch._ops.OpOverload, operands: Sequence[torch.Tensor]
) -> bool:
    """An index that is a mask does, numbers do not."""
    if str(target.overloadpacket) in _INDEX:
        masks = (torch.bool, torch.uint8)
        return any(o.dtype in masks for o in operands[1:])
    return any(tag in target.tags for tag in _DATA)


def unrecorded(
    node: torch.fx.Node,
    operands: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
) -> str:
    """Why this HOST node cannot be part of a CUDA graph; "": it is tried."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return "it is no operator of torch"
    if any(map(_is_elsewhere, (*operands, *results))):
        return "a tensor of the CPU is in it"
    if target.namespace.startswith("_c10d"):
        return "it is a collective"
    if target.namespace != "aten":
        return CUSTOM
    if str(target.overloadpacket) in WAITING:
        return "it waits for the GPU"
    if schema.mutates(node):
        return "it writes an operand"  # what is recorded may be a copy of it
    if _depends_on_data(target, operands):
        return "its result depends on data"
    if schema.draws(node):
        return DRAWS
    return ""


def entry(
    place: int,
    node: torch.fx.Node,
    operands: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
) -> list[str]:
    """What a HOST node's description ends with, where there is a GPU."""
    if place < cuda.PLACE:
        return []
    return [unrecorded(node, operands, results)]


def captures(hosts: Sequence[tuple[Any, ...]]) -> CaptureOptions | None:
    """In max-autotune: HOST nodes get into graphs as in a capture."""
    if any(host[5:] == ("",) for host in hosts):
        return CaptureOptions(warns=False)
    return None


def repeats(hosts: Sequence[tuple[Any, ...]]) -> bool:
    """May the application record runs with these HOST nodes? torch's operators
    then know that they are recorded: they draw anew at each replay."""
    return all(host[5:] in (("",), (CUSTOM,), (DRAWS,)) for host in hosts)


class Memory:
    """A private pool of torch's allocator."""

    def __init__(self, index: int) -> None:
        self.index, self.uses = index, 0
        self.id = torch.cuda.graph_pool_handle()

    def begin(self) -> None:
        torch._C._cuda_beginAllocateCurrentThreadToPool(self.index, self.id)
        self.uses += 1

    def end(self) -> None:
        torch._C._cuda_endAllocateToPool(self.index, self.id)
        # They would keep memory of this pool for other work on the stream.
        torch._C._cuda_clearCublasWorkspaces()

    def __del__(self) -> None:
        for _ in range(self.uses):
            torch._C._cuda_releasePool(self.index, self.id)


def _apart(result: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Of a view, a copy that the graph makes at each replay: the engine takes
    no result in an operand's memory, and would copy it once, now."""
    if not isinstance(result, torch.Tensor):
        return result
    memory = result.untyped_storage().data_ptr()
    shared = any(t.untyped_storage().data_ptr() == memory for t in tensors)
    return result.clone() if shared else result


def record(
    call: Call,
    args: Args,
    tensors: tuple[Any, ...],
    stream: int,
    memory: Memory,
) -> tuple[Any, ...]:
    """What the call does goes to the stream, which is being captured."""
    device = torch.device("cuda", memory.index)
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device)):
        memory.begin()
        try:
            results = call(args, tensors)
            return tuple(_apart(r, tensors) for r in results)
        finally:
            memory.end()
