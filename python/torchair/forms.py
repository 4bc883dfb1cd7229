"""An ATen operator in its other forms: functional, in place, with out=."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch


def _signature(argument: Any) -> Any:
    return argument.name, str(argument.type), argument.default_value


def inputs_of(func: Any) -> list[Any]:
    """Signatures of the arguments that are not out=."""
    return [_signature(a) for a in func._schema.arguments if not a.is_out]


def writes(func: Any) -> list[Any]:
    """The arguments that it writes, by its schema."""
    return [
        a
        for a in func._schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    ]


def _overloads(func: Any, name: str) -> Iterator[Any]:
    packet = getattr(getattr(torch.ops, func.namespace), name, None)
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        if inputs_of(found) == inputs_of(func):
            yield found


def _name(func: Any) -> str:
    return str(func._schema.name.partition("::")[2])


@functools.cache
def functional(func: Any) -> Any:
    """The overload that computes what `func` writes; None: there is none."""
    for found in _overloads(func, _name(func).removesuffix("_")):
        schema = found._schema
        if not schema.is_mutable and len(schema.returns) == len(writes(func)):
            return found
    return None


@functools.cache
def in_place(func: Any) -> Any:
    """The overload that writes the one result of `func` into its first
    argument; None: there is none."""
    if len(func._schema.returns) != 1 or func._schema.is_mutable:
        return None
    for found in _overloads(func, _name(func) + "_"):
        written = writes(found)
        if len(written) == 1 and written[0] is found._schema.arguments[0]:
            return found
        if [a.name for a in written] == [found._schema.arguments[0].name]:
            return found
    return None


@functools.cache
def with_out(func: Any) -> Any:
    """The overload that writes the one result of `func` into out=; None:
    there is none."""
    if len(func._schema.returns) != 1 or func._schema.is_mutable:
        return None
    for found in _overloads(func, _name(func)):
        if [a.name for a in writes(found)] == ["out"]:
            return found
    return None
