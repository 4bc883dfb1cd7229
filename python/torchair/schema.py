"""From a torch operator to a row of the engine's op table.

The table's schemas have ATen's parameters in ATen's order, so an argument is
converted by position; what a parameter takes is read from the table.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import _native
from .compat import HOST_DEVICES
from .operators import remembered
from .sizes import Sizes, is_symbolic

# air_attr_kind of air.h
NONE, VALUE, VALUES, INT, INTS, FLOAT, FLOATS, BOOL, BOOLS, DTYPE, STR = range(
    11
)

Attr = tuple[int, Any]
with_effects = torch.ops.higher_order.with_effects
# The first and the last of the tokens that order effects.
TOKENS = (
    torch.ops.prims._make_token.default,
    torch.ops.prims._sink_tokens.default,
)
NO_ROW = "no row in the op table"  # why a node goes to HOST, if nothing else

DTYPES: dict[torch.dtype, tuple[int, bool]] = {
    getattr(torch, name): row
    for name, row in _native.dtypes().items()
    if hasattr(torch, name)
}
DTYPE_NAMES = {d: str(d).removeprefix("torch.") for d in DTYPES}


class Refused(Exception):
    """The engine cannot take this node; the text is the reason."""


@dataclass
class Row:
    """How one operator overload is handed to the engine."""

    name: str
    params: list[str]  # ATen's names
    convert: list[Callable[[Importing, Any], Attr]]
    nresults: int
    kinds: frozenset[str]  # its name and its class


class Importing:
    """What converters need of the import that runs."""

    sizes: Sizes
    refs: dict[Any, int]  # of tensors

    def ref(self, node: Any) -> int:
        raise NotImplementedError


# ---- converters: one per kind of parameter ----


_LEAST, _MOST = -(2**63), 2**63 - 1


def _symbolic(x: Any) -> Any:
    """The number behind an FX node, symbolic or plain."""
    return x.meta["val"] if isinstance(x, torch.fx.Node) else x


def _integer(at: Importing, x: Any) -> int:
    if type(x) is int and _LEAST <= x <= _MOST:  # nearly all
        return at.sizes.dim(x)
    x = _symbolic(x)
    if isinstance(x, torch.SymInt) or (
        is_symbolic(x) and isinstance(x, torch.SymInt)
    ):
        return at.sizes.dim(x)
    try:
        value = operator.index(x)
    except TypeError:
        raise Refused(f"{type(x).__name__} where an integer is due") from None
    if not _LEAST <= value <= _MOST:
        raise Refused("an integer beyond 64 bits")
    return at.sizes.dim(value)


def _number(at: Importing, x: Any) -> Attr:
    x = _symbolic(x)
    if isinstance(x, bool):
        return BOOL, x
    if isinstance(x, (int, torch.SymInt)):
        return INT, _integer(at, x)
    if isinstance(x, float):
        return FLOAT, x
    raise Refused(f"a number of type {type(x).__name__}")


def _tensor(at: Importing, x: Any) -> Attr:
    if type(x) is torch.fx.Node and (ref := at.refs.get(x)) is not None:
        return VALUE, ref
    if isinstance(x, torch.fx.Node) and isinstance(
        x.meta.get("val"), torch.Tensor
    ):
        return VALUE, at.ref(x)
    return _number(at, x)


def _tensors(at: Importing, x: Any) -> Attr:
    return VALUES, [None if t is None else at.ref(t) for t in x]


def _int(at: Importing, x: Any) -> Attr:
    return INT, _integer(at, x)


def _ints(at: Importing, x: Any) -> Attr:
    if not isinstance(x, (list, tuple, torch.Size)):
        x = [x]
    return INTS, [_integer(at, i) for i in x]


def _plain_float(x: Any) -> float:
    x = _symbolic(x)
    if isinstance(x, (int, float)):
        return float(x)
    raise Refused(f"a float of type {type(x).__name__}")


def _float(_at: Importing, x: Any) -> Attr:
    return FLOAT, _plain_float(x)


def _floats(_at: Importing, x: Any) -> Attr:
    items = x if isinstance(x, (list, tuple)) else [x]
    return FLOATS, [_plain_float(i) for i in items]


def _plain_bool(x: Any) -> bool:
    x = _symbolic(x)
    if isinstance(x, (bool, int)):
        return bool(x)
    raise Refused(f"a bool of type {type(x).__name__}")


def _bool(_at: Importing, x: Any) -> Attr:
    return BOOL, _plain_bool(x)


def _bools(_at: Importing, x: Any) -> Attr:
    return BOOLS, [_plain_bool(i) for i in x]


def _dtype(_at: Importing, x: Any) -> Attr:
    row = DTYPES.get(x)
    if row is None or not row[1]:
        raise Refused(f"{x} has no arithmetic in the engine")
    return DTYPE, row[0]


def _str(_at: Importing, x: Any) -> Attr:
    return STR, x


def _ignored(_at: Importing, x: Any) -> Attr:
    if isinstance(x, torch.device) and x.type not in (*HOST_DEVICES, "cuda"):
        raise Refused(f"a tensor on device {x}")
    if isinstance(x, torch.layout) and x != torch.strided:
        raise Refused(f"a tensor of layout {x}")
    if isinstance(x, torch.Generator):
        raise Refused("a generator of the user")
    return NONE, None


_CONVERTERS: dict[str, Callable[[Importing, Any], Attr]] = {
    "Tensor": _tensor,
    "Tensor[]": _tensors,
    "int": _int,
    "SymInt": _int,
    "int[]": _ints,
    "SymInt[]": _ints,
    "float": _float,
    "float[]": _floats,
    "bool": _bool,
    "bool[]": _bools,
    "Scalar": _number,
    "ScalarType": _dtype,
    "str": _str,
}


# ---- rows ----


def _split_parameters(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p and p != "*"]


def parameter_kinds(schema: str) -> list[str]:
    """The types in a schema: Tensor?[] and int[2] become Tensor[], int[]."""
    inside = schema[schema.index("(") + 1 : schema.rindex(" -> ")]
    inside = inside[: inside.rindex(")")]
    kinds = []
    for part in _split_parameters(inside):
        kind = part.split(" ")[0]
        kind = re.sub(r"\([a-z!| *>\-]*\)", "", kind).replace("?", "")
        kinds.append(re.sub(r"\[\d*\]", "[]", kind))
    return kinds


def operator_name(target: Any) -> str:
    """ "add.Tensor" for aten; the namespace stays for others."""
    schema = target._schema
    name: str = schema.name.removeprefix("aten::")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


def argument(node: torch.fx.Node, index: int, name: str, default: Any) -> Any:
    """By place or by name, as the node has it."""
    if index < len(node.args):
        return node.args[index]
    return node.kwargs.get(name, default)


@remembered
def find_row(target: Any) -> Row | None:
    """The row of an operator; None where the table has none."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    described = _native.describe(operator_name(target))
    if described is None:
        return None
    kinds = parameter_kinds(described[0])
    params = [a.name for a in target._schema.arguments]
    if len(kinds) != len(params):
        return None
    return Row(
        operator_name(target),
        params,
        [_CONVERTERS.get(k, _ignored) for k in kinds],
        len(target._schema.returns),
        frozenset((operator_name(target), described[1])),
    )


def attributes(at: Importing, row: Row, args: Any, kwargs: Any) -> list[Any]:
    """[kind, value, kind, value, ...] by position in the schema."""
    out: list[Any] = []
    for convert, x in zip(row.convert, args, strict=False):
        out += (NONE, None) if x is None else convert(at, x)
    for name, x in kwargs.items():
        i = row.params.index(name)
        while len(out) <= 2 * i:
            out += (NONE, None)
        if x is not None:
            out[2 * i : 2 * i + 2] = row.convert[i](at, x)
    return out


def permuted(
    at: Any, node: torch.fx.Node, ref: int, order: Any, value: torch.Tensor
) -> int:
    """A node that gives `value`: the axes of ref in this order."""
    attrs = [VALUE, ref, INTS, at.sizes.dims(order)]
    return int(at.add(node, "permute", attrs, value))


def narrowed(
    at: Any, ref: int, found: Sequence[int], wanted: Sequence[int]
) -> int:
    """The value, where torch knows sizes of it to be 1, with these as 1."""
    one = at.sizes.dim(1)
    known = [w if w == one else f for f, w in zip(found, wanted, strict=True)]
    if known == list(found):
        return ref
    (ref,) = at.graph.node("view", [VALUE, ref, INTS, known], None, 1)
    return ref


def namespace_of(target: Any) -> str:
    """Of an operator, "" where it has none."""
    return str(getattr(target, "namespace", ""))


def mutates(node: torch.fx.Node) -> bool:
    """Its operand must stay the input that it writes."""
    schema_of = getattr(node.target, "_schema", None)
    return schema_of is not None and schema_of.is_mutable


def target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return operator_name(target)
    return getattr(target, "__name__", str(target))


def is_random(target: Any) -> bool:
    """Does the operator draw from a generator?"""
    tags = getattr(target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def bound(node: Any) -> dict[str, Any]:
    """The arguments of an operator's node by their names, with defaults."""
    found = {}
    for i, a in enumerate(node.target._schema.arguments):
        default = a.default_value if a.has_default_value() else None
        found[a.name] = (
            node.args[i]
            if i < len(node.args)
            else node.kwargs.get(a.name, default)
        )
    return found


def draws(node: Any) -> bool:
    """Does this node draw? Attention is tagged as if it did, and draws only
    where it drops weights."""
    return is_random(node.target) and bound(node).get("dropout_p") != 0


def base_of(x: Any) -> Any:
    """The FX node that x is a view of: x, where it is none."""
    while (source := viewed(x)) is not None:
        x = source
    return x


def viewed(x: torch.fx.Node) -> torch.fx.Node | None:
    """The argument that x, or the list that x is of, is a view of."""
    many: Any = x.args[0] if x.target is operator.getitem else x
    if not isinstance(getattr(many, "target", None), torch._ops.OpOverload):
        return None
    returns = many.target._schema.returns
    alias = returns[0].alias_info if len(returns) == 1 else None
    if alias is None or alias.is_write or not many.args:
        return None
    return many.args[0] if isinstance(many.args[0], torch.fx.Node) else None


def is_token(node: torch.fx.Node) -> bool:
    """Tokens order effects; the engine keeps HOST nodes in order anyway, and
    torch passes None for them."""
    return any(
        u.target is with_effects and u.args[0] is node for u in node.users
    )


def number_of(value: Any) -> Any:
    """None for the value of a token, which is a tensor."""
    return None if isinstance(value, torch.Tensor) else value


def first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def used_items(node: torch.fx.Node) -> set[Any]:
    """Which results of several are looked at."""
    items = (u for u in node.users if u.target is operator.getitem)
    return {u.args[1] for u in items if u.users}
