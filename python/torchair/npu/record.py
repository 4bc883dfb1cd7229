"""Recording eager operators: a log of what a capture is to do.

Inside a capture nothing is computed. Views are made, since they are metadata;
what an operator would allocate is allocated, uninitialised, with the sizes
and strides of its fake kernel. The log names memory, not tensors: a Window is
a strided piece of one storage, which may be gone when the graph is replayed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .. import _native
from ..compat import HOST_DEVICES
from .memory import Memory, Window, to_device
from .pools import Pool
from .sizes import Known, Made, key_of, leaves, mapped

aten = torch.ops.aten
Refuse = Callable[[str], NoReturn]  # raises, and the capture is lost


@dataclass(slots=True, eq=False)
class Entry:
    """One operator. args, kwargs, outs: trees with Windows for tensors."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: Any
    stream: int
    written: list[Window] = field(default_factory=list)
    opaque: bool = False  # called as it is, not traced through
    call: Any = None  # the Opaque to use, where func is no operator
    rebound: dict[int, torch.Tensor] = field(default_factory=dict)
    grouped: bool = False  # of a task group: its arguments may be replaced
    lengths: Any = None  # Lengths, where the log has `stands` for this entry
    stands: list[Entry] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)  # what those are part of

    @property
    def is_view(self) -> bool:
        return bool(self.func.is_view)

    def windows(self) -> list[Window]:
        """Of the arguments, in order, one for each place."""
        return [
            x for x in leaves((self.args, self.kwargs)) if isinstance(x, Window)
        ]


def fresh_windows(entry: Entry) -> list[Window]:
    """Results that are not arguments."""
    known = set(entry.windows())
    return [
        x
        for x in leaves(entry.outs)
        if isinstance(x, Window) and x not in known
    ]


@dataclass(slots=True)
class Changes:
    """Of a log and those of its conditional nodes."""

    stale: bool = False  # another one than was compiled


# Operators whose meaning is the storage itself.
_REFUSED = {
    aten.resize_.default: "resizes a tensor",
    aten.resize_as_.default: "resizes a tensor",
    aten.set_.source_Storage: "gives a tensor other memory",
    aten.set_.source_Storage_storage_offset: "gives a tensor other memory",
    aten.set_.source_Tensor: "gives a tensor other memory",
    aten.set_.default: "gives a tensor other memory",
}
_LIFTS = {aten.lift_fresh.default, aten.lift.default}


def enter(mode: Any) -> None:
    """A dispatch or function mode, for this thread, until `leave`."""
    mode.__enter__()


def leave(mode: Any) -> None:
    mode.__exit__(None, None, None)


def _in_use() -> bool:
    """Has the process had tensors of device npu?"""
    memory = _native.npu_memory()
    return bool(memory["live"] or memory["total"])


class Recorder(TorchDispatchMode):
    """Logs the operators of this thread's capturing streams.

    stream(): the id of the current stream, or None where it does not capture.
    intercept(func, args, kwargs): NotImplemented, or the results; owner():
    the graph.
    """

    def __init__(
        self,
        pool: Pool,
        stream: Callable[[], int | None],
        refuse: Refuse,
        intercept: Callable[..., Any] | None = None,
        owner: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pool, self.stream, self.refuse = pool, stream, refuse
        self.intercept, self.owner = intercept, owner
        self.log: list[Entry] = []
        self.changes = Changes()
        self.group: list[Entry] | None = None  # of the open task group
        self.instead: Callable[..., Any] | None = None  # of its operators
        self.records: list[Any] = []  # operators that NPUGraph.update knows
        self.aliases: list[StorageWeakRef] = []
        self.open: list[Any] = []  # conditional nodes around the log
        self.memories: dict[int, Memory] = {}
        self.fake = FakeTensorMode()
        # Where the device npu is in use, what does not touch it is the
        # host's and runs at once. That torch_npu is there says nothing: in
        # an installation `import torch` loads it.
        self.host_calls = 0
        self.devices = HOST_DEVICES - {"cpu"} if _in_use() else HOST_DEVICES

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Dynamo compiles under this mode and calls what it has compiled."""
        return True

    # ---- memory ----

    def memory(self, storage: torch.UntypedStorage) -> Memory:
        key = storage._cdata
        found = self.memories.get(key)
        if found is None:
            found = self.memories[key] = Memory(storage)
            found.kept = storage
        return found

    def alias(self, storage: torch.UntypedStorage, memory: Memory) -> None:
        """Another storage on the same bytes."""
        self.memories[storage._cdata] = memory
        self.aliases.append(StorageWeakRef(storage))

    def window(self, t: torch.Tensor) -> Window:
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            self.refuse(f"a tensor subclass, {type(t).__name__}")
        if t.layout is not torch.strided:
            self.refuse(f"a tensor of layout {t.layout}")
        if t.device.type not in HOST_DEVICES:
            self.refuse(f"a tensor on device {t.device}")
        return Window(
            self.memory(t.untyped_storage()),
            t.dtype,
            tuple(t.shape),
            t.stride(),
            int(t.storage_offset()),
            t.is_conj(),
            t.is_neg(),
        )

    def windows(self, tree: Any) -> Any:
        return mapped(tree, torch.Tensor, self.window)

    def allocate(self, made: Made) -> torch.Tensor:
        """Real memory for a new result."""
        found = to_device(self.pool.empty(made.nbytes), made.device)
        storage = found.untyped_storage()
        memory = self.memory(storage)
        memory.kept = None
        memory.root = Window(
            memory, made.dtype, made.size, made.stride, made.offset
        )
        return memory.root.on(storage)

    def live(self) -> list[tuple[Window, torch.Tensor]]:
        """What was made in the capture and can still be seen. Two that only
        weak references know may have had one block, one after the other: it
        holds what was made last."""
        found: list[tuple[Window, torch.Tensor]] = []
        weak: list[torch.Tensor] = []
        for memory in reversed(dict.fromkeys(self.memories.values())):
            tensor = memory.tensor() if memory.root is not None else None
            if tensor is None or memory.root is None:
                continue
            if memory.ref.expired():
                if any(_same_bytes(tensor, t) for t in weak):
                    continue
                weak.append(tensor)
            found.append((memory.root, tensor))
        return found[::-1]

    def problem(self) -> str | None:
        """What was begun and is not ended."""
        if self.group is not None:
            return "graph_task_group_begin: the group is not ended"
        return "a conditional node is not ended" if self.open else None

    # ---- operators ----

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        stream = self.stream()
        if stream is None:
            return func(*args, **kwargs)
        if not self._on_device((args, kwargs)):
            self.host_calls += 1
            return func(*args, **kwargs)
        if self.intercept is not None:
            found = self.intercept(func, args, kwargs)
            if found is not NotImplemented:
                return found
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        return self.issue(func, args, kwargs, stream)

    def _on_device(self, tree: Any) -> bool:
        if "cpu" in self.devices:
            return True
        return any(
            (isinstance(x, torch.Tensor) and x.device.type in self.devices)
            or (isinstance(x, torch.device) and x.type in self.devices)
            for x in leaves(tree)
        )

    def issue(self, func: Any, args: Any, kwargs: Any, stream: int) -> Any:
        """Records one operator; its results."""
        if self.group is not None and self.instead is not None:
            found = self.instead(self, func, args, kwargs, stream)
            if found is not NotImplemented:
                return found
        if func in _REFUSED:
            self.refuse(f"{func} {_REFUSED[func]}")
        if func is aten._local_scalar_dense.default:
            return self._read(args[0])
        if func in _LIFTS:
            return self._lift(args[0], stream)
        if torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        if func.is_view:
            return self._view(func, args, kwargs, stream)
        return self._compute(func, args, kwargs, stream)

    def _read(self, t: torch.Tensor) -> Any:
        if not self.window(t).memory.readable:
            self.refuse("the host cannot read a tensor (item(), float(), if)")
        return aten._local_scalar_dense.default(t)

    def _lift(self, t: torch.Tensor, stream: int) -> torch.Tensor:
        """A constant the host has just made: each replay writes it again,
        since the graph may change it in place."""
        if t.untyped_storage()._cdata in self.memories:
            return t
        kept, window = self.window(t.clone()), self.window(t)
        window.memory.kept, window.memory.root = None, window
        window.memory.readable = True
        self.add(Entry(aten.clone.default, (kept,), {}, window, stream))
        return t

    def _view(self, func: Any, args: Any, kwargs: Any, stream: int) -> Any:
        found = func(*args, **kwargs)
        outs = self.windows(found)
        wargs, wkwargs = self.windows((args, kwargs))
        if outs != wargs[0]:
            self.add(Entry(func, wargs, wkwargs, outs, stream))
        return found

    def _compute(self, func: Any, args: Any, kwargs: Any, stream: int) -> Any:
        wargs, wkwargs = self.windows((args, kwargs))
        given = tensors_of((args, kwargs))
        made = _known.find(key := key_of(func, args, kwargs))
        if made is None:
            made = self._made(func, args, kwargs, given)
            _known.keep(key, made)
        found = mapped(made, Made, lambda m: self._result(m, given))
        self._check_direction(func, given, found)
        wargs, wkwargs = mapped(
            (wargs, wkwargs), torch.device, lambda _: torch.device("cpu")
        )
        entry = Entry(func, wargs, wkwargs, self.windows(found), stream)
        entry.written = [
            self.window(t) for t in written_arguments(func, args, kwargs)
        ]
        self._mark(entry)
        self.add(entry)
        return found

    def _check_direction(
        self, func: Any, given: list[torch.Tensor], found: Any
    ) -> None:
        """New memory of the host that holds values of the device."""
        known = {id(t) for t in given}
        if any(
            t.device.type not in self.devices and id(t) not in known
            for t in tensors_of(found)
        ):
            self.refuse(f"the host cannot read a tensor ({func})")

    def add(self, entry: Entry) -> None:
        for window in entry.written:
            window.memory.readable = False
        if self.group is not None and not entry.is_view:
            entry.grouped = True
            self.group.append(entry)
        self.log.append(entry)

    def _mark(self, entry: Entry) -> None:
        """What tracing cannot go through is called as it is."""
        generators = [
            x
            for x in leaves((entry.args, entry.kwargs))
            if isinstance(x, torch.Generator)
        ]
        if any(g is not torch.default_generator for g in generators):
            entry.opaque = True
        elif generators:
            entry.args, entry.kwargs = mapped(
                (entry.args, entry.kwargs), torch.Generator, lambda _: None
            )
        if entry.written and entry.func.namespace not in ("aten", "prims"):
            entry.opaque = True

    # ---- fake kernels: sizes of results ----

    def _made(
        self, func: Any, args: Any, kwargs: Any, given: list[torch.Tensor]
    ) -> Any:
        """The results, with a Made for each tensor."""
        fakes = {id(t): self.fake_of(t) for t in given}
        fargs, fkwargs = mapped(
            (args, kwargs), torch.Tensor, lambda t: fakes[id(t)]
        )
        try:
            with self.fake:
                found = func(*fargs, **fkwargs)
        except DataDependentOutputException:
            self.refuse(f"{func} gives the host a value of a tensor")
        except DynamicOutputShapeException:
            self.refuse(f"{func} has results whose sizes depend on data")
        for t in written_arguments(func, args, kwargs):
            if fakes[id(t)].shape != t.shape:
                self.refuse(
                    f"{func} resizes its out argument from {list(t.shape)} "
                    f"to {list(fakes[id(t)].shape)}; give it that size"
                )
        pairs = [(t, fakes[id(t)]) for t in given]
        return mapped(found, torch.Tensor, lambda f: self.describe(f, pairs))

    def fake_of(self, t: torch.Tensor) -> torch.Tensor:
        with self.fake:
            made = torch.empty_strided(
                t.shape, t.stride(), dtype=t.dtype, device=t.device
            )
            if t.is_conj():
                made = torch._conj(made)
            return torch._neg_view(made) if t.is_neg() else made

    def describe(
        self,
        made: torch.Tensor,
        pairs: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> Made:
        """What a result is: an argument, a view of one (of an operator that
        does not say so), or new. pairs: arguments and what stood for them."""
        for i, (_, fake) in enumerate(pairs):
            if made is fake:
                return Made.of(made, i)
        if made.layout is not torch.strided:
            self.refuse(f"a tensor of layout {made.layout}")
        storage = made.untyped_storage()._cdata
        for i, (_, fake) in enumerate(pairs):
            if fake.untyped_storage()._cdata == storage:
                return Made.of(made, i, part=True)
        return Made.of(made)

    def _result(self, made: Made, given: list[torch.Tensor]) -> torch.Tensor:
        if made.argument is None:
            return self.allocate(made)
        real = given[made.argument]
        if not made.part:
            return real
        offset = made.offset + int(real.storage_offset())
        return torch.as_strided(real, made.size, made.stride, offset)

    def result(
        self,
        made: torch.Tensor,
        pairs: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """The real tensor for a result of a call on other tensors."""
        return self._result(self.describe(made, pairs), [t for t, _ in pairs])


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    x, y = a.untyped_storage(), b.untyped_storage()
    first = x.data_ptr() < y.data_ptr() + y.nbytes()
    return first and y.data_ptr() < x.data_ptr() + x.nbytes()


_known = Known()


@functools.cache
def _is_composite(func: Any) -> bool:
    """Has it a decomposition, of C++ or of Python, that always applies?"""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return key in func.py_kernels or bool(has_kernel(func.name(), key))


def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [x for x in leaves(tree) if isinstance(x, torch.Tensor)]


def written_arguments(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors a call changes, by the operator's schema."""
    found: list[torch.Tensor] = []
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info is None or not a.alias_info.is_write:
            continue
        value = args[i] if i < len(args) else kwargs.get(a.name)
        found += tensors_of(value)
    return found
