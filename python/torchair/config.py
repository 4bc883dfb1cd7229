"""CompilerConfig: the options of the backend, from one table.

A row is an option: its path, what it accepts, its default, what it does.
Reading an option gives an object with `.value`; writing validates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    path: str
    default: Any
    accepts: Any  # a tuple of values, a type, a range of ints, or "callable"
    effect: str


MODES = ("max-autotune", "reduce-overhead")

OPTIONS = (
    Row(
        "mode",
        "max-autotune",
        MODES,
        "max-autotune: as fast as the device allows; reduce-overhead: every "
        "result rounded where eager rounds it",
    ),
    Row(
        "post_grad_custom_pre_pass",
        None,
        "callable",
        "pass(gm, example_inputs, config) over the FX graph, in place",
    ),
    Row(
        "post_grad_custom_post_pass",
        None,
        "callable",
        "as above, after the built-in FX passes",
    ),
    Row(
        "debug.run_eagerly",
        False,
        (True, False),
        "run the FX graph with torch, the engine compiles nothing",
    ),
    Row(
        "debug.pass_limit",
        0,
        range(0, 2**31),
        "run the first n passes only; 0: all",
    ),
    Row(
        "debug.rewrite_limit",
        0,
        range(0, 2**31),
        "make the first n rewrites only; 0: all",
    ),
    Row(
        "debug.graph_dump.type",
        None,
        ("txt",),
        "write the graph after each pass as text",
    ),
    Row(
        "debug.graph_dump.path",
        None,
        str,
        "a folder for each graph is made here (default: .)",
    ),
)


class Option:
    """One option. `.value` is what was set, as text where it is plain."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.raw: Any = row.default

    @property
    def value(self) -> Any:
        if self.raw is None or callable(self.raw):
            return self.raw
        if isinstance(self.raw, bool):
            return "1" if self.raw else "0"
        return str(self.raw)

    def set(self, value: Any) -> None:
        check(self.row, value)
        self.raw = value

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __repr__(self) -> str:
        return f"<option {self.row.path} = {self.raw!r}>"


def check(row: Row, value: Any) -> None:
    """Raises unless the row accepts the value."""
    accepts = row.accepts
    if accepts == "callable":
        if value is not None and not callable(value):
            raise TypeError(
                f"{row.path} must be callable or None, "
                f"got {type(value).__name__}"
            )
    elif isinstance(accepts, range):
        if not isinstance(value, int) or value not in accepts:
            raise ValueError(
                f"{row.path} must be an integer from "
                f"{accepts[0]} to {accepts[-1]}, got {value!r}"
            )
    elif isinstance(accepts, type):
        if value is not None and not isinstance(value, accepts):
            raise TypeError(
                f"{row.path} must be {accepts.__name__} or None, "
                f"got {type(value).__name__}"
            )
    elif value is not row.default and value not in accepts:
        names = ", ".join(repr(a) for a in accepts)
        raise ValueError(
            f"{row.path} must be one of {names}, got {value!r} "
            f"of type {type(value).__name__}"
        )


class Section:
    """Options that share the beginning of their path."""

    def __init__(self, path: str = "") -> None:
        start = f"{path}." if path else ""
        fields: dict[str, Option | Section] = {}
        for row in OPTIONS:
            if row.path.startswith(start):
                name, _, rest = row.path[len(start) :].partition(".")
                if rest:
                    fields.setdefault(name, Section(start + name))
                else:
                    fields[name] = Option(row)
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_path", path)

    def _find(self, name: str) -> Option | Section:
        fields: dict[str, Option | Section] = self.__dict__["_fields"]
        if name not in fields:
            known = ", ".join(sorted(fields))
            raise ValueError(
                f"{type(self).__name__} has no option {name!r}; it has: {known}"
            )
        return fields[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._find(name)

    def __setattr__(self, name: str, value: Any) -> None:
        found = self._find(name)
        if isinstance(found, Option):
            found.set(value)
        elif isinstance(value, Section):
            self.__dict__["_fields"][name] = value
        else:
            raise ValueError(f"{name} is a section: set its options")

    def options(self) -> Iterator[Option]:
        for field in self.__dict__["_fields"].values():
            if isinstance(field, Option):
                yield field
            else:
                yield from field.options()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Section):
            return NotImplemented
        mine = [(o.row.path, o.raw) for o in self.options()]
        return mine == [(o.row.path, o.raw) for o in other.options()]

    __hash__ = None  # type: ignore[assignment]


class CompilerConfig(Section):
    """The configuration handed to `get_npu_backend`.

    >>> config = torchair.CompilerConfig()
    >>> config.mode = "reduce-overhead"
    """

    def __init__(self) -> None:
        super().__init__()

    def as_dict(self) -> tuple[dict[str, str], dict[str, str]]:
        """(options of a graph, options of the process) as text."""
        plain = {
            o.row.path: o.value
            for o in self.options()
            if o.row.accepts != "callable" and o.value is not None
        }
        return plain, {}


def find_option(config: CompilerConfig, path: str) -> Option:
    """The option at a dotted path; ValueError where there is none."""
    field: Any = config
    for name in path.split("."):
        field = field._find(name) if isinstance(field, Section) else None
    if not isinstance(field, Option):
        raise ValueError(f"no option {path!r}")
    return field


def settings(
    config: CompilerConfig | None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> CompilerConfig:
    """A copy of the configuration with torch.compile's mode= and options=.

    options maps paths to values: {"debug.run_eagerly": True}.
    """
    merged = CompilerConfig()
    for option in config.options() if config else ():
        find_option(merged, option.row.path).raw = option.raw
    if mode is not None and mode != "default":
        merged.mode = mode
    for path, value in (options or {}).items():
        find_option(merged, path).set(value)
    return merged


def run_pass(
    pass_fn: Callable[..., Any] | None,
    gm: Any,
    inputs: Any,
    config: CompilerConfig,
) -> None:
    """Runs a pass of the user and makes the graph's code current."""
    if pass_fn is not None:
        pass_fn(gm, inputs, config)
        gm.recompile()
