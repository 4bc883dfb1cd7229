"""CompilerConfig: the rows of options.py as objects that validate."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from . import checks
from .capture import CaptureOptions
from .decorate import decorated
from .options import (
    ALIASES,
    ALL,
    CAPTURE,
    CONSTANTS,
    ENGINE,
    OPTIONS,
    Key,
    Row,
    captures,
    text,
)


class Option:
    """One option. `.value` is what was set, as text where it is plain."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.raw: Any = row.default
        self.given = False  # said by the user, not the default

    @property
    def value(self) -> Any:
        return text(self.raw)

    def set(self, value: Any) -> None:
        self.raw = self.row.accepts(self.row.path, value)
        self.given = True
        if self.row.inert and self.raw != self.row.default:
            _warn_inert(self.row)

    def copy_from(self, other: Option) -> None:
        self.raw, self.given = other.raw, other.given

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __repr__(self) -> str:
        return f"<option {self.row.path} = {self.raw!r}>"


class Alias:
    """An option by its key in the options of npugraph_ex."""

    def __init__(self, option: Option) -> None:
        self.option = option

    @property
    def raw(self) -> Any:
        raw = self.option.raw
        return not raw if self.option.row.inverted else raw

    @property
    def value(self) -> Any:
        return text(self.raw)

    def set(self, value: Any) -> None:
        row = self.option.row
        if row.inverted:
            self.option.set(not row.accepts(row.key, value))
            return
        try:
            self.option.set(value)
        except (ValueError, TypeError, OSError) as wrong:
            said = str(wrong).replace(row.path, row.key, 1)
            raise type(wrong)(said) from None

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __repr__(self) -> str:
        return f"<option {self.option.row.key} = {self.raw!r}>"


_warned: set[str] = set()


def warn_once(key: str, text: str, stacklevel: int = 2) -> None:
    """A UserWarning, once in a process for each key."""
    if key not in _warned:
        _warned.add(key)
        warnings.warn(text, stacklevel=stacklevel + 1)


def _warn_inert(row: Row) -> None:
    names = row.path + (f" ({row.key})" if row.alias else "")
    warn_once(row.path, f"{names} has no effect: {row.inert}", 5)


def _meant(name: str, known: Iterable[str]) -> str:
    """The known ones, paths or keys, that end in a name like this one."""
    ends = {path.rpartition(".")[2]: path for path in known}
    near = difflib.get_close_matches(str(name), ends)
    if not near:
        return ""
    return f"; did you mean {' or '.join(ends[n] for n in near)}?"


class Section:
    """Options that share the beginning of their path."""

    def __init__(self, path: str = "", rows: tuple[Row, ...] = OPTIONS) -> None:
        start = f"{path}." if path else ""
        below: dict[str, list[Row]] = {}
        fields: dict[str, Option | Section] = {}
        for row in rows:
            name, _, rest = row.path[len(start) :].partition(".")
            if rest:
                below.setdefault(name, []).append(row)
            else:
                fields[name] = Option(row)
        for name, theirs in below.items():
            fields[name] = Section(start + name, tuple(theirs))
        object.__setattr__(self, "_fields", fields)
        object.__setattr__(self, "_path", path)

    def _find(self, name: str) -> Option | Alias | Section:
        fields: dict[str, Option | Section] = self.__dict__["_fields"]
        if name not in fields:
            where = self.__dict__["_path"] or type(self).__name__
            known = ", ".join(sorted(fields))
            meant = _meant(name, [row.path for row in OPTIONS])
            raise ValueError(
                f"{where} has no option {name}{meant}; it has: {known}"
            )
        return fields[name]

    @decorated
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._find(name)

    @decorated
    def __setattr__(self, name: str, value: Any) -> None:
        found = self._find(name)
        if not isinstance(found, Section):
            found.set(value)
        elif isinstance(value, Section) and _path(value) == _path(found):
            self.__dict__["_fields"][name] = value
        else:
            raise ValueError(
                f"{_path(found)} is a section: set its options, or assign the "
                "section of the same name of another CompilerConfig"
            )

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


def _path(section: Section) -> str:
    return str(section.__dict__["_path"])


class CompilerConfig(Section):
    """The configuration handed to `get_npu_backend`.

    >>> config = torchair.CompilerConfig()
    >>> config.mode = "reduce-overhead"

    The keys of npugraph_ex name the same options: `config.clone_input` is
    `config.debug.aclgraph.clone_input`, `config.inplace_pass` the opposite
    of `config.debug.aclgraph.disable_reinplace_inplaceable_ops_pass`.
    """

    def __init__(self) -> None:
        super().__init__()

    def _find(self, name: str) -> Option | Alias | Section:
        row = ALIASES.get(name)
        if row is None or row.path == name:
            return super()._find(name)
        return Alias(find_option(self, row.path))

    @property
    def captures(self) -> bool:
        """Are graphs captured and replayed?"""
        return captures(find_option(self, "mode").raw)

    def said(self) -> dict[str, str]:
        """Path -> value of the options that were set, but the mode."""
        return {
            o.row.path: str(getattr(o.raw, "__qualname__", o.raw))
            for o in self.options()
            if o.given and o.row.path != "mode"
        }

    def as_dict(self) -> tuple[dict[str, str], dict[str, str]]:
        """(options of a graph, options of the process): what a graph engine
        is told, as text. Options that it is not told are in neither."""
        local, process = dict(CONSTANTS[False]), dict(CONSTANTS[True])
        local.update(_determinism())
        mode = ENGINE if not self.captures else CAPTURE
        for option in self.options():
            for key in option.row.keys:
                said = _told(self, option, key, mode)
                if said is not None:
                    (process if key.process else local)[key.name] = said
        if process.get("ge.oo.level") == "O1":
            local["ge.topoSortingMode"] = "3"  # the level keeps the order
        return local, process


def _determinism() -> dict[str, str]:
    """What torch's own switch says; the engine's results never depend on
    chance or on the number of threads."""
    import torch

    said = "1" if torch.are_deterministic_algorithms_enabled() else "0"
    return {"ge.deterministic": said, "ge.deterministicLevel": said}


def _told(
    config: CompilerConfig, option: Option, key: Key, mode: str
) -> str | None:
    if key.modes not in (ALL, mode):
        return None
    if key.needs and not find_option(config, key.needs):
        return None
    return key.text(option.raw)


def find_option(config: CompilerConfig, path: str) -> Option:
    """The option at a dotted path; ValueError where there is none."""
    if path not in _PATHS:
        meant = _meant(path.rpartition(".")[2], [*_PATHS, *ALIASES])
        raise ValueError(
            f"no option {path!r}{meant}; there are the paths of "
            "docs/options.md and the keys " + ", ".join(sorted(ALIASES))
        )
    field: Any = config
    for name in path.split("."):
        field = Section._find(field, name)
    assert isinstance(field, Option)
    return field


_PATHS = {row.path for row in OPTIONS}


def copy(config: CompilerConfig | None) -> CompilerConfig:
    """Another one with the same options; None: the defaults. TypeError for
    what is no configuration."""
    made = CompilerConfig()
    if config is not None:
        checks.is_a(
            CompilerConfig,
            config,
            "the configuration",
            "a torchair.CompilerConfig",
        )
        for mine, theirs in zip(made.options(), config.options(), strict=True):
            mine.copy_from(theirs)
    return made


def settings(
    config: CompilerConfig | None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> CompilerConfig:
    """A copy of the configuration with torch.compile's mode= and options=.

    options: paths or keys of npugraph_ex -> values:
    {"debug.run_eagerly": True, "clone_output": True}.
    """
    merged = copy(config)
    if mode is not None and mode != "default":
        merged.mode = mode
    for key, value in _items(options):
        if key in ALIASES:
            setattr(merged, key, value)
        else:
            _set_at(merged, key, value)
    return merged


@decorated
def _items(options: Any) -> list[tuple[Any, Any]]:
    """TypeError where they are no dict."""
    if options is None:
        return []
    if not isinstance(options, dict):
        raise TypeError(
            "options must be a dict of names and values, "
            f"got {type(options).__name__}"
        )
    return list(options.items())


@decorated
def _set_at(config: CompilerConfig, path: str, value: Any) -> None:
    find_option(config, path).set(value)


@decorated
def npugraph_ex_config(options: dict[str, Any] | None) -> CompilerConfig:
    """The options of the backend "npugraph_ex"; ValueError names a wrong key.

    Its mode is the constant "npugraph_ex".
    """
    config = CompilerConfig()
    config.mode = "npugraph_ex"
    for key, value in _items(options):
        if key not in ALIASES:
            raise ValueError(
                f"Invalid option '{key}'{_meant(key, ALIASES)}; supported: "
                + ", ".join(sorted(ALIASES))
            )
        if key == "mode" and value != "npugraph_ex":
            raise ValueError(
                f"mode: {value!r} is not in optional list ['npugraph_ex']; "
                'for other modes use backend="torchair"'
            )
        setattr(config, key, value)
    return config


def warn_of_other_mode(config: CompilerConfig) -> None:
    """One UserWarning with the settings that the mode does not look at; none
    in mode npugraph_ex, whose options are all its own."""
    if config.mode.raw == "npugraph_ex":
        return
    mine = CAPTURE if config.captures else ENGINE
    lost = [
        o.row.path
        for o in config.options()
        if o.row.modes not in (ALL, mine) and o.raw != o.row.default
    ]
    if lost:
        warnings.warn(
            "The following torchair config or properties may not take effect "
            f"in mode {config.mode.value}: " + ", ".join(lost),
            stacklevel=3,
        )


def capture_options(config: CompilerConfig) -> CaptureOptions | None:
    """What the engine's captures look at; None where nothing is captured."""
    if not config.captures:
        return None
    graph = config.debug.aclgraph
    pool = config.aclgraph_config.use_custom_pool.raw
    return CaptureOptions(
        limit=graph.static_capture_size_limit.raw,
        clone_input=_said(graph.clone_input),
        clone_output=_said(graph.enable_output_clone),
        frozen_parameter=config.experimental_config.frozen_parameter.raw,
        force_recapture=graph.force_recapture.raw,
        reuse_memory=pool is None
        and not graph.disable_mempool_reuse_in_same_fx.raw,
        pool=pool,
        error_mode=graph.capture_error_mode.raw,
    )


def _said(option: Option) -> Any:
    return option.raw if option.given else None
