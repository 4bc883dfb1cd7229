"""Random operators that a checkpoint inside a compiled function draws again.

AOTAutograd wraps them: forward keeps the generator's state of before, backward
draws from that state and puts the present one back. Here the wrappers become
what they do, so that the operators themselves are ordinary nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._guards import detect_fake_mode

hops = torch.ops.higher_order


def save_rng_state() -> torch.Tensor:
    return torch.default_generator.get_state()


def swap_rng_state(state: torch.Tensor) -> torch.Tensor:
    """Sets the state; the one of before is returned."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(state)
    return before


def restore_rng_state(state: torch.Tensor) -> None:
    torch.default_generator.set_state(state)


REASON = "the state of torch's generator, for a checkpoint that draws again"
CALLS = {save_rng_state, swap_rng_state, restore_rng_state}


def _value(x: Any) -> Any:
    return x.meta["val"] if isinstance(x, torch.fx.Node) else x


class _Expansion:
    """One wrapper's nodes, put in front of it."""

    def __init__(self, node: torch.fx.Node, first: int) -> None:
        """first: where the operator stands among the arguments."""
        self.node = node
        self.graph = node.graph
        self.op: Any = node.args[first]
        self.args = node.args[first + 1 :]
        values = torch.fx.node.map_arg((self.args, node.kwargs), _value)
        leaves = torch.utils._pytree.tree_leaves(values)
        self.values = values
        self.mode = detect_fake_mode(leaves)

    def call(self, target: Any, args: Any, kwargs: Any, value: Any) -> Any:
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(target, args, kwargs)
        made.meta = dict(self.node.meta)
        made.meta["val"] = value
        return made

    def state(self, target: Any, *args: Any) -> Any:
        size = torch.default_generator.get_state().shape
        with self.mode or torch.device("cpu"):
            value = torch.empty(size, dtype=torch.uint8, device="cpu")
        return self.call(target, args, {}, value)

    def operator(self) -> Any:
        args, kwargs = self.values
        with self.mode or torch.device("cpu"):
            value = self.op(*args, **kwargs)
        return self.call(self.op, self.args, self.node.kwargs, value)


def _expand_save(node: torch.fx.Node) -> None:
    """Its users are items: the state, and what the operator gives."""
    at = _Expansion(node, 0)
    parts = (at.state(save_rng_state), at.operator())
    for user in list(node.users):
        index: Any = user.args[1]
        user.replace_all_uses_with(parts[index])
        node.graph.erase_node(user)


def _expand_with(node: torch.fx.Node) -> None:
    at = _Expansion(node, 1)
    before = at.state(swap_rng_state, node.args[0])
    drawn = at.operator()
    at.call(restore_rng_state, (before,), {}, None)
    node.replace_all_uses_with(drawn)


_EXPANSIONS = {
    hops.run_and_save_rng_state: _expand_save,
    hops.run_with_rng_state: _expand_with,
}


def expand(graph: torch.fx.Graph) -> None:
    """Writes the wrappers of the graph out."""
    for target, write_out in _EXPANSIONS.items():
        for node in graph.find_nodes(op="call_function", target=target):
            write_out(node)
            graph.erase_node(node)
