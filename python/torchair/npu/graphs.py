"""NPUGraph: eager code captured once and replayed as one program."""

from __future__ import annotations

import gc
import os
import threading
import warnings
import weakref
from typing import Any, NoReturn

import torch

from .. import _native, checks
from . import inductor, pools, reads, streams
from .pools import Handle, graph_pool_handle
from .record import Recorder, enter, leave
from .streams import ExternalEvent, ExternalStream, Stream, StreamState

__all__ = [
    "NPUGraph",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
]

_MODES = ("global", "thread_local", "relaxed")
Clock = dict[int, int]  # stream id -> operators of it that came before


class Capture:
    """One capture under way: streams, order, and what the recorder logs."""

    def __init__(self, owner: NPUGraph, state: StreamState, mode: str) -> None:
        self.owner = weakref.ref(owner)
        self.origin, self.mode = state, mode
        self.thread = threading.get_ident()
        self.active = True
        self.lost: str | None = None  # why there will be no graph
        self.clocks: dict[StreamState, Clock] = {state: {}}
        self.externals: list[tuple[str, ExternalEvent]] = []
        self.seed = torch.default_generator.initial_seed()
        self.state = torch.default_generator.get_state()

    # ---- what streams and events tell ----

    def refuse(self, message: str) -> NoReturn:
        """RuntimeError, now and when the capture ends."""
        self.lost = self.lost or message
        raise RuntimeError(f"NPUGraph capture: {message}")

    def refuse_unsafe(self, message: str) -> None:
        """For calls that a mode forbids other threads, or only this one."""
        mine = threading.get_ident() == self.thread
        if self.mode == "global" or (self.mode == "thread_local" and mine):
            self.refuse(message)

    def record(self, state: StreamState) -> Clock:
        return dict(self.clocks[state])

    def join(self, state: StreamState, clock: Clock) -> None:
        """What follows on the stream comes after the clock; a stream of
        outside becomes part of the capture."""
        if state.capture is not self:
            if state.capture is not None:
                self.refuse("a stream belongs to another capture")
            if state.id == 0:
                self.refuse("the default stream cannot join a capture")
            if state.queue:
                self.refuse("a stream with unfinished work joins the capture")
            state.capture = self
            self.clocks[state] = {}
        mine = self.clocks[state]
        for stream, count in clock.items():
            mine[stream] = max(mine.get(stream, 0), count)

    def external(self, what: str, event: ExternalEvent) -> None:
        waits = [w for w, e in self.externals if e is event]
        if what == "wait" and waits and waits[-1] == "wait":
            self.refuse("multiple wait operations on one ExternalEvent")
        self.externals.append((what, event))

    # ---- what the recorder asks ----

    def stream(self) -> int | None:
        """The current stream's id, where it is part of the capture."""
        state = streams.current_stream(self.origin.device).state
        if state.capture is not self:
            return None
        clock = self.clocks[state]
        clock[state.id] = clock.get(state.id, 0) + 1
        return state.id

    # ---- the end ----

    def close(self) -> None:
        self.active = False
        for state in self.clocks:
            state.capture = None
        streams._captures.discard(self)

    def forget(self) -> None:
        """Its events know it for as long as they live: streams need not."""
        self.clocks.clear()
        self.externals = []
        del self.origin

    def problem(self) -> str | None:
        """Why there is no graph."""
        if self.lost:
            return self.lost
        ended = self.clocks[self.origin]
        for state, clock in self.clocks.items():
            if clock.get(state.id, 0) > ended.get(state.id, 0):
                return (
                    f"work of stream {state.id} is not joined: the capturing "
                    "stream must wait for an event recorded after it"
                )
        if self._seeded():
            return "the random generator was seeded while capturing"
        return None

    def _seeded(self) -> bool:
        """Nothing has drawn numbers: another seed, or a state as after one."""
        found = torch.default_generator
        if found.initial_seed() != self.seed:
            return True
        state = found.get_state()
        if torch.equal(state, self.state):
            return False
        fresh = torch.Generator().manual_seed(self.seed)
        return torch.equal(state, fresh.get_state())


def _check_environment() -> None:
    conf = os.environ.get("PYTORCH_NPU_ALLOC_CONF", "")
    rules = {
        "TASK_QUEUE_ENABLE=2": os.environ.get("TASK_QUEUE_ENABLE") == "2",
        "ASCEND_LAUNCH_BLOCKING=1": os.environ.get("ASCEND_LAUNCH_BLOCKING")
        == "1",
        "pin_memory_expandable_segments:True in PYTORCH_NPU_ALLOC_CONF": (
            "pin_memory_expandable_segments:true" in conf.lower()
        ),
    }
    for setting, found in rules.items():
        if found:
            raise RuntimeError(
                f"NPUGraph cannot capture with {setting}; unset it"
            )


class NPUGraph:
    """Operators captured between capture_begin and capture_end.

    Nothing runs while they are captured. replay() runs all of them, as one
    program, on the memory they were captured with.
    """

    # The way graphs of this class are replayed; there is one.
    graph_dispatch_mode = "replay"

    def __init__(self) -> None:
        self.auto_dispatch_capture = False
        self._capture: Capture | None = None
        self._recorder: Recorder | None = None
        self._pool: pools.Pool | None = None
        self._work: _Work | None = None
        self._debug = False

    # ---- capture ----

    def capture_begin(
        self, pool: Handle | None = None, capture_error_mode: str = "global"
    ) -> None:
        """Starts to record the current stream.

        pool: of graph_pool_handle() or another graph's pool(); TypeError for
        anything else. RuntimeError on the default stream, for a graph that
        has been captured, for an unknown mode.
        """
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode {capture_error_mode!r}; "
                f"expected one of {', '.join(_MODES)}"
            )
        if pool is not None:
            pools.check_handle(pool)
        _check_environment()
        stream = streams.current_stream()
        self._check_begin(stream)
        self._pool = pools.find(pool)
        self._capture = Capture(self, stream.state, capture_error_mode)
        self._start(self._capture)

    def _check_begin(self, stream: Stream) -> None:
        if self._work is not None:
            raise RuntimeError(
                "this NPUGraph already owns a captured graph; reset() it or "
                "make another"
            )
        if self._capture is not None:
            raise RuntimeError("this NPUGraph is being captured")
        if isinstance(stream, ExternalStream):
            raise RuntimeError("an ExternalStream cannot be captured")
        if stream.stream_id == 0:
            raise RuntimeError(
                "NPUGraphs must be captured on a non-default stream; use "
                "torch.npu.graph, or torch.npu.stream(torch.npu.Stream())"
            )
        if stream.state.capture is not None:
            raise RuntimeError("the current stream is already capturing")
        if stream.state.queue:
            raise RuntimeError("the current stream has unfinished work")

    def _start(self, capture: Capture) -> None:
        from . import conditional  # noqa: F401  (torch.cond)
        from .update import dispatch

        assert self._pool is not None
        intercept = dispatch(self) if self.auto_dispatch_capture else None
        self._recorder = Recorder(
            self._pool, capture.stream, capture.refuse, intercept, capture.owner
        )
        capture.origin.capture = capture
        streams._captures.add(capture)
        enter(self._recorder)
        reads.guard(self._recorder)
        inductor.watch()
        # The backward of npu tensors would run in a thread of its own.
        self._threads = torch._C._is_multithreading_enabled()
        torch._C._set_multithreading_enabled(False)
        _native.recording(True)

    def capture_end(self) -> None:
        """Ends the recording and compiles it.

        RuntimeError where there is no capture, on another stream than the
        one it began on, and where something in it was refused; there is no
        graph then.
        """
        capture = self._capture
        if capture is None:
            raise RuntimeError("capture_end() called before capture_begin()")
        if capture.thread != threading.get_ident():
            raise RuntimeError("a capture must end in the thread it began in")
        recorder = self._stop()
        try:
            here = streams.current_stream(capture.origin.device)
            if here.state is not capture.origin:
                raise RuntimeError(
                    "Capture must end on the same stream it began on"
                )
            problem = capture.problem() or recorder.problem()
            if problem:
                raise RuntimeError(f"the capture has failed: {problem}")
            self._work = _Work(recorder, capture, self._pool)
        except BaseException:
            self._pool = None
            raise
        finally:
            self._recorder = None
            capture.forget()

    def _stop(self) -> Recorder:
        """Leaves the modes, however the capture ends."""
        assert self._capture and self._recorder
        torch._C._set_multithreading_enabled(self._threads)
        reads.release()
        leave(self._recorder)
        self._capture.close()
        self._capture = None
        _native.recording(False)
        return self._recorder

    def _abandon(self) -> None:
        """An exception in the block: no graph."""
        if self._capture is not None:
            capture = self._capture
            self._stop()
            capture.forget()
            self._recorder = self._pool = None

    # ---- replay ----

    def replay(self) -> None:
        """Runs what was captured, in order, on the current stream.

        Where the graph waits for an ExternalEvent that is not recorded, the
        run waits, and happens inside the call that records it.
        """
        work = self._captured("replay()")
        state = streams.current_stream().state
        if state.capture is not None:
            state.capture.refuse("replay() inside a capture is not supported")
        if work.externals or state.queue:
            streams.submit(state, work)
            streams.advance()
        else:
            work()

    def _captured(self, what: str) -> _Work:
        if self._work is None:
            raise RuntimeError(
                f"NPUGraph.{what} without a preceding successful capture"
            )
        return self._work

    def reset(self) -> None:
        """Drops the graph, its memory and its pool."""
        self._abandon()
        self._work = self._pool = None

    def pool(self) -> Handle:
        """The pool's handle, for graphs that are to share it."""
        self._captured("pool()")
        assert self._pool is not None
        return self._pool.handle

    # ---- the rest of the interface ----

    def update(self, cpu_update_input: list[dict[str, Any]]) -> None:
        """Other host values for captured operators: see update.py."""
        from .update import apply

        if not self.auto_dispatch_capture:
            raise RuntimeError(
                "NPUGraph.update needs a graph captured with "
                "auto_dispatch_capture=True"
            )
        apply(self._captured("update()").records, cpu_update_input)

    def enable_debug_mode(self) -> None:
        """debug_dump will include the traced graph."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Writes the captured operators as JSON, and <stem>.aligned.json with
        the graph that the engine runs; nothing without a capture."""
        from .debug import dump

        if self._work is not None:
            dump(self._work, debug_path)

    def super_kernel_optimize(
        self,
        optimize_options: dict[str, Any] | None = None,
        debug_options: dict[str, Any] | None = None,
    ) -> None:
        """Checks the options (RuntimeError); the engine fuses by itself."""
        from .debug import check_super_kernel

        check_super_kernel(optimize_options, debug_options)

    def register_generator_state(self, _state: Any = None) -> None:
        """Deprecated: generators need no registration."""

    def begin_capture_to_if_node(self, pred: torch.Tensor) -> None:
        """What follows runs, at replay, where pred (one bool) is true."""
        from .conditional import begin

        begin(self, pred)

    def end_capture_to_conditional_node(self) -> None:
        from .conditional import end

        end(self)

    @staticmethod
    def get_currently_capturing_graph() -> NPUGraph:
        """The graph the current stream is captured into."""
        capture = streams.current_stream().state.capture
        found = capture.owner() if capture is not None else None
        if found is None:
            raise RuntimeError(
                "get_currently_capturing_graph() called outside of a capture"
            )
        return found  # type: ignore[no-any-return]


class _Work:
    """What a replay does. As a task of a stream: called until it has run."""

    def __init__(
        self, recorder: Recorder, capture: Capture, pool: pools.Pool | None
    ) -> None:
        from ..config import CompilerConfig
        from .trace import build

        config = CompilerConfig()
        config.mode = "reduce-overhead"
        self.log, self.externals = recorder.log, capture.externals
        self.records: list[Any] = recorder.records
        if recorder.host_calls and not recorder.log:
            warnings.warn(
                f"the NPUGraph is empty: its {recorder.host_calls} operators "
                "were on CPU tensors and have run; move them to npu",
                stacklevel=5,
            )
        self.captured = build(recorder, config)
        self.changes = recorder.changes
        self.pool = pool
        if pool is not None:
            pool.graphs += 1
            weakref.finalize(self, _leave, pool).atexit = False

    def __call__(self) -> bool:
        if self.externals and not self._events():
            return False
        if self.captured is not None:
            if self.changes.stale:  # an update changed more than lengths
                self._compile(self.captured)
            self.captured()
        return True

    def _compile(self, captured: Any) -> None:
        """An update meanwhile, or an error, makes it stale again."""
        self.changes.stale = False
        try:
            captured.compile()
        except BaseException:
            self.changes.stale = True
            raise

    def _events(self) -> bool:
        """Passes all events of the graph, or none."""
        flags: dict[ExternalEvent, bool] = {}
        for what, event in self.externals:
            if what == "wait" and not flags.get(event, event.flag):
                return False
            if what != "wait":
                flags[event] = what == "record"
        for event, flag in flags.items():
            event.flag = flag
        return True


def _leave(pool: pools.Pool) -> None:
    pool.graphs -= 1


def is_current_stream_capturing() -> bool:
    return streams.current_stream().state.capture is not None


class graph:
    """with torch.npu.graph(g): captures the block into g.

    stream: where; by default one that all captures share. pool: see
    NPUGraph.capture_begin. auto_dispatch_capture: operators whose host
    parameters may change are captured so that g.update can change them.
    """

    default_capture_stream: Stream | None = None

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: Handle | None = None,
        stream: Stream | None = None,
        auto_dispatch_capture: bool = False,
        capture_error_mode: str = "global",
    ) -> None:
        checks.is_a(NPUGraph, npu_graph, "graph: npu_graph", "an NPUGraph")
        checks.is_a(
            bool,
            auto_dispatch_capture,
            "graph: auto_dispatch_capture",
            "a bool",
        )
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
        self.npu_graph, self.pool, self.capture_stream = npu_graph, pool, stream
        self.auto_dispatch_capture = auto_dispatch_capture
        self.capture_error_mode = capture_error_mode
        self._context = streams.stream(stream)

    def __enter__(self) -> None:
        streams.synchronize()
        if os.environ.get("TORCH_NPUGRAPH_GC") == "1":
            gc.collect()
        self._context.__enter__()
        try:
            self.npu_graph.auto_dispatch_capture = self.auto_dispatch_capture
            self.npu_graph.capture_begin(
                pool=self.pool, capture_error_mode=self.capture_error_mode
            )
        except BaseException:
            self._context.__exit__()
            raise

    def __exit__(self, kind: Any, *_exception: Any) -> None:
        try:
            if kind is None:
                self.npu_graph.capture_end()
            else:
                self.npu_graph._abandon()
        finally:
            self._context.__exit__()
