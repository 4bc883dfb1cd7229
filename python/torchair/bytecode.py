"""What the function that Dynamo generates around one graph comes to.

Most are: the graph called with parameters of the function, and its outputs
given back, alone or in one tuple or list, with a few lists built and dropped
on the way. `read` follows the instructions with symbols for values; where it
knows each of them, the dispatcher calls the graph itself, and no Python runs.
Where an accelerator is registered the code begins by noting its current
stream, for graphs that ask for it: `without_streams` leaves that out.

A symbol is a tuple ("local", name), ("constant", value), ("global", name),
("attribute", global, name), ("made",), what the graph gave, ("output", i) of
it, ("device",) or its ("stream",); or a `_Built`, a list or tuple, which
stands for itself: what is added to it shows wherever it is.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Symbol = Any
Item = tuple[int, Any]  # index of an output; -1: the object


@dataclass(frozen=True)
class Recipe:
    """graph(*locals by name) -> output, or a tuple or list of items."""

    arguments: tuple[str, ...]
    shape: str  # "item", "tuple", "list"
    items: tuple[Item, ...]


class _Unknown(Exception):
    """Something that only the interpreter can do."""


@dataclass
class _Built:
    """A tuple or list that the code builds."""

    shape: str
    items: list[Symbol]


_NULL: Symbol = ("null",)
_MADE: Symbol = ("made",)
_DEVICE: Symbol = ("device",)
_STREAM: Symbol = ("stream",)
_DYNAMO = "__import_torch_dot__dynamo_dot_"  # as its code calls its modules
_MAKE_DEVICE: Symbol = ("attribute", "__import_torch", "device")
_GET_STREAM: Symbol = ("attribute", f"{_DYNAMO}utils", "get_current_stream")
_NOTE: Symbol = (
    "attribute",
    f"{_DYNAMO}graph_bytecode_inputs",
    "store_user_object_weakrefs",
)
_READ_NOTED = "get_external_object_by_index"


@dataclass
class _Machine:
    graph: str  # the global that is called
    names: dict[str, Symbol]
    stack: list[Symbol] = field(default_factory=list)
    arguments: list[Symbol] | None = None
    streams: bool = False

    def pop(self, count: int) -> list[Symbol]:
        if count > len(self.stack):
            raise _Unknown
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    # ---- instructions ----

    def skip(self, _i: dis.Instruction) -> None:
        pass

    def push_null(self, _i: dis.Instruction) -> None:
        self.stack.append(_NULL)

    def load_global(self, i: dis.Instruction) -> None:
        if (i.arg or 0) & 1:
            self.stack.append(_NULL)
        self.stack.append(("global", i.argval))

    def load_attribute(self, i: dis.Instruction) -> None:
        (owner,) = self.pop(1)
        method = sys.version_info >= (3, 12) and (i.arg or 0) & 1
        if method or not isinstance(owner, tuple) or owner[0] != "global":
            raise _Unknown
        self.stack.append(("attribute", owner[1], i.argval))

    def load_fast(self, i: dis.Instruction) -> None:
        if i.argval not in self.names:
            raise _Unknown
        self.stack.append(self.names[i.argval])

    def load_fast_twice(self, i: dis.Instruction) -> None:
        for name in i.argval:
            if name not in self.names:
                raise _Unknown
            self.stack.append(self.names[name])

    def load_const(self, i: dis.Instruction) -> None:
        self.stack.append(("constant", i.argval))

    def load_none(self, i: dis.Instruction) -> None:
        if i.argval is not None:  # another one; in Python 3.14 its number
            raise _Unknown
        self.load_const(i)

    def store_fast(self, i: dis.Instruction) -> None:
        (self.names[i.argval],) = self.pop(1)

    def store_fast_twice(self, i: dis.Instruction) -> None:
        first, second = i.argval
        self.names[second], self.names[first] = self.pop(2)

    def store_fast_and_load(self, i: dis.Instruction) -> None:
        stored, loaded = i.argval
        (self.names[stored],) = self.pop(1)
        if loaded not in self.names:
            raise _Unknown
        self.stack.append(self.names[loaded])

    def delete_fast(self, i: dis.Instruction) -> None:
        self.names.pop(i.argval, None)

    def pop_top(self, _i: dis.Instruction) -> None:
        self.pop(1)

    def swap(self, i: dis.Instruction) -> None:
        n = i.arg or 0
        if not 0 < n <= len(self.stack):
            raise _Unknown
        at = self.stack
        at[-1], at[-n] = at[-n], at[-1]

    def copy(self, i: dis.Instruction) -> None:
        n = i.arg or 0
        if not 0 < n <= len(self.stack):
            raise _Unknown
        self.stack.append(self.stack[-n])

    def build_list(self, i: dis.Instruction) -> None:
        self.stack.append(_Built("list", self.pop(i.arg or 0)))

    def build_tuple(self, i: dis.Instruction) -> None:
        self.stack.append(_Built("tuple", self.pop(i.arg or 0)))

    def list_extend(self, i: dis.Instruction) -> None:
        (more,) = self.pop(1)
        n = i.arg or 0
        target = self.stack[-n] if 0 < n <= len(self.stack) else None
        if not isinstance(target, _Built) or not isinstance(more, _Built):
            raise _Unknown
        target.items += more.items

    def operator(self, i: dis.Instruction) -> None:
        if i.argrepr != "[]":  # a subscript, since Python 3.14
            raise _Unknown
        self.subscript(i)

    def subscript(self, _i: dis.Instruction) -> None:
        what, index = self.pop(2)
        if what != _MADE or not isinstance(index, tuple):
            raise _Unknown
        if index[0] != "constant" or type(index[1]) is not int or index[1] < 0:
            raise _Unknown
        self.stack.append(("output", index[1]))

    def unpack(self, i: dis.Instruction) -> None:
        (what,) = self.pop(1)
        if what != _MADE:
            raise _Unknown
        self.stack += [("output", k) for k in reversed(range(i.arg or 0))]

    def call(self, i: dis.Instruction) -> None:
        arguments = self.pop(i.arg or 0)
        called = [s for s in self.pop(2) if s is not _NULL]
        if len(called) != 1:
            raise _Unknown
        if called[0] == ("global", self.graph) and self.arguments is None:
            self.arguments = arguments
            self.stack.append(_MADE)
        else:
            self.stack.append(self.note_streams(called[0], arguments))

    def note_streams(self, called: Symbol, arguments: list[Symbol]) -> Symbol:
        """store_user_object_weakrefs(get_current_stream(device("npu", 0)))"""
        constants = all(
            isinstance(s, tuple) and s[0] == "constant" for s in arguments
        )
        if called == _MAKE_DEVICE and constants:
            return _DEVICE
        if called == _GET_STREAM and arguments == [_DEVICE]:
            return _STREAM
        if called == _NOTE and all(s is _STREAM for s in arguments):
            self.streams = True
            return ("constant", None)
        raise _Unknown


_STEPS: dict[str, Callable[[_Machine, dis.Instruction], None]] = {
    "RESUME": _Machine.skip,
    "NOP": _Machine.skip,
    "PRECALL": _Machine.skip,
    "CACHE": _Machine.skip,
    "PUSH_NULL": _Machine.push_null,
    "LOAD_GLOBAL": _Machine.load_global,
    "LOAD_ATTR": _Machine.load_attribute,
    "LOAD_FAST": _Machine.load_fast,
    "LOAD_FAST_CHECK": _Machine.load_fast,
    "LOAD_FAST_LOAD_FAST": _Machine.load_fast_twice,  # Python 3.13
    "LOAD_FAST_BORROW": _Machine.load_fast,  # Python 3.14
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": _Machine.load_fast_twice,
    "LOAD_CONST": _Machine.load_const,
    "LOAD_SMALL_INT": _Machine.load_const,  # Python 3.14
    "LOAD_COMMON_CONSTANT": _Machine.load_none,  # Python 3.15
    "STORE_FAST": _Machine.store_fast,
    "STORE_FAST_STORE_FAST": _Machine.store_fast_twice,
    "STORE_FAST_LOAD_FAST": _Machine.store_fast_and_load,
    "DELETE_FAST": _Machine.delete_fast,
    "POP_TOP": _Machine.pop_top,
    "SWAP": _Machine.swap,
    "COPY": _Machine.copy,
    "BUILD_LIST": _Machine.build_list,
    "BUILD_TUPLE": _Machine.build_tuple,
    "LIST_EXTEND": _Machine.list_extend,
    "BINARY_SUBSCR": _Machine.subscript,
    "BINARY_OP": _Machine.operator,
    "UNPACK_SEQUENCE": _Machine.unpack,
    "CALL": _Machine.call,
}


def read(code: types.CodeType, graph: str) -> Recipe | None:
    """What code does, which calls the global `graph`; None: more than this."""
    count = code.co_argcount + code.co_kwonlyargcount
    if code.co_cellvars or code.co_freevars:
        return None
    names = code.co_varnames[:count]
    machine = _Machine(graph, {name: ("local", name) for name in names})
    try:
        for i in dis.get_instructions(code):
            if i.opname == "RETURN_CONST":  # Python 3.12 and 3.13
                machine.load_const(i)
            if i.opname in ("RETURN_VALUE", "RETURN_CONST"):
                (given,) = machine.pop(1)
                return _recipe(machine, given)
            step = _STEPS.get(i.opname)
            if step is None:
                return None
            step(machine, i)
    except _Unknown:
        return None
    return None


# ---- code without what it notes ----


def without_streams(code: types.CodeType) -> types.CodeType | None:
    """The code without its beginning, which notes current streams for a graph
    that does not ask for them; None where it begins otherwise, or reads one
    of them itself."""
    if _READ_NOTED in code.co_names:
        return None
    machine, stored = _Machine("", {}), []
    start = -1
    for i in dis.get_instructions(code):
        if start < 0 and i.opname in _ENTERING:
            continue
        start = i.offset if start < 0 else start
        step = _STEPS.get(i.opname)
        if step is None or i.opname.startswith("STORE_FAST_"):
            return None
        try:
            step(machine, i)
        except _Unknown:
            return None
        if i.opname == "STORE_FAST":
            stored.append(i.arg or 0)
        if machine.streams and i.opname == "POP_TOP" and not machine.stack:
            return _cut(code, start, i.offset + 2, stored)
    return None


_ENTERING = ("RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP")


def _cut(
    code: types.CodeType, start: int, end: int, stored: list[int]
) -> types.CodeType | None:
    """Bytes from start to end do nothing but store something into these
    locals: the code deletes them later."""
    made = b"".join(
        bytes((dis.opmap["LOAD_CONST"], 0, dis.opmap["STORE_FAST"], local))
        for local in stored
        if local < 256
    )
    missing = end - start - len(made)
    if missing < 0 or len(made) < 4 * len(stored) or not code.co_consts:
        return None
    made += bytes((dis.opmap["NOP"], 0)) * (missing // 2)
    whole = code.co_code
    return code.replace(co_code=whole[:start] + made + whole[end:])


# ---- recipes ----


def _recipe(machine: _Machine, given: Symbol) -> Recipe:
    arguments = machine.arguments
    if arguments is None or machine.streams:
        raise _Unknown
    shape, found = "item", [given]
    if isinstance(given, _Built):
        shape, found = given.shape, given.items
    return Recipe(
        tuple(_name(a) for a in arguments),
        shape,
        tuple(_item(s) for s in found),
    )


def _name(symbol: Symbol) -> str:
    if not isinstance(symbol, tuple) or symbol[0] != "local":
        raise _Unknown
    return str(symbol[1])


def _item(symbol: Symbol) -> Item:
    if not isinstance(symbol, tuple) or symbol[0] not in ("output", "constant"):
        raise _Unknown
    return (symbol[1], None) if symbol[0] == "output" else (-1, symbol[1])
