"""What a program is made of as data that JSON can say, and back.

Plain values stand for themselves, lists for lists; anything else is
{"is": kind, "of": data}. Nothing that is read here is executed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import comm, hosts, images, sizes

_PLAIN = (bool, int, float, str, type(None))
_TORCH = (torch.dtype, torch.layout, torch.memory_format)


class Unwritable(Exception):
    """Something that cannot be written, as a reason for the user."""


class Group(str):
    """The name of a process group."""


def encode(x: Any) -> Any:
    """Unwritable: there is no data for it."""
    if type(x) in _PLAIN:
        return x
    if type(x) is list:
        return [encode(y) for y in x]
    for kind, (types, write, _) in _KINDS.items():
        if isinstance(x, types):
            return {"is": kind, "of": write(x)}
    raise Unwritable(f"an argument of an operator is a {type(x).__name__}")


def decode(x: Any) -> Any:
    """ValueError: nothing is written this way."""
    if type(x) in _PLAIN:
        return x
    if type(x) is list:
        return [decode(y) for y in x]
    if type(x) is not dict or x.get("is") not in _KINDS:
        raise ValueError(f"{x!r} is no value of a program")
    return _KINDS[x["is"]][2](x.get("of"))


# ---- kinds ----


def _text(x: Any) -> str:
    if type(x) is not str:
        raise ValueError(f"{x!r} has to be text")
    return x


def _torch_name(x: Any) -> Any:
    found = getattr(torch, _text(x).removeprefix("torch."), None)
    if not isinstance(found, _TORCH):
        raise ValueError(f"torch has no {x}")
    return found


def _op_name(op: Any) -> str:
    return f"{op._schema.name}.{op._overloadname}"


@functools.cache
def _op(name: str) -> Any:
    space, _, rest = _text(name).partition("::")
    packet, _, overload = rest.rpartition(".")
    try:
        return getattr(getattr(getattr(torch.ops, space), packet), overload)
    except AttributeError:
        raise ValueError(
            f"there is no operator {name} in this process; register it "
            "before the first call"
        ) from None


def call_data(call: Any) -> Any:
    """The call of a HOST node as data; `call_of` makes it again."""
    found: tuple[str | None, tuple[Any, ...]]
    found = getattr(call, "parts", (None, ()))
    kind, parts = found
    if kind is None:
        raise Unwritable("an operator runs through a function of this process")
    if kind == "start":
        name, inner, number = parts
        return [kind, name, call_data(inner), number]
    if kind == "wait":
        return [kind, *parts]
    target, args, kwargs, *how = parts
    args, kwargs = _with_groups(target, args, kwargs)
    rest = [_target(target), args, kwargs, *how]
    return [kind, *(encode(x) for x in rest)]


class _Sends:
    """comm.isend, which is no operator."""


def _target(target: Any) -> Any:
    if target is comm.isend:
        return _Sends()
    if isinstance(target, images.Last):
        return target
    if not isinstance(target, torch._ops.OpOverload):
        raise Unwritable(f"{target} is no operator with a schema")
    return target


def _with_groups(target: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Names of process groups are of this process, so they are marked."""
    if target is comm.isend:
        return [*args[:3], Group(args[3])], kwargs
    schema = getattr(target, "_schema", None)
    if getattr(target, "namespace", "") != comm.NAMESPACE or schema is None:
        return args, kwargs
    names = [a.name for a in schema.arguments]
    marked = [
        Group(a) if name == "group_name" and isinstance(a, str) else a
        for name, a in zip(names, args, strict=False)
    ]
    return marked, {
        k: Group(v) if k == "group_name" and isinstance(v, str) else v
        for k, v in kwargs.items()
    }


def call_of(data: Any) -> hosts.Call:
    """ValueError, TypeError: it is not what `call_data` writes."""
    kind, *parts = data
    if kind == "start":
        name, inner, number = parts
        return comm.starting(_text(name), call_of(inner), int(number))
    if kind == "wait":
        return comm.waiting(*parts)
    if kind != "call":
        raise ValueError(f"{kind!r} is no call of an operator")
    target, *rest = (decode(x) for x in parts)
    if isinstance(target, _Sends):
        target = comm.isend
    return hosts.make_call(target, *rest)


def _size_data(size: hosts.Size) -> Any:
    return computed_data(size.value)


def computed_data(call: Callable[..., Any]) -> Any:
    """Of a function that `sizes.evaluator` gave."""
    formula = getattr(call, "formula", None)
    if formula is None:
        raise Unwritable("a size of an operator is no formula of + * //")
    return formula


def _last(parts: Any) -> images.Last:
    name, places = parts
    return images.Last(_op(name), set(places))


def _ranks(name: str) -> list[int]:
    return list(torch.distributed.get_process_group_ranks(comm.resolve(name)))


def _group(ranks: Any) -> str:
    """AssertionError: this process has no such group."""
    name = comm.find_group(ranks)
    if name is None:
        raise AssertionError(
            f"the cached graph has a collective among ranks {ranks}, for "
            "which this process has no group; make it before the first call"
        )
    return name


_KINDS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "operand": (hosts.Operand, int, hosts.Operand),
    "size": (hosts.Size, _size_data, lambda f: hosts.Size(sizes.computed(f))),
    "group": (Group, _ranks, _group),
    "tuple": (tuple, lambda x: [encode(y) for y in x], lambda x: (*decode(x),)),
    "dict": (
        dict,
        lambda x: [[encode(k), encode(v)] for k, v in x.items()],
        lambda x: {decode(k): decode(v) for k, v in x},
    ),
    "torch": (_TORCH, str, _torch_name),
    "device": (torch.device, str, lambda x: torch.device(_text(x))),
    "op": (torch._ops.OpOverload, _op_name, _op),
    "last": (
        images.Last,
        lambda x: [_op_name(x.target), sorted(x.images)],
        _last,
    ),
    "sends": (_Sends, lambda x: None, lambda x: _Sends()),
    "complex": (complex, lambda x: [x.real, x.imag], lambda x: complex(*x)),
    "slice": (
        slice,
        lambda x: [encode(y) for y in (x.start, x.stop, x.step)],
        lambda x: slice(*decode(x)),
    ),
}
