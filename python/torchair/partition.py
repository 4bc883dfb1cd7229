"""How AOTAutograd's joint graph is cut into forward and backward, and what it
has to know of it before."""

from __future__ import annotations

import importlib.util
import operator
from typing import Any

import torch

_NORM = torch.ops.aten._native_batch_norm_legit_functional.default
# Result -> argument whose dtype it has where that is given.
_LIKE = {1: 1, 2: 1, 3: 3, 4: 4}

Pair = tuple[torch.fx.GraphModule, torch.fx.GraphModule]


def cut(joint: torch.fx.GraphModule, inputs: Any, **keywords: Any) -> Pair:
    """A partition_fn of aot_autograd: what is cheaper computed again by the
    region that needs it than kept is not kept.

    torch's minimum cut reckons with fusion much as the engine fuses. It keeps
    what products, attention, random numbers and long chains of sums give.
    """
    from torch._functorch import partitioners

    describe_statistics(joint.graph)
    make: Any = partitioners.min_cut_rematerialization_partition
    if importlib.util.find_spec("networkx") is None:  # which it needs
        make = partitioners.default_partition
    found: Pair = make(joint, inputs, **keywords)
    return found


def describe_statistics(graph: torch.fx.Graph) -> None:
    """The statistics of batch norms get the dtype that they have.

    torch 2.13 says that those of bfloat16 and float16 inputs are saved in the
    input's dtype and kept running in float32; its kernel gives them the
    dtypes of weight and of the running statistics. Saved for the backward as
    torch says, they would be rounded.
    """
    for node in graph.find_nodes(op="call_function", target=_NORM):
        values = list(node.meta["val"])
        for i, like in _LIKE.items():
            given = node.args[like]
            if isinstance(given, torch.fx.Node):
                values[i] = _of_dtype(values[i], given.meta["val"].dtype)
        node.meta["val"] = tuple(values)
        for user in node.users:
            if user.target is operator.getitem:
                user.meta["val"] = values[user.args[1]]


def _of_dtype(value: Any, dtype: torch.dtype) -> Any:
    if value.dtype == dtype:
        return value
    with value.fake_mode:
        return torch.empty_like(value, dtype=dtype)
