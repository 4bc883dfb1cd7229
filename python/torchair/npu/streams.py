"""Streams and events with the semantics of the host.

Work on a CPU is done when the call that asks for it returns, so a stream is a
queue that is nearly always empty. It fills when something has to wait: a
replay, or anybody's wait, for an ExternalEvent that has not been recorded.
What comes later on that stream then waits too, and runs, in order, inside the
call that records the event.

Eager operators are not queued: they see memory as it is when they are called.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from .. import checks
from . import traced

_ids = itertools.count(1)  # of streams and events
DEVICE_TYPE = 20  # PrivateUse1, what a stream of the device says it is

_new_id = traced.constant(lambda: next(_ids))
Task = Callable[[], bool]  # does the work, or says that it has to wait
_lock = threading.RLock()
_local = threading.local()
# Called when this thread's current stream has changed.
switched: list[Callable[[], None]] = []


_KINDS = ("npu", "cpu", "cuda", "privateuseone")


class StreamState:
    """What all Stream objects of one id share."""

    def __init__(self, stream_id: int, device: int, priority: int) -> None:
        self.id, self.device, self.priority = stream_id, device, priority
        self.queue: deque[Task] = deque()
        self.capture: Any = None  # the Capture this stream belongs to
        self.limit: dict[str, int] | None = None

    def submit(self, task: Task) -> None:
        """Runs the task, or queues it behind what has to wait."""
        with _lock:
            if self.queue or not task():
                self.queue.append(task)

    def advance(self) -> bool:
        """True: something ran."""
        moved = False
        while self.queue and self.queue[0]():
            self.queue.popleft()
            moved = True
        return moved


_states: weakref.WeakValueDictionary[tuple[int, int], StreamState] = (
    weakref.WeakValueDictionary()
)
_busy: set[StreamState] = set()  # keeps queues alive whose streams are gone


def advance() -> None:
    """Runs what waited for something that has now happened."""
    with _lock:
        _busy.update(s for s in _states.values() if s.queue)
        while any(s.advance() for s in list(_busy)):
            pass
        _busy.difference_update([s for s in _busy if not s.queue])


def submit(state: StreamState, task: Task) -> None:
    with _lock:
        state.submit(task)
        if state.queue:
            _busy.add(state)


def device_number(device: Any = None) -> int:
    """None, 0, "npu:0" or a torch.device -> 0. RuntimeError for text that
    names no device."""
    if device is None:
        return 0
    if isinstance(device, int):
        return device
    kind, _, index = str(device).partition(":")
    if kind not in _KINDS or not (index or "0").isdigit():
        raise RuntimeError(f"{device!r} is no device; give 0, 'npu' or 'npu:0'")
    return int(index) if index else 0


def state_of(device: int, stream_id: int, priority: int = 0) -> StreamState:
    with _lock:
        found = _states.get((device, stream_id))
        if found is None:
            found = StreamState(stream_id, device, priority)
            _states[device, stream_id] = found
        return found


class Stream:
    """A queue of a device; Stream(stream_id=, device_index=, device_type=)
    gives the stream of that id again. priority: kept, of no effect here."""

    def __init__(
        self,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int = DEVICE_TYPE,
    ) -> None:
        self.device_index = (
            device_index if device_index is not None else device_number(device)
        )
        self.stream_id = _new_id() if stream_id is None else stream_id
        self.device_type = device_type
        # In graphs. Text: numbers that differ between two calls of one
        # function would be symbols to Dynamo.
        self.name = (str(self.stream_id), str(self.device_index), "npu")
        self._priority = priority
        self._state: StreamState | None = None
        if not traced.tracing():
            self._state = state_of(self.device_index, self.stream_id, priority)

    @property
    def state(self) -> StreamState:
        if self._state is None:  # made inside a compiled function
            self._state = state_of(
                self.device_index, self.stream_id, self._priority
            )
        return self._state

    @property
    def priority(self) -> int:
        return self.state.priority

    @property
    def npu_stream(self) -> int:
        """The handle of the queue; here its id."""
        return self.stream_id

    def query(self) -> bool:
        """Is all work done?"""
        self._refuse_capture("query()")
        return not self.state.queue

    def synchronize(self) -> None:
        """RuntimeError where waiting could never end."""
        self._refuse_capture("synchronize()")
        _refuse_endless(self.state)

    def record_event(self, event: Event | None = None) -> Event:
        found = Event() if event is None else event
        _check_event(found, "record_event")
        found.record(self)
        return found

    def wait_event(self, event: Any) -> None:
        _check_event(event, "wait_event")
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        _check_stream(stream, "wait_stream")
        self.wait_event(stream.record_event())

    def _refuse_capture(self, what: str) -> None:
        if self.state.capture is not None:
            self.state.capture.refuse(
                f"Stream.{what} is not permitted while the stream is capturing"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (
            (self.stream_id, self.device_index)
            == (other.stream_id, other.device_index)
        )

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return (
            f"<torchair.npu.Stream device=npu:{self.device_index} "
            f"stream_id={self.stream_id:#x}>"
        )


class ExternalStream(Stream):
    """A stream somebody else made, by its handle. It cannot be captured."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(
            stream_id=stream_ptr, device_index=device_number(device)
        )


# The library's own streams never die.
_defaults: dict[int, Stream] = {}


def default_stream(device: Any = None) -> Stream:
    index = device_number(device)
    found = _defaults.get(index)
    if found is None:  # no lock: Dynamo cannot enter it
        made = Stream(stream_id=0, device_index=index)
        found = _defaults.setdefault(index, made)
    return found


def _current() -> dict[int, Stream]:
    found: dict[int, Stream] | None = getattr(_local, "streams", None)
    if found is None:
        found = _local.streams = {}
    return found


def current_stream(device: Any = None) -> Stream:
    """Of this thread."""
    index = device_number(device)
    return _current().get(index) or default_stream(index)


def set_stream(stream: Stream | None) -> None:
    """None: nothing changes."""
    if stream is None:
        return
    _check_stream(stream, "set_stream")
    if traced.tracing():
        traced.set_stream(stream)
    _current()[stream.device_index] = stream
    for call in switched:
        call()


class StreamContext:
    """with torch.npu.stream(s): s is the current stream."""

    def __init__(self, stream: Stream | None) -> None:
        if stream is not None:
            _check_stream(stream, "stream()")
        self.stream = stream
        self._before: list[Stream] = []

    def __enter__(self) -> Stream | None:
        if self.stream is not None:
            self._before.append(current_stream(self.stream.device_index))
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *_exception: Any) -> None:
        if self.stream is not None:
            set_stream(self._before.pop())


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)


def target(stream: Stream | None) -> StreamState:
    """TypeError for what is no stream."""
    if stream is None:
        return current_stream().state
    _check_stream(stream, "stream")
    return stream.state


def _check_stream(stream: Any, what: str) -> None:
    checks.is_a(Stream, stream, what, "a torch.npu.Stream")


def _check_event(event: Any, what: str) -> None:
    kinds = (Event, ExternalEvent)
    checks.is_a(kinds, event, what, "a torch.npu.Event or ExternalEvent")


def _refuse_endless(state: StreamState) -> None:
    """The host runs all it can at once: what is left waits for somebody."""
    if state.queue:
        raise RuntimeError(
            f"stream {state.id} waits for an ExternalEvent that nobody has "
            "recorded; record it (NPUGraph.update does) before synchronizing"
        )


_captures: set[Any] = set()  # under way, in any thread


def synchronize(device: Any = None) -> None:
    """All streams of the device. RuntimeError while a capture forbids it, or
    where waiting could never end."""
    index = device_number(device)
    for capture in list(_captures):
        capture.refuse_unsafe("synchronize() is not permitted while capturing")
    for state in list(_states.values()):
        if state.device == index:
            _refuse_endless(state)


def refuse_in_capture(what: str) -> None:
    """RuntimeError where this thread's current stream is capturing."""
    capture = current_stream().state.capture
    if capture is not None:
        capture.refuse(f"{what} is not permitted while capturing")


class Event:
    """A mark in a stream. enable_timing: elapsed_time may be asked; blocking
    and interprocess are kept, and have no effect here."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.enable_timing = enable_timing
        self.blocking, self.interprocess = blocking, interprocess
        self._recorded = self._done = 0  # counts of records
        self._time: float | None = None  # seconds
        self._capture: Any = None  # in which it was recorded last
        self._clock: Any = None
        self.tag = f"npu_event_{_new_id()}"  # in graphs

    def record(self, stream: Stream | None = None) -> None:
        if traced.tracing():
            traced.record(self.tag, stream)
            return
        state = target(stream)
        if state.capture is not None:
            self._capture = state.capture
            self._clock = state.capture.record(state)
            return
        self._capture = None
        self._recorded += 1
        submit(state, _Reached(self, self._recorded))

    def wait(self, stream: Stream | None = None) -> None:
        """What follows on the stream comes after the event."""
        if traced.tracing():
            traced.wait(self.tag, stream)
            return
        state = target(stream)
        if self._capture is not None:
            if not self._capture.active:
                raise RuntimeError(
                    "the event was recorded in a capture that has ended; "
                    "record it again before waiting for it"
                )
            self._capture.join(state, self._clock)
            return
        if state.capture is not None:
            if not self._complete():
                state.capture.refuse(
                    "a capture cannot wait for work outside of it"
                )
            return
        wanted = self._recorded
        submit(state, lambda: self._done >= wanted)

    def query(self) -> bool:
        """Has it been reached? True for an event never recorded."""
        self._refuse_capture("query()")
        return self._complete()

    def synchronize(self) -> None:
        self._refuse_capture("synchronize()")
        if not self._complete():
            raise RuntimeError(
                "the event lies behind an ExternalEvent that nobody has "
                "recorded; record that before synchronizing"
            )

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to end_event."""
        checks.is_a(Event, end_event, "elapsed_time", "a torch.npu.Event")
        both = (self, end_event)
        if not all(e.enable_timing for e in both):
            raise RuntimeError(
                "elapsed_time needs events made with enable_timing=True"
            )
        if any(e._time is None or not e._complete() for e in both):
            raise RuntimeError(
                "elapsed_time needs events that have been recorded and reached"
            )
        assert self._time is not None and end_event._time is not None
        return (end_event._time - self._time) * 1e3

    def _complete(self) -> bool:
        return self._done >= self._recorded

    def _refuse_capture(self, what: str) -> None:
        if self._capture is not None:
            message = f"Event.{what} of an event recorded in a capture"
            if self._capture.active:
                self._capture.refuse(message)
            raise RuntimeError(f"{message}: record it outside first")

    def __repr__(self) -> str:
        return f"<torchair.npu.Event recorded={self._recorded}>"


class _Reached:
    """The stream has come to the event's record number `number`."""

    def __init__(self, event: Event, number: int) -> None:
        self.event, self.number = event, number

    def __call__(self) -> bool:
        event = self.event
        event._time = time.perf_counter()
        event._done = max(event._done, self.number)
        return True


class ExternalEvent:
    """A flag that a captured graph waits for; wait may come before record.

    wait blocks a stream until the flag is set, record sets it, reset clears
    it, each when its stream gets there. One record is for one wait.
    """

    def __init__(self) -> None:
        self.flag = False
        self.waiting = 0

    def record(self, stream: Stream | None = None) -> None:
        self._issue("record", stream, self._set)
        advance()

    def wait(self, stream: Stream | None = None) -> None:
        state = target(stream)
        if state.capture is None:
            if self.waiting:
                raise RuntimeError(
                    "multiple wait operations for one record of an "
                    "ExternalEvent: record or reset it first"
                )
            self.waiting += 1
        self._issue("wait", stream, self._passed)

    def reset(self, stream: Stream | None = None) -> None:
        self._issue("reset", stream, self._clear)

    def _issue(self, what: str, stream: Stream | None, task: Task) -> None:
        state = target(stream)
        if state.capture is not None:
            state.capture.external(what, self)
        else:
            submit(state, task)

    def _set(self) -> bool:
        self.flag = True
        return True

    def _passed(self) -> bool:
        self.waiting -= self.flag
        return self.flag

    def _clear(self) -> bool:
        self.flag = False
        return True
