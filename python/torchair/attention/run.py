"""A call computed by the engine, outside of compiled functions and in them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..compat import HOST_DEVICES
from . import checks, forms
from .arguments import LENGTH_NAMES, Call
from .forms import OPERANDS, Sizes

_OP = "air::fused_attention"


# ---- sizes and dtypes of results ----


def results_of(c: Call, z: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for the results."""
    q = c.query
    return (
        q.new_empty(forms.out_shape(c, z), dtype=forms.out_dtype(c)),
        q.new_empty(forms.lse_shape(c, z), dtype=torch.float32),
    )


def meta(
    version: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    c = Call.of(version, args, kwargs)
    return results_of(c, checks.check(c))


# ---- eager ----

_programs: dict[Any, Any] = {}
_lock = threading.Lock()


_MOST = 512  # kinds of calls that are known to be right
_known: dict[Any, Sizes] = {}


def _checked(c: Call) -> Sizes:
    """checks.check, once for calls that differ in the tensors' values only:
    it looks at shapes, dtypes and the other arguments."""
    key = (c.version, *map(_sign, c.values.values()))
    z = _known.get(key)
    if z is None:
        z = checks.check(c)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = z
    return z


def _is_on_host(t: torch.Tensor) -> bool:
    return t.device.type in HOST_DEVICES


def _check_places(c: Call) -> None:
    """All are in host memory, or on the query's GPU."""
    q = c.query
    for name, value in c.values.items():
        if not isinstance(value, torch.Tensor) or value.device == q.device:
            continue
        if not (_is_on_host(q) and _is_on_host(value)):
            c.fail(
                name,
                f"is on {value.device}, {c.public('query')} on {q.device}: "
                "move it there",
            )


def _sign(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return type(value), value


def plain_scale(argument: str, t: torch.Tensor) -> torch.Tensor:
    """A scale may be in the hardware's form, a float's bits in 64."""
    if "quant_scale" in argument and t.dtype in (torch.uint64, torch.int64):
        return t.reshape(-1).view(torch.float32)[::2]
    return t


def _operand_tensors(c: Call, z: Sizes) -> dict[str, torch.Tensor]:
    found = {}
    for name, (argument, form) in forms.operands(c, z).items():
        found[name] = form.of(plain_scale(argument, c.values[argument]))
    for name in LENGTH_NAMES:
        lens = c.values[name]
        if lens is not None and name not in found:
            found[name] = torch.tensor(lens, dtype=torch.int64)
    return found


def compute(
    version: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both results; FusedAttentionError for what the operator refuses."""
    c = Call.of(version, args, kwargs)
    _check_places(c)
    z = _checked(c)
    if c.query.numel() == 0 or z.value_width == 0:
        return results_of(c, z)
    if not _is_on_host(c.query):
        return _dense(c, z)
    given = _operand_tensors(c, z)
    numbers = forms.numbers(c, z)
    dtype = forms.float_dtype(c)
    ranks = tuple((n, t.dtype, t.dim()) for n, t in given.items())
    key = (ranks, forms.order(z), numbers, dtype)
    program = _programs.get(key)
    if program is None:
        with _lock:
            program = _programs[key] = _make(
                given, forms.order(z), numbers, dtype
            )
    out, lse = program(*given.values())
    out = finish(c, z, out).reshape(forms.out_shape(c, z))
    if not c.lse:
        return out, lse.new_empty(0)
    return out, lse.reshape(forms.lse_shape(c, z))


def _dense(c: Call, z: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    from . import dense

    out, lse = dense.results(c, z)
    return out, lse


def decomposed(
    version: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """compute, in torch's operators and the dense attention of core.py."""
    c = Call.of(version, args, kwargs)
    _check_places(c)
    z = checks.check(c)
    if c.query.numel() == 0 or z.value_width == 0:
        return results_of(c, z)
    return _dense(c, z)


def finish(c: Call, z: Sizes, out: torch.Tensor) -> torch.Tensor:
    """Floats as 8-bit integers, where the call asks for it."""
    if c.out_scale is None:
        return out
    scale = forms.out_scale_form(c.out_scale, c, z)
    assert scale is not None
    out = out * scale.of(c.out_scale).float()
    if c.out_offset is not None:
        offset = forms.out_scale_form(c.out_offset, c, z)
        assert offset is not None
        out = out + offset.of(c.out_offset).float()
    return out.round().clamp(-128, 127).to(torch.int8)


def _make(
    given: dict[str, torch.Tensor],
    order: Sequence[int],
    numbers: Sequence[Any],
    dtype: torch.dtype,
) -> Any:
    """A program of one node for operands of any sizes."""
    from .. import engine
    from .._native import Graph, Program
    from ..schema import DTYPE_NAMES, DTYPES, VALUE

    engine.start_once()
    graph = Graph("fused_attention")
    refs = {}
    for name, t in given.items():
        dims = [
            graph.symbol(f"{name}{i}", 0, 2**62, int(n))
            for i, n in enumerate(t.shape)
        ]
        refs[name] = VALUE, graph.input(name, DTYPES[t.dtype][0], dims)
    attrs = attributes(refs, {}, graph.dim, order, numbers, dtype)
    results = graph.node(_OP, attrs, None, 2)
    graph.results(results, [None, None])
    outs = (
        ("result", 0, DTYPE_NAMES[dtype], False),
        ("result", 1, "float32", False),
    )
    names = tuple(DTYPE_NAMES[t.dtype] for t in given.values())
    return Program(graph, names, (), 2, outs, ())


def attributes(
    refs: Mapping[str, tuple[int, int]],
    lists: Mapping[str, list[int]],
    dim: Any,
    order: Sequence[int],
    numbers: Sequence[Any],
    dtype: torch.dtype,
) -> list[Any]:
    """Arguments of the engine's op. lists: lengths as dims of the graph."""
    from ..schema import BOOL, DTYPE, DTYPES, FLOAT, INT, INTS, NONE

    scale, sparse, pre, following, packed, paged = numbers
    found: list[Any] = []
    for name in OPERANDS:
        found += refs.get(name, (NONE, None))
    for name in LENGTH_NAMES:
        found += (INTS, lists[name]) if name in lists else (NONE, None)
    found += INTS, [dim(i) for i in order], FLOAT, scale
    for number in (sparse, pre, following):
        found += INT, dim(number)
    return [*found, BOOL, packed, BOOL, paged, DTYPE, DTYPES[dtype][0]]


# ---- in compiled functions ----


class _Nodes:
    """Nodes of the graph that is imported, in place of tensors."""

    def __init__(self, at: Any, node: Any) -> None:
        self.at, self.node = at, node

    def dims(self, values: Sequence[Any]) -> list[int]:
        return [self.at.sizes.dim(v) for v in values]

    def add(self, op: str, *attrs: Any) -> int:
        from ..origin import location_of

        location = location_of(self.node)
        (ref,) = self.at.graph.node(op, list(attrs), location, 1)
        return int(ref)

    def view(self, ref: int, sizes: Sequence[Any]) -> int:
        from ..schema import INTS, VALUE

        return self.add("reshape", VALUE, ref, INTS, self.dims(sizes))

    def form(self, ref: int, form: forms.Form) -> int:
        from ..schema import INT, INTS, VALUE

        if form.index is not None:
            zero, index = self.dims([0, form.index])
            ref = self.add("select.int", VALUE, ref, INT, zero, INT, index)
        if form.sizes is not None:
            ref = self.view(ref, form.sizes)
        if form.order is not None:
            dims = self.dims(form.order)
            ref = self.add("permute", VALUE, ref, INTS, dims)
        return ref

    def quantised(
        self, out: int, scale: int, offset: int | None, dtype: int
    ) -> int:
        from ..schema import DTYPE, INT, VALUE

        out = self.add("mul.Tensor", VALUE, out, VALUE, scale)
        if offset is not None:
            out = self.add("add.Tensor", VALUE, out, VALUE, offset)
        low, high = self.dims([-128, 127])
        out = self.add("round", VALUE, out)
        out = self.add("clamp", VALUE, out, INT, low, INT, high)
        return self.add("_to_copy", VALUE, out, DTYPE, dtype)


def rewrite(version: int, at: Any, node: Any, values: Any) -> list[int]:
    """The node in the engine's ops; Refused where a scale is in the form that
    only the hardware reads."""
    import torch.utils._pytree as pytree

    from ..schema import DTYPES, INTS, VALUE, Refused

    plain = pytree.tree_map_only(
        torch.fx.Node, lambda n: n.meta["val"], (node.args, node.kwargs)
    )
    c = Call.of(version, *plain)
    nodes = Call.of(version, node.args, node.kwargs).values
    z = checks.check(c)
    to = _Nodes(at, node)
    refs = {}
    for name, (argument, form) in forms.operands(c, z).items():
        if "quant_scale" in argument and c.values[argument].dtype in (
            torch.int64,
            torch.uint64,
        ):
            raise Refused(f"{argument} in the hardware's form")
        refs[name] = VALUE, to.form(at.ref(nodes[argument]), form)
    lists = {
        name: to.dims(c.values[name])
        for name in LENGTH_NAMES
        if isinstance(c.values[name], (list, tuple))
    }
    dtype = forms.float_dtype(c)
    attrs = attributes(
        refs, lists, at.sizes.dim, forms.order(z), forms.numbers(c, z), dtype
    )
    out, lse = at.graph.node(_OP, attrs, None, 2)
    if c.out_scale is not None:
        given = {}
        for name in ("out_scale", "out_offset"):
            t = c.values[name]
            seen = None if t is None else forms.out_scale_form(t, c, z)
            if seen is not None:
                given[name] = to.form(at.ref(nodes[name]), seen)
        out = to.quantised(
            out,
            given["out_scale"],
            given.get("out_offset"),
            DTYPES[torch.int8][0],
        )
    out = to.view(out, values[0].shape)
    if c.lse:
        lse = to.view(lse, values[1].shape)
    else:
        lse = to.add("full", INTS, to.dims([0]), *_zero_f32(to))
    return [
        at.check_type(ref, value)
        for ref, value in zip((out, lse), values, strict=True)
    ]


def _zero_f32(to: _Nodes) -> tuple[Any, ...]:
    from ..schema import DTYPE, DTYPES, FLOAT

    return FLOAT, 0.0, DTYPE, DTYPES[torch.float32][0]
