"""Factors that change from call to call, a learning rate above all.

Dynamo gives a Python float that changed a tensor as its place in the graph, and
AOTAutograd computes with the tensor where it can: in products, not in the
`alpha` of an addition. Every other float becomes a constant, and each change a
new compilation (until Dynamo gives up). So `x.add_(y, alpha=lr)` is written as
`x.copy_(fma(y, lr, x))` before AOTAutograd sees it, which is how eager rounds
it. Where that cannot be, in bf16 or without prims.fma, it is `x.add_(y * lr)`,
which rounds once more: not in reduce-overhead. The weight of `lerp`, the base
of `pow`, which a cycled momentum changes, and the number of a list's arithmetic
become tensors, in every mode.
"""

from __future__ import annotations

import functools
import importlib
import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

# Operator -> name of its factor; the operands that it is a factor of come
# first after the one that is added to.
_FACTORS = {
    "add": "alpha",
    "sub": "alpha",
    "addcmul": "value",
    "addcdiv": "value",
}
_SECOND = {"addcmul": torch.mul, "addcdiv": torch.div}
_METHODS = {name + end for name in _FACTORS for end in ("", "_")}
_FUNCTIONS: dict[Any, str] = {getattr(torch, n): n for n in _FACTORS}
_LISTS: dict[Any, str] = {
    getattr(torch, f"_foreach_{n}{end}"): n
    for n in _FACTORS
    for end in ("", "_")
}
# Operator -> place of a number that may be a tensor instead.
_OPERANDS: dict[Any, int] = {
    "lerp": 2,
    "lerp_": 2,
    torch.lerp: 2,
    torch._foreach_lerp: 2,
    torch._foreach_lerp_: 2,
    operator.pow: 0,
    torch.pow: 0,
    torch._foreach_pow: 0,
    **{
        getattr(torch, f"_foreach_{name}{end}"): 1
        for name in ("add", "sub", "mul", "div")
        for end in ("", "_")
    },
}
# Operator -> place of a factor whose sign may be the result's.
_SIGNED: dict[Any, int] = {
    torch.mul: 1,
    operator.mul: 1,  # of a reciprocal, under a default device
    operator.truediv: 0,
    torch.div: 0,
}


def free(gm: GraphModule, exact: bool) -> None:
    """gm: Dynamo's; made anew where a factor changes. exact: only where no
    rounding is added."""
    for node in list(gm.graph.nodes):
        _widen_addend(node)
    ways = [_free_number, _free_negated, _free_fused]
    ways += [] if exact else [_free_factor]
    changed = [n for n in gm.graph.nodes if any(way(n) for way in ways)]
    if changed:
        _drop_negated(gm)
        gm.recompile()


def _drop_negated(gm: GraphModule) -> None:
    """What _times left behind: a float that is computed is one that is used."""
    for node in reversed(gm.graph.nodes):
        if node.target is operator.neg and _changes(node) and not node.users:
            gm.graph.erase_node(node)


def _changes(value: Any) -> bool:
    return isinstance(_known(value), torch.SymFloat)


def _known(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else None


def _of_one_dtype(*values: Any) -> bool:
    """Are they tensors of floats, whose product needs no other dtype?"""
    known = [_known(v) for v in values]
    if not all(isinstance(t, torch.Tensor) for t in known):
        return False
    found = {t.dtype for t in known}
    return len(found) == 1 and found.pop().is_floating_point


def _free_number(node: Node) -> bool:
    """Of one node: a tensor of the same number. False: it has no such one."""
    if node.op == "call_function" and node.target is torch.full_like:
        return _free_filled(node)
    if node.op not in ("call_function", "call_method"):
        return False
    place = _OPERANDS.get(node.target)
    return place is not None and _free_operand(node, place)


def _free_negated(node: Node) -> bool:
    """x * -factor, as Dynamo writes an addition with a factor up to 2.11, and
    -factor / x of Adagrad's lists. The sign becomes the result's."""
    place = _SIGNED.get(node.target)
    if place is None or len(node.args) != 2 or node.kwargs:
        return False
    factor, other = node.args[place], node.args[1 - place]
    negated = isinstance(factor, Node) and factor.target is operator.neg
    if not negated or not _changes(factor) or not _is_tensor(other):
        return False
    args: list[Any] = [other, other]
    args[place] = factor.args[0]  # type: ignore[union-attr]
    plain = _call(node, node.target, *args)
    _free_negated(plain)
    node.target, node.args = torch.neg, (plain,)
    return True


def _is_tensor(value: Any) -> bool:
    return isinstance(_known(value), torch.Tensor)


def _is_fma(node: Node) -> bool:
    known = getattr(torch.ops.prims, "fma", None)
    return known is not None and node.target is known.default


@functools.cache
def _fma() -> Any:
    """prims.fma, which Inductor registers; None: torch has none. Dynamo imports
    Inductor when it traces an optimizer."""
    try:
        importlib.import_module("torch._inductor.inductor_prims")
        return torch.ops.prims.fma.default
    except (ImportError, AttributeError):
        return None


def _factor(node: Node) -> str | None:
    """Its operator, where a factor changes and operands have one dtype."""
    name = _name(node)
    if name is None or not _changes(node.kwargs.get(_FACTORS[name])):
        return None
    wanted = 3 if name in _SECOND else 2
    if len(node.args) != wanted or len(node.kwargs) != 1:
        return None
    return name if all(_of_one_dtype(*r) for r in _rows(node)) else None


def _widen_addend(node: Node) -> None:
    """x.add_(y, alpha=lr) of a shorter y, as Muon's of bf16: eager's kernel
    converts y first."""
    if _name(node) not in ("add", "sub") or len(node.args) != 2:
        return
    x, y = _known(node.args[0]), _known(node.args[1])
    if (
        _changes(node.kwargs.get("alpha"))
        and isinstance(x, torch.Tensor)
        and isinstance(y, torch.Tensor)
        and y.dtype.is_floating_point
        and y.dtype != x.dtype == torch.result_type(x, y)
    ):
        wide = _call(node, torch.Tensor.to, node.args[1], x.dtype)
        wide.meta["example_value"] = y.to(x.dtype)
        node.args = (node.args[0], wide)


def _free_fused(node: Node) -> bool:
    """Of one node: what rounds as its kernel does. False: there is no such."""
    if _is_fma(node):
        return _free_operand(node, 1)
    name = _factor(node)
    if name is None or (name != "addcdiv" and _fma() is None):
        return False
    rows, inplace = _rows(node), _is_inplace(node)
    if node.target in _LISTS and not inplace:
        return False
    if not all(_is_exact(r[0]) and _of_one_shape(*r) for r in rows):
        return False
    factor: Any = node.kwargs[_FACTORS[name]]
    sums: Any = [_fused(node, name, factor, *row) for row in rows]
    if not inplace:
        node.replace_all_uses_with(sums[0])
        sums[0].meta = dict(node.meta)
        node.graph.erase_node(node)
        return True
    node.kwargs = {}
    if node.target in _LISTS:
        node.target, node.args = torch._foreach_copy_, (node.args[0], sums)
    else:
        node.op, node.target = "call_method", "copy_"
        node.args = (node.args[0], sums[0])
    return True


def _fused(at: Node, name: str, factor: Node, x: Node, *of: Any) -> Node:
    """x and its addend, as src/ir/ops.def has them."""
    if name == "addcdiv":
        return _call(at, torch.add, x, _product(at, name, factor, *of))
    if name == "addcmul":
        return _call(at, _fma(), _times(at, of[0], factor), of[1], x)
    filled = _filled(at, of[0], factor)
    if name == "sub":
        filled = _call(at, torch.neg, filled)
    return _call(at, _fma(), of[0], filled, x)


def _of_one_shape(*values: Any) -> bool:
    first, *others = (_known(v).shape for v in values)
    return all(_are_equal(first, shape) for shape in others)


def _are_equal(a: torch.Size, b: torch.Size) -> bool:
    """Whatever the symbols in them, which have no hash."""
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(
        statically_known_true(x == y) for x, y in pairs
    )


def _is_inplace(node: Node) -> bool:
    return getattr(node.target, "__name__", str(node.target)).endswith("_")


def _free_factor(node: Node) -> bool:
    """Of one node: a product. False: it has no such factor."""
    if _is_fma(node):
        return _free_fma(node)
    name = _factor(node)
    if name is None:
        return False
    factor: Any = node.kwargs[_FACTORS[name]]
    rows = _rows(node)
    added: Any = [_product(node, name, factor, *row[1:]) for row in rows]
    if node.target not in _LISTS:
        (added,) = added
    node.args, node.kwargs = (node.args[0], added), {}
    if name in _SECOND:
        node.target = _plain(node)
    return True


def _rows(node: Node) -> list[Any]:
    """Operands, of lists one by one; [()]: they are no lists."""
    if node.target not in _LISTS:
        return [node.args]
    lists: Any = node.args
    if not all(isinstance(of, (list, tuple)) for of in lists):
        return [()]
    return list(zip(*lists, strict=True))


def _name(node: Node) -> str | None:
    if node.op == "call_method" and node.target in _METHODS:
        return str(node.target).removesuffix("_")
    if node.op != "call_function":
        return None
    return _FUNCTIONS.get(node.target) or _LISTS.get(node.target)


def _call(at: Node, function: Any, *args: Any) -> Node:
    """A call before node `at`, from the same line of Python."""
    with at.graph.inserting_before(at):
        call = at.graph.call_function(function, args)
    call.meta = {k: v for k, v in at.meta.items() if k != "example_value"}
    return call


def _product(at: Node, name: str, factor: Node, *of: Any) -> Node:
    value = _times(at, of[0], factor)
    return _call(at, _SECOND[name], value, of[1]) if name in _SECOND else value


def _plain(node: Node) -> Any:
    """The addition for a node of addcmul or addcdiv."""
    if node.op == "call_method":
        return "add_" if _is_inplace(node) else "add"
    if node.target in _FUNCTIONS:
        return torch.add
    return torch._foreach_add_ if _is_inplace(node) else torch._foreach_add


def _free_fma(node: Node) -> bool:
    """fma(x, factor, y), as Dynamo writes addcdiv and addcmul."""
    if len(node.args) != 3 or not _changes(node.args[1]):
        return False
    x, factor, y = node.args
    if not _of_one_dtype(x, y):
        return False
    node.target, node.args = torch.add, (y, _times(node, x, factor))
    return True


def _free_operand(node: Node, place: int) -> bool:
    """A tensor of the same number; in a list, one for each tensor."""
    if len(node.args) <= place or not _changes(node.args[place]):
        return False
    args: list[Any] = list(node.args)
    factor, other = args.pop(place), args[0]
    many = isinstance(other, (list, tuple))
    rows = zip(*args, strict=True) if many else [args]
    if not all(_of_one_dtype(*row) and _is_exact(row[0]) for row in rows):
        return False
    filled = [_filled(node, x, factor) for x in (other if many else [other])]
    args.insert(place, filled if many else filled[0])
    node.args = tuple(args)
    return True


def _free_filled(node: Node) -> bool:
    """full_like(x, factor), as Dynamo writes lists of lerp."""
    if len(node.args) != 2 or node.kwargs or not _changes(node.args[1]):
        return False
    like: Any = node.args[0]
    if not _of_one_dtype(like):
        return False
    ones = _call(node, torch.ones_like, like)
    node.target, node.args = torch.mul, (ones, node.args[1])
    return True


def _is_exact(node: Node) -> bool:
    """Eager computes with a number of its tensors' own precision."""
    return _known(node).dtype in (torch.float32, torch.float64)


def _filled(at: Node, like: Node, factor: Node) -> Node:
    return _times(at, _call(at, torch.ones_like, like), factor)


def _times(at: Node, x: Any, factor: Any) -> Node:
    """x * factor. Torch 2.11 makes a constant of a float with a sign before
    it, so that is the product's, which is rounded as it is."""
    if isinstance(factor, Node) and factor.target is operator.neg:
        return _call(at, torch.neg, _times(at, x, factor.args[0]))
    return _call(at, torch.mul, x, factor)
