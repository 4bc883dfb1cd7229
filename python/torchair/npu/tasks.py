"""Task groups: captured operators whose arguments can be replaced.

Issuing an operator again between graph_task_update_begin and _end computes
nothing and replaces the arguments of the captured one. Operators of a group are
nodes of the engine like any other. Lengths of attention lie in memory, which an
update writes (lengths.py). Any other value that changes makes the operator one
that torch calls at each replay: the graph is compiled once more for it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import lengths, streams
from .memory import Memory, Window, to_device
from .record import (
    Changes,
    Entry,
    Recorder,
    enter,
    leave,
    written_arguments,
)
from .streams import Stream


class TaskGroup:
    """Captured operators whose arguments can be replaced, in order."""

    def __init__(self, entries: list[Entry], changes: Changes) -> None:
        self.entries, self.changes = entries, changes


def _recorder(stream: Stream | None, what: str) -> Recorder:
    capture = streams.target(stream).capture
    owner = capture.owner() if capture is not None else None
    if owner is None or owner._recorder is None:
        raise RuntimeError(f"{what} on a stream that is not capturing")
    return owner._recorder  # type: ignore[no-any-return]


def graph_task_group_begin(stream: Stream | None) -> None:
    """Operators that follow on the capturing stream can be updated."""
    recorder = _recorder(stream, "graph_task_group_begin")
    if recorder.group is not None:
        raise RuntimeError(
            "graph_task_group_begin inside a task group; end that one first"
        )
    recorder.group, recorder.instead = [], _on_lengths


def graph_task_group_end(stream: Stream | None) -> TaskGroup:
    """The handle of the operators since graph_task_group_begin."""
    recorder = _recorder(stream, "graph_task_group_end")
    if recorder.group is None:
        raise RuntimeError("graph_task_group_end without a begin")
    entries, recorder.group = recorder.group, None
    return TaskGroup(entries, recorder.changes)


_COPY = torch.ops.aten.copy_.default


def _on_lengths(
    recorder: Recorder, func: Any, args: Any, kwargs: Any, stream: int
) -> Any:
    """Records attention as one on lengths in memory; NotImplemented where the
    operator is another. The group's entry is not in the log: what stands for
    it is."""
    taken = lengths.take(func, args, kwargs)
    if taken is None:
        return NotImplemented
    group, recorder.group = recorder.group, None
    first = len(recorder.log)
    try:
        found = _issue(recorder, taken, kwargs.get("out"), stream)
    finally:
        recorder.group = group
    given, named, outs = recorder.windows((tuple(args), kwargs, found))
    entry = Entry(func, given, named, outs, stream, grouped=True)
    entry.written = [
        recorder.window(t) for t in written_arguments(func, args, kwargs)
    ]
    entry.lengths, entry.log = taken[-1], recorder.log
    entry.stands = recorder.log[first:]
    assert group is not None
    group.append(entry)
    return found


def _issue(
    recorder: Recorder, taken: lengths.Taken, out: Any, stream: int
) -> Any:
    op, args, kwargs, _ = taken
    found = recorder.issue(op, args, kwargs, stream)
    if out is None:
        return found
    for to, result in zip(out, found, strict=True):
        if result.numel():
            recorder.issue(_COPY, (to, result), {}, stream)
    return None


_updates: dict[streams.StreamState, _Update] = {}


def graph_task_update_begin(stream: Stream | None, handle: TaskGroup) -> None:
    """Operators issued from here on replace the arguments of those in the
    handle, one by one; nothing is computed. The stream orders the update."""
    state = streams.target(stream)
    if not isinstance(handle, TaskGroup):
        raise TypeError(
            "handle must come from graph_task_group_end, got "
            f"{type(handle).__name__}"
        )
    if state.capture is not None:
        raise RuntimeError("graph_task_update_begin on a capturing stream")
    if state in _updates:
        raise RuntimeError(
            "graph_task_update_begin inside an update; end that one first"
        )
    _updates[state] = _Update(handle)
    enter(_updates[state])


def graph_task_update_end(stream: Stream | None) -> None:
    """RuntimeError where operators of the handle were not issued again; no
    argument has changed then."""
    update = _updates.pop(streams.target(stream), None)
    if update is None:
        raise RuntimeError("graph_task_update_end without a begin")
    leave(update)
    update.finish()


class _Update(TorchDispatchMode):
    def __init__(self, handle: TaskGroup) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.handle = handle
        self.issued: list[tuple[Any, Any]] = []
        self.places = Places()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.is_view:
            return func(*args, **kwargs)
        at = len(self.issued)
        entries = self.handle.entries
        if at >= len(entries) or entries[at].func is not func:
            wanted = entries[at].func if at < len(entries) else "no more"
            raise RuntimeError(
                f"the update issues {func} where the task group has {wanted}"
            )
        self.issued.append((args, kwargs))
        return self.places.results(entries[at], args, kwargs)

    def finish(self) -> None:
        missing = self.handle.entries[len(self.issued) :]
        if missing:
            raise RuntimeError(
                "the update ends before it has issued "
                + ", ".join(str(e.func) for e in missing)
            )
        new = [
            replaced(e, *given, self.places)
            for e, given in zip(self.handle.entries, self.issued, strict=True)
        ]
        for entry, arguments in zip(self.handle.entries, new, strict=True):
            change(self.handle.changes, entry, arguments)


class Places:
    """Where tensors of an update stand in the captured graph."""

    def __init__(self) -> None:
        # storage of a result -> the memory it stands for; both kept
        self.made: dict[int, tuple[torch.UntypedStorage, Memory]] = {}

    def results(self, entry: Entry, args: Any, kwargs: Any) -> Any:
        """What an issued operator returns: its out arguments, or tensors of
        the right sizes, which the replay does not write."""
        captured = tree_flatten((entry.args, entry.kwargs))[0]
        given = tree_flatten((args, kwargs))[0]
        known = {
            w: t
            for w, t in zip(captured, given, strict=False)
            if isinstance(w, Window)
        }
        leaves, spec = tree_flatten(entry.outs)
        return tree_unflatten([self._result(w, known) for w in leaves], spec)

    def _result(self, w: Any, known: dict[Window, Any]) -> Any:
        if not isinstance(w, Window) or w in known:
            return known.get(w, w)
        room = torch.empty(w.span()[1], dtype=torch.uint8)
        storage = to_device(room, w.memory.device).untyped_storage()
        self.made[storage._cdata] = storage, w.memory
        return w.on(storage)

    def at(self, t: torch.Tensor, w: Window) -> bool:
        """Is t what was captured at w?"""
        storage = t.untyped_storage()
        found = self.made.get(storage._cdata)
        if found is None:
            return w.is_at(t, w.memory.address)
        if found[1] is w.memory and w.is_at(t, storage.data_ptr()):
            return True
        raise RuntimeError(
            "the update passes a result of the task group to another place "
            "than the capture did"
        )


Arguments = tuple[Any, Any, dict[int, torch.Tensor]]


def change(changes: Changes, entry: Entry, new: Arguments) -> None:
    """Gives a captured operator other arguments."""
    before = _named(entry.func, entry.args, entry.kwargs)
    after = _named(entry.func, new[0], new[1])
    other = {n: v for n, v in after.items() if before.get(n, n) != v}
    entry.args, entry.kwargs, entry.rebound = new
    if entry.opaque or (not other and not entry.rebound):
        return
    kept = not entry.rebound and set(before) == set(after)
    if kept and entry.lengths is not None and entry.lengths.takes(other):
        entry.lengths.update(other)
    else:
        _call_it(changes, entry)


def _named(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = [a.name for a in func._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _call_it(changes: Changes, entry: Entry) -> None:
    """The next replay's graph has the operator as it is."""
    if entry.stands:
        at = entry.log.index(entry.stands[0])
        entry.log[at : at + len(entry.stands)] = [entry]
        entry.stands, entry.lengths = [], None
    entry.opaque = changes.stale = True


def _as_captured(value: Any) -> Any:
    """An argument that is no tensor, as the log has it."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None if value is torch.default_generator else value
    return copy.copy(value)


def replaced(entry: Entry, args: Any, kwargs: Any, places: Places) -> Arguments:
    """The entry's arguments after an update. A tensor at the place it was
    captured with stays a value of the graph; another one is read where it is
    (rebound: number of the tensor argument -> tensor)."""
    windows = entry.windows()
    leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
    rebound: dict[int, torch.Tensor] = {}
    found = []
    count = 0
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, Window)):
            found.append(_as_captured(leaf))
            continue
        if count == len(windows):
            raise RuntimeError(f"{entry.func} has more tensors than captured")
        window = windows[count]
        if isinstance(leaf, torch.Tensor) and not places.at(leaf, window):
            if window in entry.written:
                raise RuntimeError(
                    f"{entry.func} was captured with another out tensor"
                )
            rebound[count] = leaf
        elif isinstance(leaf, Window) and count in entry.rebound:
            rebound[count] = entry.rebound[count]
        found.append(window)
        count += 1
    if count != len(windows):
        raise RuntimeError(f"{entry.func} has fewer tensors than captured")
    new_args, new_kwargs = tree_unflatten(found, spec)
    return new_args, new_kwargs, rebound
