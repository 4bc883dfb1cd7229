"""A node of the Ascend IR as FX nodes: rows of the engine's table read
backwards, or a kernel."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import torch

from .. import _native, schema
from . import registry
from .types import torch_dtype

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_IGNORED = ("Layout", "Device", "MemoryFormat", "Generator")


class _No(Exception):
    """This row cannot say it; the text is why."""


# ---- the table ----


def _parameters(op: str) -> list[str]:
    """Names of a row's parameters; "" for those that mean nothing."""
    described = _native.describe(op)
    assert described is not None
    text = described[0]
    inside = text[text.index("(") + 1 : text.rindex(" -> ")].rsplit(")", 1)[0]
    names = []
    for part in schema._split_parameters(inside):
        words = part.partition("=")[0].split(" ")
        plain = words[0].startswith(_IGNORED) or words[-1] == "pin_memory"
        names.append("" if plain else words[-1])
    return names


def _overload(op: str) -> Any:
    namespace, _, name = op.rpartition("::")
    packet, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops, namespace or "aten"), packet, None)
    return getattr(found, overload or "default", None)


@functools.cache
def _rows() -> dict[str, list[tuple[str, str, str | None]]]:
    """type -> [(op, when, arguments)]; None: parameters in order."""
    found: dict[str, list[tuple[str, str, str | None]]] = {}
    written = set()
    for op, kind, when, args in _native.ge_rows():
        written.add(op)
        found.setdefault(kind, []).append((op, when, args))
    for op in _native.ops():
        described = _native.describe(op)
        if described and described[2] and op not in written:
            found.setdefault(described[2], []).append((op, "", None))
    for rows in found.values():
        rows.sort(key=lambda r: bool(r[1]))
    return found


def _sources(
    found: registry.OpType, op: str, args: str | None
) -> dict[str, str]:
    """Field of the type -> parameter, literal or computed value."""
    fields = [f.name for f in found.inputs + found.attrs]
    if args is None:
        return dict(zip(fields, filter(None, _parameters(op)), strict=False))
    return dict(a.split("=", 1) for a in args.split())


# ---- values ----


def _constant(value: Any) -> Any:
    """Of a Const or a symbolic integer; _No: computed on the device."""
    if value is None or not hasattr(value, "fx"):
        return value
    if value.constant is not None:
        return value.constant
    fake = value.meta
    if not isinstance(fake, torch.Tensor):
        return value.fx
    raise _No(f"{value.tensor} must be a Const: it is an argument there")


def _convert(kind: str, value: Any) -> Any:
    """A field's value as an argument of a torch schema's type."""
    if "Tensor" in kind:
        if isinstance(value, (list, tuple)):
            return [None if v is None else v.fx for v in value]
        return value.fx if hasattr(value, "fx") else value
    value = _constant(value)
    if "List" in kind and not isinstance(value, (list, tuple)):
        return [value]
    if "List" not in kind and isinstance(value, (list, tuple)):
        if len(value) != 1:
            raise _No(f"one number is needed, {list(value)} were given")
        return value[0]
    return value


def _argument(name: str, kind: str, value: Any) -> Any:
    if name == "dtype" and value is not None:
        return torch_dtype(_constant(value))
    if name == "reduction" and value in _REDUCTIONS:
        return _REDUCTIONS[value]
    return _convert(kind, value)


def _literal(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"'):
        return text.strip('"')
    if text == "[]":
        return []
    return float(text) if "." in text else int(text)


def _condition(when: str) -> tuple[str, Any] | None:
    """`parameter=literal`: what the row passes there."""
    name, equal, text = when.partition("=")
    if not equal:
        return None
    try:
        return name, _literal(text)
    except ValueError:
        return name, text


def _call(
    found: registry.OpType, values: dict[str, Any], row: tuple[Any, ...]
) -> tuple[Any, dict[str, Any], list[int]]:
    """(overload, arguments by name, which result each output is)."""
    op, when, args = row
    target = _overload(op)
    if target is None:
        raise _No("torch has no such overload")
    sources = _sources(found, op, args)
    by_name = dict(zip(_parameters(op), target._schema.arguments, strict=False))
    given = {k: v for k, v in values.items() if v is not None}
    arguments: dict[str, Any] = {}
    for f in found.inputs + found.attrs:
        source = sources.get(f.name)
        value = given.pop(f.name, f.default)
        if source is None:
            if value is not None and value != f.default:
                raise _No(f"{f.name} has no counterpart in {op}")
        elif source == "%reduction":
            arguments["reduction"] = _REDUCTIONS[value]
        elif source in ("%results", "%count"):
            continue
        elif source == "%present":
            arguments["indices"] = _spread(arguments["indices"], value)
        elif source[0] in "%@":
            raise _No(f"{f.name} is computed")
        elif source in by_name:
            a = by_name[source]
            if value is not None:
                arguments[a.name] = _argument(source, str(a.type), value)
        elif _constant(value) != _literal(source) and value is not None:
            raise _No(f"{f.name} is {source} in {op}")
    extra = _condition(when)
    if extra is not None:
        arguments[by_name[extra[0]].name] = extra[1]
    order = [sources.get(o.name, f"%{i}") for i, o in enumerate(found.outputs)]
    return target, arguments, [int(s[1:]) for s in order if s[1:].isdigit()]


def _spread(indices: list[Any], mask: Any) -> list[Any]:
    """One entry per dimension, None where there is no index."""
    left = iter(indices)
    if not mask:
        return indices
    return [next(left) if m else None for m in mask]


# ---- nodes ----


def _items(at: Any, node: Any) -> list[Any]:
    """The results of a node, one by one."""
    value = node.meta["val"]
    if not isinstance(value, (tuple, list)):
        return [node]
    return [
        None if v is None else at.emit(operator.getitem, [node, i], None)
        for i, v in enumerate(value)
    ]


def _named(
    found: registry.OpType, results: list[Any], order: list[int]
) -> dict[str, Any]:
    if len(found.outputs) == 1 and found.outputs[0].is_list:
        return {found.outputs[0].name: results}
    pairs = zip(found.outputs, order, strict=False)
    return {o.name: results[i] for o, i in pairs if i < len(results)}


def _special(at: Any, found: registry.OpType, values: Any) -> Any:
    """Types that no operator of ATen has."""
    if found.name == "TensorMove":
        return at.emit(torch.ops.aten.clone.default, [values["x"].fx], None)
    return _assign(at, **values) if found.name == "Assign" else None


def _assign(at: Any, ref: Any, value: Any) -> Any:
    """The argument `ref` of the operator becomes `value`, as often as it
    takes to fill it."""
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    names = at.arguments.get(ref.fx)
    if names is None:
        raise RuntimeError(
            "Assign writes an argument of the operator that is converted; "
            f"{ref.tensor} is none"
        )
    size = torch.ops.aten.expand.default
    shape, given = list(ref.meta.shape), value.meta.shape
    same = len(shape) == len(given) and all(
        statically_known_true(a == b) for a, b in zip(shape, given, strict=True)
    )
    made = value.fx if same else at.emit(size, [value.fx, shape], None)
    at.outputs |= dict.fromkeys(names, made)
    return made


def _candidates(found: registry.OpType) -> Iterator[tuple[Any, ...]]:
    yield from _rows().get(found.name, ())


def lower(
    at: Any, found: registry.OpType, inputs: dict[str, Any], attrs: Any
) -> dict[str, Any]:
    """Output name -> FX node. RuntimeError: no row and no kernel can."""
    if found.kernel is not None:
        return _run_kernel(at, found, inputs, attrs)
    special = _special(at, found, inputs)
    if special is not None:
        return {found.outputs[0].name: special}
    reasons = []
    for row in _candidates(found):
        try:
            target, arguments, order = _call(found, inputs | attrs, row)
            node = at.emit(target, [], arguments)
        except (_No, TypeError, RuntimeError, ValueError) as why:
            reasons.append(f"{row[0]}: {str(why).splitlines()[0]}")
            continue
        return _named(found, _items(at, node), order)
    reason = "; ".join(reasons) or "the engine has no row for it"
    raise RuntimeError(
        f"operator type {found.name} cannot be computed here ({reason}). "
        "Give it a kernel: torchair.ge.register_op(prototype, kernel=f)"
    )


class Kernel:
    """The call of a registered kernel, as the target of an FX node: functional,
    referenced inputs are copied and given as outputs."""

    def __init__(self, found: registry.OpType) -> None:
        self.__name__ = self.__qualname__ = found.name
        self.found = found

    def __call__(self, *inputs: Any, **attrs: Any) -> Any:
        found = self.found
        fake = any(isinstance(x, torch._subclasses.FakeTensor) for x in inputs)
        call: Any = found.infer if fake and found.infer else found.kernel
        written = {
            f.name: x.clone()
            for f, x in zip(found.inputs, inputs, strict=True)
            if f.name in found.references
        }
        given = [
            written.get(f.name, x)
            for f, x in zip(found.inputs, inputs, strict=True)
        ]
        if isinstance(call, torch._ops.OpOverload):
            names = [f.name for f in found.inputs]
            made = call(**dict(zip(names, given, strict=True)), **attrs)
        else:
            made = call(*given, **attrs)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        others = iter(results)
        outs: list[Any] = []
        for o in found.outputs:
            if o.name in written:
                outs.append(written[o.name])
            elif o.is_list:
                outs.extend(others)
            else:
                outs.append(next(others))
        return outs[0] if len(found.outputs) == 1 and not o.is_list else outs


def _run_kernel(
    at: Any, found: registry.OpType, inputs: dict[str, Any], attrs: Any
) -> dict[str, Any]:
    arguments: list[Any] = []
    for f in found.inputs:
        x = inputs.get(f.name)
        if isinstance(x, (list, tuple)):
            arguments.append([None if t is None else t.fx for t in x])
        else:
            arguments.append(None if x is None else x.fx)
    plain = {f.name: f.default for f in found.attrs if f.default is not None}
    plain |= {n: _constant(v) for n, v in attrs.items()}
    node = at.emit(Kernel(found), arguments, plain)
    node.meta["host_reason"] = f"the kernel of operator type {found.name}"
    results = _items(at, node)
    return _named(found, results, list(range(len(results))))
