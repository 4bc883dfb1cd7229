"""What an option accepts: each kind is a check that returns the value to store,
or raises the exception that the interface specifies, saying what to set."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

INT64_MAX = 2**63 - 1


class Accepts:
    """A kind of values: text for the manual, and a check that returns the
    value to store or raises."""

    text = "anything"

    def __call__(self, path: str, value: Any) -> Any:
        return value


class OneOf(Accepts):
    def __init__(self, *values: Any) -> None:
        self.values = values
        self.text = ", ".join(repr(v) for v in values)

    def __call__(self, path: str, value: Any) -> Any:
        if any(type(v) is type(value) and v == value for v in self.values):
            return value
        raise ValueError(
            f"{path}: {value!r} of type {type(value).__name__} is not in "
            f"optional list [{self.text}]; set one of these"
        )


class Bool(OneOf):
    """A bool; 0 and 1 become one. optional: or None."""

    def __init__(self, optional: bool = False) -> None:
        super().__init__(True, False, *([None] if optional else []))
        self.text = "bool or None" if optional else "bool"

    def __call__(self, path: str, value: Any) -> Any:
        if type(value) is int and value in (0, 1):
            value = bool(value)
        return super().__call__(path, value)


class Int(Accepts):
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        top = "2^63 - 1" if high == INT64_MAX else high
        self.text = f"int from {low} to {top}"

    def __call__(self, path: str, value: Any) -> Any:
        if type(value) is not int:
            raise ValueError(
                f"{path}: Please set integer type, "
                f"got {value!r} of type {type(value).__name__}"
            )
        if not self.low <= value <= self.high:
            raise ValueError(
                f"{path}: {value} is out of range "
                f"[{self.low}, {self.high}]; set an integer within it"
            )
        return value


class Instance(Accepts):
    """An instance of a type, or None."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.text = f"{kind.__name__} or None"

    def __call__(self, path: str, value: Any) -> Any:
        if value is None or isinstance(value, self.kind):
            return value
        raise TypeError(
            f"{path} must be {self.text}, got {type(value).__name__}"
        )


class Call(Instance):
    def __init__(self) -> None:
        super().__init__(Callable)
        self.text = "callable or None"


class IntList(Accepts):
    text = "list of int, or None for every value"

    def __call__(self, path: str, value: Any) -> Any:
        if value is None:
            return []
        if isinstance(value, (list, tuple)) and all(
            type(v) is int for v in value
        ):
            return list(value)
        raise TypeError(f"{path} must be {self.text}, got {value!r}")


class Path(Accepts):
    """The name of a file or folder, whether it exists or not."""

    text = "path"

    def __call__(self, path: str, value: Any) -> Any:
        if isinstance(value, (str, os.PathLike)):
            return os.path.realpath(os.fspath(value))
        raise TypeError(
            f"{path} must be a path, got {type(value).__name__}; to write "
            'into the current directory set "."'
        )


class File(Accepts):
    """A file that exists, or None. suffix: what its name ends with."""

    def __init__(self, suffix: str = "") -> None:
        self.suffix = suffix
        kind = f"{suffix} file" if suffix else "file"
        self.text = f"existing {kind}, or None"

    def __call__(self, path: str, value: Any) -> Any:
        if value is None:
            return None
        if self.suffix and value == "":
            raise ValueError(
                f"{path}: Please set legal file path, '' names none; "
                f"set the path of a {self.suffix} file, or None"
            )
        if (
            isinstance(value, (str, os.PathLike))
            and os.path.isfile(value)
            and os.fspath(value).endswith(self.suffix)
        ):
            return os.fspath(value)
        raise FileNotFoundError(
            f"{path}: Please set legal file path, {value!r} is not an "
            f"{self.text.removesuffix(', or None')}"
        )


class Matching(Accepts):
    """Text of a form. shown: the form in words, for the manual."""

    def __init__(self, pattern: str, shown: str) -> None:
        self.pattern = re.compile(pattern)
        self.text = shown

    def __call__(self, path: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{path} must be a str, got {type(value).__name__}")
        if not self.pattern.fullmatch(value):
            raise ValueError(f"{path}: {value!r} is not legal; set {self.text}")
        return value


class Folder(Accepts):
    """A directory that exists."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional
        self.text = "existing directory" + (", or None" if optional else "")

    def __call__(self, path: str, value: Any) -> Any:
        if value is None and self.optional:
            return None
        if self.optional and not isinstance(value, (str, os.PathLike)):
            raise TypeError(
                f"{path} must be a path or None, got {type(value).__name__}"
            )
        if isinstance(value, (str, os.PathLike)) and os.path.isdir(value):
            return os.fspath(value)
        raise FileNotFoundError(
            f"{path}: Please set legal dir path, {value!r} is not an "
            "existing directory"
        )


class Pool(Accepts):
    text = "torch.npu.graph_pool_handle(), a graph's pool(), or None"

    def __call__(self, path: str, value: Any) -> Any:
        if value is None:
            return None
        if (
            isinstance(value, tuple)
            and len(value) == 2
            and all(type(v) is int for v in value)
            and value[0] * value[1] == 0
        ):
            return value
        raise TypeError(
            f"{path}: Invalid graph pool handle type {value!r}; pass "
            "torch.npu.graph_pool_handle() or graph.pool()"
        )


class Keys(Accepts):
    """A dict whose keys are known; values have the type that stands there."""

    def __init__(self, **kinds: Any) -> None:
        self.kinds = kinds
        self.text = "dict or None; keys: " + ", ".join(kinds)

    def __call__(self, path: str, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(
                f"{path} must be dict or None, got {type(value).__name__}"
            )
        for key, item in value.items():
            kind = self.kinds.get(key)
            if kind is None:
                raise RuntimeError(
                    f"{path} has no key {key!r}; it has: "
                    + ", ".join(self.kinds)
                )
            if isinstance(kind, Keys):
                kind(f"{path}[{key!r}]", item)
            elif not isinstance(item, kind):
                raise RuntimeError(
                    f"{path}[{key!r}] must be {kind.__name__}, "
                    f"got {type(item).__name__}"
                )
        return value
