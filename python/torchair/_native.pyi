"""The native extension: see python/native/."""

from collections.abc import Callable, Sequence
from typing import Any

from .capture import CaptureOptions

version: str

class AirError(RuntimeError): ...
class AirArgumentError(AirError, ValueError): ...
class AirShapeError(AirError, ValueError): ...
class AirDtypeError(AirError, TypeError): ...
class AirDeviceError(AirError): ...
class AirSyntaxError(AirError, ValueError): ...
class AirUnsupportedError(AirError, NotImplementedError): ...
class AirMemoryError(AirError, MemoryError): ...
class AirDriverError(AirError): ...
class AirHostError(AirError): ...
class AirStateError(AirError): ...
class AirIndexError(AirError, IndexError): ...

def start(
    torch_lib: str,
    gomp_lib: str,
    driver: str | None,
    isa: str | None,
    no_emitter: bool,
    verify: bool,
    step_seconds: float = 0,
    log: Callable[[int, str], None] = ...,
    choices: str | None = ...,
    library: str = ...,
) -> bool: ...
def dtypes() -> dict[str, tuple[int, bool]]: ...
def ops() -> list[str]: ...
def describe(op: str) -> tuple[str, str, str] | None: ...
def passes() -> list[tuple[str, str]]: ...
def parse_expression(
    text: str, params: list[tuple[str, bool]], results: int, /
) -> tuple[
    list[tuple[str, tuple[tuple[int, Any], ...]]], list[tuple[int, Any]]
]: ...
def ge_dtypes() -> list[tuple[str, int, int, str]]: ...
def ge_formats() -> list[tuple[str, int]]: ...
def ge_prototypes() -> list[str]: ...
def ge_rows() -> list[tuple[str, str, str, str]]: ...
def without() -> list[tuple[str, str]]: ...
def call_classes() -> list[tuple[str, str]]: ...
def limits() -> dict[str, float] | None: ...
def pool_stats() -> dict[str, int]: ...
def trim() -> None: ...
def recording(begin: bool, /) -> None: ...
def profile_ranges(type: Callable[[str], Any] | None, /) -> None: ...
def random_rounding(fused: bool, short_log: bool, closed: bool, /) -> None: ...
def set_core_limit(cube: int, vector: int) -> None: ...

class GraphPool:
    """Memory that captures share; the same id gives the same pool while
    somebody uses it. gpu: its index; -1: the host's memory."""

    id: tuple[int, int]
    def __init__(
        self, id: tuple[int, int] | None = ..., gpu: int = ...
    ) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def mark_step(self) -> None: ...
    def trim(self) -> None: ...

def npu_enable(
    cpu_device: Any,
    fresh: Callable[[Any], Any],
    adopt: Callable[[Any, Any], Any],
    lazy_bits: Callable[[Any, Any], Any],
    retry: Callable[[Any, Any, Any], Any],
    number: Callable[[Any, Any, Any], Any],
    /,
) -> None: ...
def npu_alias(tensor: Any, to_npu: bool, /) -> Any: ...
def npu_call(op: Any, *args: Any, **kwargs: Any) -> Any: ...
def npu_memory() -> dict[str, int]: ...
def npu_memory_reset(accumulated: bool, /) -> None: ...
def cuda_start(
    torch_lib: str,
    torch_cuda_lib: str,
    folders: str,
    cache: str | None,
    overlap: bool,
    persistent: int,
    checks: bool,
    patience: int,
    /,
) -> bool: ...
def cuda_check(index: int, /) -> None: ...

class Graph:
    def __init__(self, name: str = ..., place: int = ...) -> None: ...
    @classmethod
    def parse(cls, text: str, place: int = 0, /) -> Graph: ...
    def text(self) -> str: ...
    def ge_text(self, form: int, /) -> str: ...
    def dim(self, value: int, /) -> int: ...
    def symbol(self, name: str, low: int, high: int, hint: int, /) -> int: ...
    def dim_op(self, op: str, a: int, b: int, /) -> int: ...
    def hint(self, dim: int, /) -> int: ...
    def input(
        self, name: str, dtype: int, dims: Sequence[int], flags: int = ..., /
    ) -> int: ...
    def int_input(self, name: str, dim: int, /) -> None: ...
    def node(
        self,
        op: str,
        attrs: Sequence[Any],
        location: str | None,
        nresults: int,
        /,
    ) -> tuple[int, ...]: ...
    def scope(
        self,
        contractions: int,
        others: int,
        lane: int,
        joined: bool,
        untimed: bool,
        notes: tuple[tuple[str, str | None, bool], ...],
        /,
    ) -> None: ...
    def host(
        self,
        op: str,
        number: int,
        reason: str,
        inputs: Sequence[int],
        location: str | None,
        types: Sequence[tuple[int, Sequence[int]]],
        kind: int,
        reads: Sequence[int],
        /,
    ) -> tuple[int, ...]: ...
    def tag(self, ref: int, name: str, origin: str | None, /) -> None: ...
    def type(self, ref: int, /) -> tuple[int, tuple[int, ...]]: ...
    def results(
        self, refs: Sequence[int], strides: Sequence[Sequence[int] | None], /
    ) -> None: ...

HostSpec = tuple[
    Callable[[list[Any], tuple[Any, ...]], tuple[Any, ...]],
    str,
    tuple[str, ...],
    tuple[str, ...],
    int,
]

# (name, op or None, location or None, tags, tensor over the engine's memory)
SeenValue = tuple[str, str | None, str | None, tuple[str, ...], Any]
# watch(index, kind, label, done, once, seconds, values)
Watch = Callable[
    [int, str, str, bool, bool, float, tuple[SeenValue, ...]], None
]

class Program:
    _boxed_call: bool
    watch: Watch | None
    records: bool
    def __init__(
        self,
        graph: Graph,
        args: tuple[Any, ...],
        consts: tuple[Any, ...],
        results: int,
        outs: tuple[tuple[Any, ...], ...],
        hosts: tuple[HostSpec, ...],
        fallback: Callable[[list[Any], str | None], Any] | None = ...,
        exact: bool = ...,
        pass_limit: int = ...,
        rewrite_limit: int = ...,
        dump_dir: str | None = ...,
        without: int = ...,
        capture: CaptureOptions | None = ...,
        order: int = ...,
        list_min: int = ...,
        give_back: bool = ...,
        frozen: bool = ...,
        spec_limit: int = ...,
        tf32: bool = ...,
    ) -> None: ...
    def __call__(self, *args: Any) -> tuple[Any, ...]: ...
    def text(self, kind: int, /) -> str: ...
    def stats(self) -> dict[str, Any]: ...
    def prepare(self, shapes: list[Any], /) -> None: ...

class Direct:
    """A program as Dynamo calls it; `direct.py` makes them."""

    program: Program
    def __new__(
        cls,
        program: Program,
        wrote: tuple[int, ...],
        outs: tuple[tuple[int, Any, bool, Any], ...] | None,
        count: Callable[..., Any],
        view: Callable[..., Any] | None,
        mark: Callable[..., Any] | None,
        look: Callable[..., None] | None = None,
        held: list[Any] = ...,
    ) -> Direct: ...
    def __call__(self, *args: Any) -> Any: ...

class Forward:
    """The first program of a training graph as autograd calls it;
    `trained.py` makes them."""

    def __new__(
        cls,
        run: Callable[..., Any],
        returns: int,
        symbols: int,
        constant: tuple[int, ...],
    ) -> Forward: ...
    def __call__(self, node: Any, *args: Any) -> tuple[Any, ...]: ...

class Backward:
    """The second one; a method of the node where it is in its class."""

    def __new__(
        cls,
        run: Callable[..., Any],
        asks: tuple[Callable[[], bool], ...],
        torchs: Callable[..., Any],
        tangents: tuple[tuple[int, Any, bool], ...],
        lay_out: Callable[[Any, Any], Any],
        boxed: bool,
    ) -> Backward: ...
    def __call__(self, node: Any, *grads: Any) -> tuple[Any, ...]: ...

class Dispatcher:
    """Guards in front of compiled code; `dispatch.py` makes them."""

    def __new__(
        cls,
        slow: Callable[..., Any],
        refresh: Callable[[Dispatcher], None],
        signature: tuple[Any, ...],
        bound: Any,
        hooks: tuple[Any, ...],
        module: dict[str, Any] | None,
        busy: Callable[[], Any],
        tracing: Callable[[], Any],
        scope: dict[str, Any],
    ) -> Dispatcher: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def set_entries(
        self, entries: tuple[tuple[Callable[..., bool], Any, Any, Any], ...]
    ) -> None: ...
    def stats(self) -> dict[str, int]: ...
