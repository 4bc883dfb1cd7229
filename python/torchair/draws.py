"""Random operators: the engine draws from torch's default generator what
torch would have drawn.

How ATen rounds and which of several ways it draws by depends on the CPU and on
the build. So before an operator is first given to the engine, both draw from
one state; where the results differ the operator stays with torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import _native, cuda, cuda_draws
from .hosts import Call
from .origin import location_of
from .schema import (
    DTYPE,
    DTYPE_NAMES,
    DTYPES,
    FLOAT,
    INT,
    INTS,
    VALUE,
    Refused,
    argument,
    find_row,
    permuted,
)
from .sizes import Args, is_symbolic

aten = torch.ops.aten
REASON = "drawn by torch, from its generator"
OTHER = "this build of torch draws other numbers than the engine"
ORDER = "normals of a tensor whose memory is not row-major"


# ---- does the engine draw as torch does? ----

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Probe:
    """One way to draw: an engine's row with its arguments after the size, and
    the same by torch. Sizes end inside a lot of 16 normals and go over 624
    words of state."""

    op: str
    attrs: Sequence[Any]
    same: Callable[[torch.Tensor], torch.Tensor]
    dtypes: tuple[torch.dtype, ...] = (torch.int64,)  # what it is tried for
    counts: tuple[int, ...] = (5, 37, 700)


UNIFORM = Probe(
    "air::uniform",
    (FLOAT, -2.0, FLOAT, 5.3),
    lambda t: t.uniform_(-2, 5.3),
    FLOATS,
)
EDGE = Probe(  # rounding reaches the upper bound
    "air::uniform",
    (FLOAT, 2.0**22, FLOAT, 2.0**22 + 1),
    lambda t: t.uniform_(2**22, 2**22 + 1),
    (torch.float32,),
)
NORMAL = Probe(
    "air::normal",
    (FLOAT, 1.1, FLOAT, 3.7),
    lambda t: t.normal_(1.1, 3.7),
    FLOATS,
)
BERNOULLI = Probe("air::bernoulli", (FLOAT, 0.3), lambda t: t.bernoulli_(0.3))
NARROW = Probe(
    "air::randint",
    (INT, -5, INT, 2**28 - 6),
    lambda t: t.random_(-5, 2**28 - 6),
)
WIDE = Probe(
    "air::randint", (INT, 0, INT, 2**28), lambda t: t.random_(0, 2**28)
)

# What an operator draws by.
PROBES: dict[Any, tuple[Probe, ...]] = {
    aten.rand.default: (UNIFORM, EDGE),
    aten.rand_like.default: (UNIFORM, EDGE),
    aten.uniform.default: (UNIFORM, EDGE),
    aten.bernoulli.default: (UNIFORM,),
    aten.randn.default: (NORMAL,),
    aten.randn_like.default: (NORMAL,),
    aten.normal_functional.default: (NORMAL,),
    aten.normal.float_float: (NORMAL,),
    aten.bernoulli.p: (BERNOULLI,),
    aten.native_dropout.default: (BERNOULLI,),
    aten.randint.default: (NARROW, WIDE),
    aten.randint.low: (NARROW, WIDE),
    aten.randint_like.default: (NARROW, WIDE),
    aten.randint_like.low_dtype: (NARROW, WIDE),
    aten.randperm.default: (NARROW,),
}


def _draw(probe: Probe, n: int, dtype: torch.dtype) -> torch.Tensor:
    graph = _native.Graph("draw")
    attrs = [INTS, [graph.dim(n)]]
    for kind, x in zip(probe.attrs[::2], probe.attrs[1::2], strict=True):
        attrs += [kind, graph.dim(x) if kind == INT else x]
    attrs += [DTYPE, DTYPES[dtype][0]]
    graph.results(list(graph.node(probe.op, attrs, None, 1)), [None])
    outs = (("result", 0, DTYPE_NAMES[dtype], False),)
    drawn: torch.Tensor = _native.Program(graph, (), (), 1, outs, ())()[0]
    return drawn


def _equal(probe: Probe, n: int, dtype: torch.dtype) -> bool:
    torch.default_generator.manual_seed(2147483647 + n)
    ours = [_draw(probe, n, dtype) for _ in range(2)]
    after = torch.default_generator.get_state()
    torch.default_generator.manual_seed(2147483647 + n)
    same = [probe.same(torch.empty(n, dtype=dtype, device="cpu")) for _ in ours]
    return all(map(torch.equal, ours, same)) and torch.equal(
        after, torch.default_generator.get_state()
    )


@functools.cache
def _find_rounding() -> None:
    """How this CPU's code of torch rounds, as far as the engine can."""
    for fused in (True, False):
        _native.random_rounding(fused, False, False)
        if _equal(UNIFORM, 64, torch.float32):
            break
    for short_log in (True, False):
        _native.random_rounding(fused, short_log, False)
        if _equal(NORMAL, 64, torch.float32):
            break
    for closed in (False, True):
        _native.random_rounding(fused, short_log, closed)
        if _equal(EDGE, 64, torch.float32):
            break


@functools.cache
def draws_alike(probe: Probe, dtype: torch.dtype) -> bool:
    with cuda_draws.generator_kept(torch.default_generator):
        _find_rounding()
        return all(_equal(probe, n, dtype) for n in probe.counts)


def check(target: Any, value: torch.Tensor, place: int) -> None:
    """Raises Refused where torch has to draw this result.

    Rows that no probe belongs to draw nothing: those of attention, which torch
    counts as random for a dropout that the rows refuse.
    """
    if place >= cuda.PLACE:
        cuda_draws.check(target, value, place)
        return
    if target not in PROBES and find_row(target) is None:
        raise Refused(REASON)
    for probe in PROBES.get(target, ()):
        own = value.dtype in probe.dtypes
        if not draws_alike(probe, value.dtype if own else probe.dtypes[0]):
            raise Refused(OTHER)


# ---- the order of memory ----

_READ = 16  # bytes


def _hint(size: Any) -> int:
    return (size.node.hint or 0) if is_symbolic(size) else size


def _memory_order(value: Any) -> list[int] | None:
    """Axes from the outermost in memory; None: row-major. Draws are made in
    the order of memory, and eager's may not be the engine's. An axis along
    which a tensor is repeated lies around the one after it."""
    strides = [_hint(s) for s in value.stride()]
    sizes = [_hint(s) for s in value.shape]
    axes = list(range(len(strides)))
    for i in reversed(axes[:-1]):
        if strides[i] == 0:
            strides[i] = strides[i + 1] * sizes[i + 1]
    order = sorted(axes, key=lambda i: -strides[i])
    long = [i for i in order if sizes[i] != 1]
    return None if long == sorted(long) else order


def _pitch(value: Any) -> int:
    """Elements from row to row where rows are apart, as those of a mask of
    attention that torch has made longer; 0: they are not."""
    strides: tuple[Any, ...] = value.stride()
    if len(strides) < 2 or any(map(is_symbolic, (*strides, *value.shape))):
        return 0
    apart = strides[-1] == 1 and strides[-2] > value.shape[-1]
    return strides[-2] if apart else 0


def _lay_out(
    t: torch.Tensor, order: list[int] | None, pitch: int
) -> torch.Tensor:
    if order is not None:
        if t.permute(order).is_contiguous():
            return t
        like = torch.empty_permuted(
            t.shape, order, dtype=t.dtype, device=t.device
        )
    elif pitch:
        like = t.new_empty(*t.shape[:-1], pitch)[..., : t.shape[-1]]
    else:
        return t.contiguous()
    return like.copy_(t)


def in_memory_order(
    call: Call, values: Sequence[torch.Tensor], draws: bool = True
) -> Call:
    """The call on tensors laid out as eager's, which `values` stand for; of
    attention that draws nothing, on rows wherever they lie."""
    orders = [_memory_order(v) for v in values]
    pitches = [_pitch(v) for v in values]

    def lay(
        t: torch.Tensor, order: list[int] | None, pitch: int
    ) -> torch.Tensor:
        return t if _has_rows(t) and not draws else _lay_out(t, order, pitch)

    def draw(args: Args, tensors: tuple[Any, ...]) -> tuple[Any, ...]:
        return call(args, tuple(map(lay, tensors, orders, pitches)))

    return draw


def _has_rows(t: torch.Tensor) -> bool:
    """[batch, heads, rows, width] as kernels of attention read it, 16 bytes at
    once. Statistics are no rows: there they count on eager's strides."""
    if t.dim() != 4 or t.shape[-1] == 1 or t.stride(-1) != 1:
        return False
    steps = zip(t.shape[:-1], t.stride()[:-1], strict=True)
    places = [t.data_ptr(), *(s * t.itemsize for n, s in steps if n > 1)]
    return all(place % _READ == 0 for place in places)


def _drawn(
    at: Any,
    node: torch.fx.Node,
    op: str,
    attrs: Sequence[Any],
    like: torch.Tensor,
    value: torch.Tensor,
) -> int:
    """A row that draws `value` in the order that `like` has in memory.

    attrs: what stands between the size and the dtype; with the dtype, where
    more stands behind it.
    """
    order = _memory_order(like)
    on_host = at.place < cuda.PLACE
    if order is not None and op == "air::normal" and on_host:
        raise Refused(ORDER)
    axes = order or range(value.dim())
    size = [at.sizes.dim(value.shape[i]) for i in axes]
    row = [INTS, size, *attrs]
    if DTYPE not in attrs[::2]:
        row += [DTYPE, DTYPES[value.dtype][0]]
    where = location_of(node)
    (ref,) = at.graph.node(op, row, where, 1)
    if order is not None:
        back = [order.index(i) for i in range(len(order))]
        return permuted(at, node, ref, back, value)
    return int(at.check_type(ref, value))


# ---- operators in other rows ----


def _argument(node: torch.fx.Node, index: int, name: str, default: Any) -> Any:
    if node.kwargs.get("generator") is not None:
        raise Refused("a generator of the user")
    return argument(node, index, name, default)


def _floats(node: torch.fx.Node, **defaults: float) -> list[Any]:
    """The numbers behind the tensor of an operator, as attributes."""
    attrs: list[Any] = []
    for i, (name, default) in enumerate(defaults.items()):
        x = _argument(node, i + 1, name, default)
        if not isinstance(x, (int, float)):
            raise Refused(f"{name} is not constant")
        attrs += (FLOAT, float(x))
    return attrs


def rand_like(at: Any, node: Any, value: Any) -> list[int]:
    attrs = [FLOAT, 0.0, FLOAT, 1.0]
    return [_drawn(at, node, "air::uniform", attrs, value, value)]


def randn_like(at: Any, node: Any, value: Any) -> list[int]:
    attrs = [FLOAT, 0.0, FLOAT, 1.0]
    return [_drawn(at, node, "air::normal", attrs, value, value)]


def uniform(at: Any, node: Any, value: Any) -> list[int]:
    attrs, old = _floats(node, **{"from": 0.0, "to": 1.0}), node.args[0]
    like = old.meta["val"]
    return [_drawn(at, node, "air::uniform", attrs, like, value)]


def normal(at: Any, node: Any, value: Any) -> list[int]:
    attrs, old = _floats(node, mean=0.0, std=1.0), node.args[0]
    like = old.meta["val"]
    return [_drawn(at, node, "air::normal", attrs, like, value)]


def bernoulli_p(at: Any, node: Any, value: Any) -> list[int]:
    attrs, old = _floats(node, p=0.5), node.args[0]
    like = old.meta["val"]
    return [_drawn(at, node, "air::bernoulli", attrs, like, value)]


def bernoulli(at: Any, node: Any, value: Any) -> Sequence[int | None]:
    if _memory_order(value) is not None:
        raise Refused("probabilities whose memory is not row-major")
    refs: Sequence[int | None] = at.row_node(node, value)
    return refs


def randint_like(at: Any, node: Any, value: Any) -> list[int]:
    low, high = 0, _argument(node, 1, "high", None)
    if node.target is aten.randint_like.low_dtype:
        low, high = high, _argument(node, 2, "high", None)
    if not isinstance(low, int) or not isinstance(high, int):
        raise Refused("bounds that are not constant")
    attrs = [INT, at.sizes.dim(low), INT, at.sizes.dim(high)]
    return [_drawn(at, node, "air::randint", attrs, value, value)]


def dropout(at: Any, node: Any, values: Any) -> list[int]:
    """The mask is drawn; the product fuses with what is around it."""
    x, mask = node.args[0], values[1]
    p = _argument(node, 1, "p", 0.5)
    if _argument(node, 2, "train", None) is False or not isinstance(p, float):
        raise Refused("dropout that is not training")
    if at.place >= cuda.PLACE:
        return _dropout_of_gpu(at, node, values, p)
    kept = _drawn(at, node, "air::bernoulli", [FLOAT, 1 - p], mask, mask)
    scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
    attrs = [VALUE, at.ref(x), VALUE, kept, FLOAT, scale]
    # (x * mask) * scale, which its gradient is too
    return [at.add(node, "native_dropout_backward", attrs, values[0]), kept]


def _dropout_of_gpu(at: Any, node: Any, values: Any, p: float) -> list[int]:
    x, mask, dtype = node.args[0], values[1], values[0].dtype
    if p == 1.0:
        raise Refused("dropout of everything, for which torch draws nothing")
    cuda_draws.check_dropped(x)
    row = cuda_draws.mask_attrs(p, dtype, at.sizes.dim)
    kept = _drawn(at, node, "air::bernoulli", row, mask, mask)
    scale = cuda_draws.scale(p, dtype)
    attrs = [VALUE, at.ref(x), VALUE, kept, FLOAT, scale]
    return [at.add(node, "native_dropout_backward", attrs, values[0]), kept]
