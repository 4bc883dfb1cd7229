"""What torch's optimizers compute in Python floats, where nobody compiles them.

Eager's Adam has the number of its step as a Python float, and so the
corrections of its means, 1 - beta ** step, in double. Compiled it keeps the
number in a tensor of f32: 1 - 0.999 is off by 1.3e-5 there, and every parameter
moves by as much too little or too much. So numbers that follow from a power of
a tensor without axes are computed in double, in whatever lines of torch.optim
they are, and rounded once where a tensor with axes meets them.
"""

from __future__ import annotations

import operator
import os
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import corrections_lists

_POWERS = {operator.pow, torch.pow}
# What makes a number of numbers, as Dynamo writes it.
_PLAIN = {
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg),
    *(torch.add, torch.sub, torch.mul, torch.div, torch.neg, torch.sqrt),
    *(torch.pow, operator.pow, torch.reciprocal),
    *("add", "sub", "mul", "div", "neg", "sqrt", "pow", "reciprocal"),
}
_READS = _PLAIN | {operator.gt, operator.ge, operator.lt, operator.le}
_HOME = os.path.dirname(os.path.abspath(torch.optim.__file__)) + os.sep


def widen(gm: GraphModule) -> None:
    """gm: Dynamo's; made anew where it has such numbers."""
    changed = corrections_lists.widen(gm, _begins_list, _is_number)
    wide: set[Node] = set()
    for node in list(gm.graph.nodes):
        if _begins(node):
            node.args = (node.args[0], _cast(node, node.args[1], torch.float64))
            wide.add(node)
        elif _follows(node, wide):
            wide.add(node)
    for node in wide:
        _round(node, wide)
    if wide or changed:
        gm.recompile()


def _is_number(value: Any) -> bool:
    known = value.meta.get("example_value") if isinstance(value, Node) else None
    if not isinstance(known, torch.Tensor):
        return False
    return known.dtype is torch.float32 and known.dim() == 0


def _begins(node: Node) -> bool:
    """A number to the power of a tensor, in a line of torch.optim."""
    if node.target not in _POWERS or len(node.args) != 2 or node.kwargs:
        return False
    base, exponent = node.args
    return (
        isinstance(base, (int, float))
        and _is_number(exponent)
        and _is_number(node)
        and _stays(node)
        and _of_optimizer(node)
    )


def _begins_list(node: Node) -> bool:
    """The same of a list of tensors."""
    if node.target is not torch._foreach_pow or len(node.args) != 2:
        return False
    return isinstance(node.args[0], (int, float)) and _of_optimizer(node)


def _of_optimizer(node: Node) -> bool:
    """Is the innermost line that it comes from one of torch.optim?"""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    files = [line for line in lines if line.lstrip().startswith('File "')]
    return bool(files) and _HOME in files[-1]


def _stays(node: Node) -> bool:
    """Does nobody write it, or take a view of it?"""
    return all(
        user.target in _READS
        or (_is_later(node, user) and node not in user.kwargs.values())
        for user in node.users
    )


def _is_later(node: Node, user: Node) -> bool:
    """Is it none that the call could write?"""
    return bool(user.args) and user.args[0] is not node


def _follows(node: Node, wide: set[Node]) -> bool:
    return (
        node.target in _PLAIN
        and not node.kwargs
        and _is_number(node)
        and _stays(node)
        and any(of in wide for of in node.all_input_nodes)
    )


def _cast(before: Node, value: Any, dtype: torch.dtype) -> Node:
    with before.graph.inserting_before(before):
        cast = before.graph.call_method("to", (value, dtype))
    cast.meta = {k: v for k, v in before.meta.items() if k != "example_value"}
    return cast


def _round(node: Node, wide: set[Node]) -> None:
    """For who wants the number as it would have been."""
    users = [user for user in node.users if user not in wide]
    if users:
        rounded = _cast(node.next, node, torch.float32)
        for user in users:
            user.replace_input_with(node, rounded)
