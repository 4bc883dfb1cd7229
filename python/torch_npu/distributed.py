"""torch_npu.distributed: collectives whose ranks give or take different sizes.

Both are made of collectives that every backend has, so a compiled function has
them as nodes of its graph like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


def _rows(
    sizes: Sequence[int] | None, whole: torch.Tensor, name: str, group: Any
) -> list[int]:
    ranks = dist.get_world_size(group)
    if sizes is None:
        sizes = [whole.shape[0] // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != whole.shape[0]:
        raise ValueError(
            f"{name}: {list(sizes)} must have a number of rows for each of "
            f"{ranks} ranks, {whole.shape[0]} in all"
        )
    return list(sizes)


def all_gather_into_tensor_uneven(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """output: [sum of sizes, ...], input: [size of this rank, ...]. Rank i
    gives output_split_sizes[i] rows; None: all give as many."""
    sizes = _rows(output_split_sizes, output, "output_split_sizes", group)
    return dist.all_to_all_single(
        output,
        torch.cat([input] * len(sizes)),
        sizes,
        [input.shape[0]] * len(sizes),
        group,
        async_op,
    )


def reduce_scatter_tensor_uneven(
    output: torch.Tensor,
    input: torch.Tensor,
    input_split_sizes: Sequence[int] | None = None,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> None:
    """output: [size of this rank, ...], input: [sum of sizes, ...]. Rank i
    takes input_split_sizes[i] rows of the reduced input; None: all take as
    many. async_op=True is refused."""
    if async_op:
        raise NotImplementedError(
            "reduce_scatter_tensor_uneven: async_op=True; leave it out"
        )
    sizes = _rows(input_split_sizes, input, "input_split_sizes", group)
    rank = dist.get_rank(group)
    whole = input.clone()
    dist.all_reduce(whole, op, group)
    begin = sum(sizes[:rank])
    output.copy_(whole[begin : begin + sizes[rank]])
