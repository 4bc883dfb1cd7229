"""Operator types: their inputs, attributes and outputs in order, and kernels.

A prototype reads `Conv2D(x, filter, bias?; strides:ListInt!, groups:Int=1) ->
y`: `?` may be absent, `[]` is a list, `!` must be given. The engine's table
(src/ir/ge.def) has the standard ones; `register_op` adds more.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from . import attr, types


@dataclass(frozen=True)
class Field:
    name: str
    optional: bool = False
    is_list: bool = False
    kind: str = ""  # of attributes
    required: bool = False
    default: Any = None


@dataclass
class OpType:
    name: str
    inputs: list[Field]
    attrs: list[Field]
    outputs: list[Field]
    kernel: Callable[..., Any] | None = None
    infer: Callable[..., Any] | None = None
    references: list[str] = field(default_factory=list)  # written inputs

    def __post_init__(self) -> None:
        names = {i.name for i in self.inputs}
        self.references = [o.name for o in self.outputs if o.name in names]


def _split(text: str) -> list[str]:
    parts = re.split(r",(?![^{]*\})", text)
    return [p.strip() for p in parts if p.strip()]


def _default(text: str, kind: str) -> Any:
    if text.startswith("DT_"):
        return getattr(types.DataType, text)
    if kind == "Bool":
        return text.lower() in ("true", "1")
    try:
        if kind == "Float":
            return float(text)
        return ast.literal_eval(text.replace("{", "[").replace("}", "]"))
    except (ValueError, SyntaxError):
        raise ValueError(
            f"prototype: the default {text} is no {kind}"
        ) from None


def _tensor(text: str) -> Field:
    name = text.rstrip("?").removesuffix("[]")
    return Field(name, optional="?" in text, is_list=text.endswith("[]"))


def _attr(text: str) -> Field:
    name, _, rest = text.partition(":")
    kind, has_default, default = rest.rstrip("!").partition("=")
    return Field(
        name.strip(),
        kind=kind,
        is_list=kind.startswith("List"),
        required=text.endswith("!"),
        default=_default(default, kind) if has_default else None,
    )


_FORM = re.compile(r"\s*([A-Za-z]\w*)\s*\(([^;)]*)(?:;([^)]*))?\)\s*->\s*(.*)")


def parse(prototype: str) -> OpType:
    """ValueError: it does not read like the ones above."""
    if not isinstance(prototype, str):
        raise TypeError(f"prototype is a str, not {type(prototype).__name__}")
    found = _FORM.fullmatch(prototype)
    if found is None:
        raise ValueError(
            f"prototype {prototype!r}: write it like "
            '"MyOp(x, y?; axis:Int!, eps:Float=1e-5) -> z"'
        )
    name, inputs, attrs, outputs = found.groups()
    return OpType(
        name,
        [_tensor(t) for t in _split(inputs)],
        [_attr(t) for t in _split(attrs or "")],
        [_tensor(t) for t in _split(outputs.strip().strip("()"))],
    )


def _check(made: OpType) -> None:
    """ValueError: names or kinds of a user's prototype."""
    for group in (made.inputs + made.attrs, made.outputs):
        names = [f.name for f in group]
        for name in names:
            if not name.isidentifier():
                raise ValueError(
                    f"prototype of {made.name}: {name!r} is no name"
                )
            if names.count(name) > 1:
                raise ValueError(
                    f"prototype of {made.name}: {name} stands there twice"
                )
    for f in made.attrs:
        if f.kind not in attr.KINDS:
            raise ValueError(
                f"prototype of {made.name}: attribute {f.name} has the "
                f"unknown kind {f.kind!r}; there are {', '.join(attr.KINDS)}"
            )


_registered: dict[str, OpType] = {}


@functools.cache
def _standard() -> dict[str, str]:
    return {p.partition("(")[0]: p for p in _native.ge_prototypes()}


def find(name: str) -> OpType | None:
    if name in _registered:
        return _registered[name]
    text = _standard().get(name)
    return None if text is None else _parse_standard(text)


@functools.cache
def _parse_standard(text: str) -> OpType:
    return parse(text.replace("=DT_", "=DT_"))


def register_op(
    prototype: str,
    kernel: Callable[..., Any] | None = None,
    infer: Callable[..., Any] | None = None,
) -> OpType:
    """Makes an operator type known to `custom_op` and to automatic converters.

    prototype: "MyOp(x, y?, z[]; attr1:Float!) -> out". An output of an input's
    name is that input, written in place.
    kernel(*inputs, **attrs): a function of torch tensors (None for an absent
    one, lists for lists) that gives the other outputs in order; it writes
    referenced inputs itself.
    infer: the same arguments, on meta tensors; None: the kernel is traced.
    ValueError: a prototype that cannot be read; a name taken with another one.
    TypeError: a kernel or infer that is no function.
    """
    made = parse(prototype)
    _check(made)
    for what, f in (("kernel", kernel), ("infer", infer)):
        if f is not None and not callable(f):
            raise TypeError(f"{what} is a function, not {type(f).__name__}")
    known = find(made.name)
    if known is not None and (known.inputs, known.attrs, known.outputs) != (
        made.inputs,
        made.attrs,
        made.outputs,
    ):
        raise ValueError(
            f"operator type {made.name} is registered with another "
            "prototype: take another name"
        )
    made.kernel, made.infer = kernel, infer
    _registered[made.name] = made
    return made


def camel_case(name: str) -> str:
    """ "my_op_functional" -> "MyOp"."""
    parts = name.removesuffix("_functional").split("_")
    return "".join(p[:1].upper() + p[1:] for p in parts)


_SCHEMA_KINDS = {
    "int": "Int",
    "float": "Float",
    "bool": "Bool",
    "str": "String",
    "List[int]": "ListInt",
    "List[float]": "ListFloat",
    "List[bool]": "ListBool",
    "List[str]": "ListString",
}


def of_operator(op: Any) -> OpType:
    """The type that an operator of torch stands for: itself, CamelCase.

    RuntimeError: its schema has what an operator type cannot have.
    """
    schema = op._schema
    inputs, attrs, outputs = [], [], []
    for a in schema.arguments:
        text = str(a.type)
        base = text.removeprefix("Optional[").removesuffix("]")
        if text in ("Tensor", "Optional[Tensor]"):
            inputs.append(Field(a.name, optional=text != "Tensor"))
        elif text in ("List[Tensor]", "List[Optional[Tensor]]"):
            inputs.append(Field(a.name, is_list=True))
        elif text == "number" or "Scalar" in text:
            raise RuntimeError(f"{op}: argument {a.name} is a Scalar")
        else:
            kind = _SCHEMA_KINDS.get(text, _SCHEMA_KINDS.get(base, "Any"))
            attrs.append(Field(a.name, kind=kind, default=a.default_value))
        if a.alias_info is not None and a.alias_info.is_write:
            outputs.append(Field(a.name))
    for i, r in enumerate(schema.returns):
        name = r.name or f"#{i}"  # what a user calls it is right
        outputs.append(Field(name, is_list=str(r.type) == "List[Tensor]"))
    return OpType(
        camel_case(schema.name.partition("::")[2]),
        inputs,
        attrs,
        outputs,
        kernel=op,
    )
