"""Memory of before a capture: the inputs of its graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .memory import Memory, Window
from .record import Entry, Refuse, fresh_windows


@dataclass
class Piece:
    """An input of the graph: memory of before, and the windows into it that
    the log uses without having made them."""

    base: Window
    windows: list[Window] = field(default_factory=list)
    written: bool = False


def _overlap(a: Window, b: Window) -> bool:
    (x, y), (u, v) = a.span(), b.span()
    return x < v and u < y


def _groups(windows: Iterable[Window]) -> list[list[Window]]:
    """Windows of one storage, those that share bytes together."""
    groups: list[tuple[int, list[Window]]] = []
    for w in sorted(windows, key=lambda w: w.span()):
        first, last = w.span()
        if groups and first < groups[-1][0]:
            end, members = groups.pop()
            groups.append((max(end, last), [*members, w]))
        else:
            groups.append((last, [w]))
    return [members for _, members in groups]


def _base(group: list[Window]) -> Window | None:
    """A window all others of the group are strided pieces of: one of them, or
    a flat one. None: their dtypes differ."""
    first = min(w.span()[0] for w in group)
    last = max(w.span()[1] for w in group)
    for w in group:
        if len(group) == 1 or (w.span() == (first, last) and w.dense()):
            return w
    w = group[0]
    if any(x.dtype != w.dtype or x.conj or x.neg for x in group):
        return None
    item = w.dtype.itemsize
    return Window(
        w.memory, w.dtype, ((last - first) // item,), (1,), first // item
    )


class _Uses:
    """Of one storage of before: windows the log was given, windows its
    operators use (views of the log included), windows that they change."""

    def __init__(self) -> None:
        self.given: dict[Window, None] = {}
        self.used: dict[Window, None] = {}
        self.written: list[Window] = []

    def changed(self, group: list[Window]) -> bool:
        return any(_overlap(w, g) for w in self.written for g in group)


def created(log: list[Entry]) -> list[Memory]:
    """Storages that the log itself makes."""
    return [
        w.memory
        for entry in log
        for w in fresh_windows(entry)
        if w.memory.root == w
    ]


def _uses(log: list[Entry]) -> dict[Memory, _Uses]:
    own = set(created(log))
    made: set[Window] = set()
    found: dict[Memory, _Uses] = {}
    for entry in log:
        for w in entry.windows():
            if w.memory in own:
                continue
            uses = found.setdefault(w.memory, _Uses())
            if w not in made:
                uses.given[w] = None
            if not entry.is_view:
                uses.used[w] = None
        for w in entry.written:
            if w.memory in found:
                found[w.memory].written.append(w)
        made.update(fresh_windows(entry))
    return found


def pieces(log: list[Entry], refuse: Refuse) -> list[Piece]:
    """The inputs of the graph, and how its log finds them."""
    found: list[Piece] = []
    for uses in _uses(log).values():
        found += _pieces_of(uses, refuse)
    return found


def _pieces_of(uses: _Uses, refuse: Refuse) -> list[Piece]:
    """A slice that is changed, and that nothing else overlaps, is an input by
    itself: a cache is never copied for one of its rows."""
    if not uses.written:
        return [Piece(w, [w]) for w in uses.given]
    groups = _groups(uses.used)
    if any(len(g) > 1 and uses.changed(g) for g in groups):
        groups = _groups(uses.given)
    found = []
    for group in groups:
        if uses.changed(group):
            found.append(_changed_piece(group, refuse))
        else:
            found += [Piece(w, [w]) for w in group]
    return found


def _changed_piece(group: list[Window], refuse: Refuse) -> Piece:
    base = _base(group)
    if base is None or base.conj or base.neg:
        refuse(
            "tensors of several dtypes, or lazily conjugated ones, share "
            "memory that the capture changes"
        )
    return Piece(base, group, written=True)
