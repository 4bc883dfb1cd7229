"""What a row of the option tables is: `Row`, and the `Key`s by which a graph
engine knows the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .accepts import Bool, Call

ALL = "all"
CAPTURE = "reduce-overhead"  # and npugraph_ex: captured and replayed
ENGINE = "max-autotune"
MODES = (ENGINE, CAPTURE, "npugraph_ex")
BOOL, CALL = Bool(), Call()


def captures(mode: str) -> bool:
    """Is it a mode whose graphs are captured and replayed?"""
    return mode != ENGINE


def text(raw: Any) -> Any:
    """A value as the user reads it back: text, where it is plain."""
    if raw is None or isinstance(raw, (dict, list, tuple)) or callable(raw):
        return raw
    if isinstance(raw, bool):
        return "1" if raw else "0"
    return str(raw)


@dataclass(frozen=True)
class Key:
    """An option in the dictionaries of `CompilerConfig.as_dict`.

    modes: in which it is there. process: for the process, not one graph.
    words: value -> text, where that is not what the user reads back; a value
    without text is left out. nothing: what None and "" are told as; None:
    not at all. needs: path of the option without which this one is left out.
    """

    name: str
    modes: str = ENGINE
    process: bool = False
    words: Mapping[Any, str] = field(default_factory=dict)
    nothing: str | None = None
    needs: str = ""

    def text(self, raw: Any) -> str | None:
        """What the engine is told, None for nothing."""
        if self.words:
            return self.words.get(raw)
        return self.nothing if raw in (None, "") else str(text(raw))


@dataclass(frozen=True)
class Row:
    """An option.

    path: on CompilerConfig. effect: on the CPU. alias: its key in the options
    of npugraph_ex, "!" in front where that one says the opposite. inert: why
    it has no effect here; setting it warns once with this text. keys: how a
    graph engine is told. cuda, ascend: what it will do on those devices, ""
    for the same.
    """

    path: str
    default: Any
    accepts: Callable[[str, Any], Any]
    effect: str
    alias: str = ""
    modes: str = ALL
    inert: str = ""
    keys: tuple[Key, ...] = ()
    cuda: str = ""
    ascend: str = ""

    @property
    def key(self) -> str:
        return self.alias.removeprefix("!")

    @property
    def inverted(self) -> bool:
        return self.alias.startswith("!")
