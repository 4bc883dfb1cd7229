"""Typed values of attributes: `custom_op(..., attrs={"axis": attr.Int(1)})`.

Each has `.value`, equality, and `merge_to` and `get` for an attribute message
(an object with the fields of AttrDef: i, f, b, s, dt, list).
"""

from __future__ import annotations

from typing import Any

import torch

from .types import ge_dtype

# What a list of these says its items are (ListValueType).
_LIST_TYPES = {"s": 1, "i": 2, "f": 3, "b": 4, "dt": 10}
_LONG = {"i": "int", "f": "float"}


class Attr:
    """A value of one kind of attribute."""

    field = ""
    depth = 0  # of lists around the values

    def __init__(self, value: Any) -> None:
        self.value = self._check(value, self.depth)

    @classmethod
    def _check(cls, value: Any, depth: int) -> Any:
        if depth == 0:
            return cls.convert(value)
        if not isinstance(value, (list, tuple)):
            raise AssertionError(
                f"{cls.__name__} takes a list, not {type(value).__name__}"
            )
        return [cls._check(v, depth - 1) for v in value]

    @classmethod
    def convert(cls, value: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def refuse(cls, value: Any) -> AssertionError:
        return AssertionError(
            f"{cls.__name__} does not take {value!r} ({type(value).__name__})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self), repr(self.value)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"

    def merge_to(self, proto: Any) -> Any:
        """Writes the value into an AttrDef message, and returns it."""
        if self.depth == 0:
            setattr(proto, self.field, self._packed(self.value))
        elif self.depth == 1:
            items = getattr(proto.list, self.field)
            items.extend(self._packed(v) for v in self.value)
            proto.list.val_type = _LIST_TYPES[self.field]
        else:
            rows = self._rows(proto)
            for row in self.value:
                made = getattr(rows, f"list_list_{self.field}").add()
                getattr(made, f"list_{self.field}").extend(row)
        return proto

    @classmethod
    def get(cls, proto: Any) -> Any:
        """The value that an AttrDef message holds."""
        if cls.depth == 0:
            return cls._unpacked(getattr(proto, cls.field))
        if cls.depth == 1:
            return [cls._unpacked(v) for v in getattr(proto.list, cls.field)]
        rows = getattr(cls._rows(proto), f"list_list_{cls.field}")
        return [list(getattr(row, f"list_{cls.field}")) for row in rows]

    @classmethod
    def _rows(cls, proto: Any) -> Any:
        return getattr(proto, f"list_list_{_LONG[cls.field]}")

    @classmethod
    def _packed(cls, value: Any) -> Any:
        return value.encode() if cls.field == "s" else value

    @classmethod
    def _unpacked(cls, value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value


class Int(Attr):
    field = "i"

    @classmethod
    def convert(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            raise cls.refuse(value)
        return value


class Float(Attr):
    field = "f"

    @classmethod
    def convert(cls, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise cls.refuse(value)
        return float(value)


class Bool(Attr):
    field = "b"

    @classmethod
    def convert(cls, value: Any) -> Any:
        if not isinstance(value, bool):
            raise cls.refuse(value)
        return value


class Str(Attr):
    field = "s"

    @classmethod
    def convert(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise cls.refuse(value)
        return value


class DataType(Attr):
    field = "dt"

    @classmethod
    def convert(cls, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return ge_dtype(value)
        return Int.convert(value)


class ListInt(Int):
    depth = 1


class ListFloat(Float):
    depth = 1


class ListBool(Bool):
    depth = 1


class ListStr(Str):
    depth = 1


class ListDataType(DataType):
    depth = 1


class ListListInt(Int):
    depth = 2


class ListListFloat(Float):
    depth = 2


# By the names that prototypes use for them.
KINDS: dict[str, type[Attr]] = {
    "Int": Int,
    "Float": Float,
    "Bool": Bool,
    "String": Str,
    "Type": DataType,
    "ListInt": ListInt,
    "ListFloat": ListFloat,
    "ListBool": ListBool,
    "ListString": ListStr,
    "ListType": ListDataType,
    "ListListInt": ListListInt,
    "ListListFloat": ListListFloat,
}
