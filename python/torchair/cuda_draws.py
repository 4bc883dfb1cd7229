"""Random operators of a GPU: the engine draws what torch's kernels would have
drawn from the GPU's default generator.

Which element gets which number is decided by the launches of torch's kernels,
and how numbers are rounded by how they were compiled. So before an operator is
first given to the engine, both draw from one state on that GPU; where results
or the states afterwards differ, the operator stays with torch.
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from . import _native, cuda
from .schema import (
    DTYPE,
    DTYPE_NAMES,
    DTYPES,
    FLOAT,
    INT,
    INTS,
    NONE,
    Refused,
)
from .sizes import is_symbolic

aten = torch.ops.aten
REASON = "torch draws these random numbers of a GPU"
OTHER = "torch draws other random numbers on this GPU than the engine"
LAYOUT = "dropout of a tensor that is not row-major in one piece"
GIVEN = "dropout of an input, whose address torch's kernel looks at"

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.float32)


Dim = Callable[[int], int]  # an integer of a graph

# ---- does the engine draw as torch does? ----


@dataclass(frozen=True)
class Probe:
    """One way to draw: an engine's row with its arguments after the size, and
    the same by torch, of tensors of a dtype."""

    op: str
    attrs: Callable[[torch.dtype, Dim], Sequence[Any]]
    same: Callable[[torch.Tensor], torch.Tensor]
    dtypes: tuple[torch.dtype, ...]  # what it is tried for


def _floats(a: float, b: float) -> Callable[[torch.dtype, Dim], Any]:
    return lambda t, dim: (FLOAT, a, FLOAT, b, DTYPE, DTYPES[t][0])


def _integers(a: int, b: int) -> Callable[[torch.dtype, Dim], Any]:
    return lambda t, dim: (INT, dim(a), INT, dim(b), DTYPE, DTYPES[t][0])


def _single(x: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", x))
    return float(rounded)


def kept(p: float, dtype: torch.dtype) -> float:
    """The part that a dropout keeps, as the kernel of this dtype has it."""
    return 1 - p if dtype == torch.float64 else _single(1 - p)


def scale(p: float, dtype: torch.dtype) -> float:
    of = 1.0 / kept(p, dtype)
    return of if dtype == torch.float64 else _single(of)


def mask_attrs(p: float, dtype: torch.dtype, dim: Dim) -> list[Any]:
    """Of the row that draws the mask, after the size."""
    mask = [FLOAT, kept(p, dtype), DTYPE, DTYPES[torch.bool][0]]
    return [*mask, NONE, None, INT, dim(16 // dtype.itemsize)]


UNIFORM = Probe(
    "air::uniform",
    _floats(-2.0, 5.3),
    lambda t: t.uniform_(-2, 5.3),
    FLOATS,
)
EDGE = Probe(  # rounding reaches the upper bound
    "air::uniform",
    _floats(2.0**22, 2.0**22 + 1),
    lambda t: t.uniform_(2**22, 2**22 + 1),
    (torch.float32,),
)
NORMAL = Probe(
    "air::normal",
    _floats(1.1, 3.7),
    lambda t: t.normal_(1.1, 3.7),
    FLOATS,
)
BERNOULLI = Probe(
    "air::bernoulli",
    lambda t, dim: (FLOAT, 0.3, DTYPE, DTYPES[t][0]),
    lambda t: t.bernoulli_(0.3),
    (*FLOATS, torch.int64, torch.bool),
)
DROPOUT = Probe(
    "air::bernoulli",
    lambda t, dim: mask_attrs(0.3, t, dim),
    lambda t: torch.native_dropout(t.fill_(1), 0.3, True)[1],
    FLOATS,
)
NARROW = Probe(
    "air::randint",
    _integers(-5, 2**23),
    lambda t: t.random_(-5, 2**23),
    INTEGERS,
)
LIMIT = Probe(
    "air::randint",
    _integers(-5, 2**28 - 6),
    lambda t: t.random_(-5, 2**28 - 6),
    (torch.int64,),
)
WIDE = Probe(
    "air::randint",
    _integers(0, 2**28),
    lambda t: t.random_(0, 2**28),
    (torch.int64,),
)

# What an operator draws by. What is not here torch draws: probabilities of
# tensors and permutations are other kernels.
PROBES: dict[Any, tuple[Probe, ...]] = {
    aten.rand.default: (UNIFORM, EDGE),
    aten.rand_like.default: (UNIFORM, EDGE),
    aten.uniform.default: (UNIFORM, EDGE),
    aten.randn.default: (NORMAL,),
    aten.randn_like.default: (NORMAL,),
    aten.normal_functional.default: (NORMAL,),
    aten.normal.float_float: (NORMAL,),
    aten.bernoulli.p: (BERNOULLI,),
    aten.native_dropout.default: (DROPOUT,),
    aten.randint.default: (NARROW, LIMIT, WIDE),
    aten.randint.low: (NARROW, LIMIT, WIDE),
    aten.randint_like.default: (NARROW, LIMIT, WIDE),
    aten.randint_like.low_dtype: (NARROW, LIMIT, WIDE),
}


def generator_of(place: int) -> torch.Generator:
    """Another one of the state of the GPU's default generator: what cuDNN keeps
    of that for recurrent layers stays."""
    found = torch.cuda.default_generators[place - cuda.PLACE]
    same: torch.Generator = found.graphsafe_get_state()
    return same


def counts(dtype: torch.dtype, place: int) -> tuple[int, ...]:
    """Less than a block, a few blocks; more than all threads draw in a lot of 4
    or, as dropout of halves does, of 8: multiples of 8, of 4, of 2, odd."""
    gpu = torch.cuda.get_device_properties(place - cuda.PLACE)
    threads = gpu.multi_processor_count * gpu.max_threads_per_multi_processor
    full = threads * max(4, 16 // dtype.itemsize)
    return 5, 6, 1000, full + 8, full + 4, full + 2, full + 1


@contextmanager
def generator_kept(generator: torch.Generator) -> Iterator[None]:
    """Draws inside count for nothing."""
    state = generator.get_state()
    try:
        with _disable_current_modes():
            yield
    finally:
        generator.set_state(state)


def _program(probe: Probe, n: int, dtype: torch.dtype, place: int) -> Any:
    """Draws twice in a run."""
    graph = _native.Graph("draw", place)
    attrs = [INTS, [graph.dim(n)], *probe.attrs(dtype, graph.dim)]
    refs = [graph.node(probe.op, attrs, None, 1)[0] for _ in range(2)]
    graph.results(refs, [None, None])
    code = graph.type(refs[0])[0]
    name = next(DTYPE_NAMES[d] for d, c in DTYPES.items() if c[0] == code)
    outs = tuple(("result", i, name, place) for i in range(2))
    return _native.Program(graph, (), (), 2, outs, ())


def _equal(probe: Probe, n: int, dtype: torch.dtype, place: int) -> bool:
    """Of runs with two draws each; those after the first are graphs."""
    generator = generator_of(place)
    program = _program(probe, n, dtype, place)
    generator.manual_seed(2**40 + n)
    ours = [drawn for _ in range(3) for drawn in program()]
    after = generator.get_state()
    generator.manual_seed(2**40 + n)
    device = cuda.device_of(place)
    same = [
        probe.same(torch.empty(n, dtype=dtype, device=device)) for _ in ours
    ]
    return all(map(torch.equal, ours, same)) and torch.equal(
        after, generator.get_state()
    )


@functools.cache
def draws_alike(probe: Probe, dtype: torch.dtype, place: int) -> bool:
    with generator_kept(generator_of(place)):
        try:
            return all(
                _equal(probe, n, dtype, place) for n in counts(dtype, place)
            )
        except _native.AirError:
            return False  # no kernel here, or none that compiles


def check(target: Any, value: torch.Tensor, place: int) -> None:
    """Raises Refused where torch has to draw this result."""
    if target not in PROBES or value.device.type != "cuda":
        raise Refused(REASON)
    for probe in PROBES[target]:
        own = value.dtype in probe.dtypes
        if not draws_alike(
            probe, value.dtype if own else probe.dtypes[0], place
        ):
            raise Refused(OTHER)


# ---- dropout ----


def _hints(sizes: Any) -> list[int]:
    return [(s.node.hint or 0) if is_symbolic(s) else int(s) for s in sizes]


def _is_row_major(value: Any) -> bool:
    step = 1
    for size, stride in zip(
        reversed(_hints(value.shape)),
        reversed(_hints(value.stride())),
        strict=True,
    ):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _is_given(node: Any) -> bool:
    """Does the node's memory come from outside the graph, by views?"""
    while node.op == "call_function" and node.all_input_nodes:
        if node.target is not operator.getitem and not _is_view(node.target):
            return False
        node = node.all_input_nodes[0]
    return bool(node.op != "call_function")


def _is_view(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and any(
        r.alias_info is not None for r in schema.returns
    )


def check_dropped(node: Any) -> None:
    """Raises Refused unless torch's kernel takes the widest vectors of the
    tensor that its number of elements allows."""
    value = node.meta["val"]
    if not _is_row_major(value):
        raise Refused(LAYOUT)
    (offset,) = _hints([value.storage_offset()])
    if _is_given(node) or offset * value.dtype.itemsize % 16 != 0:
        raise Refused(GIVEN)
