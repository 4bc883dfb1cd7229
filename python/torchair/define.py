"""torchair.ops.define: an operator from one text.

The body is parsed by the engine into operators of its table; what is made of
them here is the eager kernel (a compiled program of the engine), the meta
function, derivatives, and the nodes of a graph that uses the operator.
"""

from __future__ import annotations

import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _native

# air_term_kind of air.h
TENSOR, STEP, NUMBER, NUMBER_STEP, INT, FLOAT = range(6)

_NUMBERS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "neg": operator.neg,
}
_SCALARS = ("int", "float", "number", "bool")
_SHOWN = 72  # characters of a line that an error shows
_PROGRAMS = 32  # sizes for which an operator keeps a program of its own


def _overload(op: str) -> Any:
    packet, _, overload = op.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


class Body:
    """A parsed body: calls of ATen operators, in order."""

    def __init__(
        self, what: str, text: str, params: list[tuple[str, bool]], results: int
    ) -> None:
        from .engine import start_once

        start_once()
        if not isinstance(text, str):
            raise TypeError(f"{what} is a str, not {type(text).__name__}")
        try:
            steps, self.results = _native.parse_expression(
                text, params, results
            )
        except _native.AirSyntaxError as why:
            raise _located(what, text, str(why)) from None
        self.steps = [
            (_NUMBERS.get(op) or _overload(op), op, args) for op, args in steps
        ]

    def run(self, values: Sequence[Any], call: Any = None) -> list[Any]:
        """The results for these parameters. call(op, args): how operators of
        tensors are called; None: as functions."""
        made: list[Any] = []

        def term(t: tuple[int, Any]) -> Any:
            kind, what = t
            if kind in (TENSOR, NUMBER):
                return values[what]
            return made[what] if kind in (STEP, NUMBER_STEP) else what

        for function, op, args in self.steps:
            given = [term(a) for a in args]
            if op in ("sum.dim_IntList", "mean.dim", "amax", "amin"):
                given = [given[0], [given[1]], True]  # the axis stays
            if call is None or op in _NUMBERS and _all_numbers(args):
                made.append(function(*given))
            else:
                made.append(call(function, given))
        return [term(t) for t in self.results]


def _all_numbers(args: Sequence[tuple[int, Any]]) -> bool:
    return all(kind not in (TENSOR, STEP) for kind, _ in args)


def _located(what: str, text: str, message: str) -> Exception:
    """The engine's "line:column: why", with the line and a caret; of a long
    line what is around it."""
    line, column, why = message.split(":", 2)
    whole = text.split("\n")[int(line) - 1]
    at = int(column) - 1
    start = max(0, min(at, len(whole)) - _SHOWN // 2) if at > _SHOWN else 0
    shown = whole[start : start + _SHOWN]
    return _native.AirSyntaxError(
        f"{what}, line {line}, column {column}:{why}\n"
        f"    {shown}\n    {' ' * (at - start)}^"
    )


@dataclass
class Defined:
    """An operator that `define` has made."""

    name: str
    body: Body
    params: list[tuple[str, bool]]
    written: list[int]  # positions of parameters that it writes
    nreturns: int
    library: Any
    programs: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    overload: Any = None

    def complete(self, args: Sequence[Any], kwargs: Any) -> list[Any]:
        """All arguments by position: torch leaves out defaults."""
        schema = self.overload._schema.arguments
        rest = schema[len(args) :]
        return [*args, *(kwargs.get(a.name, a.default_value) for a in rest)]

    def evaluate(self, values: Sequence[Any]) -> Any:
        """By ATen's operators, also on fake tensors."""
        self._refuse_gradients(values)
        results = self.body.run(values)
        for i, made in zip(self.written, results, strict=False):
            values[i].copy_(made)
        return self._returned(results)

    def _refuse_gradients(self, values: Sequence[Any]) -> None:
        """RuntimeError: it writes, and autograd would lose sight of that."""
        if not self.written or not torch.is_grad_enabled():
            return
        for (name, number), v in zip(self.params, values, strict=True):
            if not number and v.requires_grad:
                raise RuntimeError(
                    f"{self.name} writes an argument, so it has no "
                    f"derivatives, and {name} requires grad: call it under "
                    f"torch.no_grad(), or give {name}.detach()"
                )

    def _returned(self, results: list[Any]) -> Any:
        out = results[len(self.written) :]
        out = [
            torch.ops.aten.clone(r) if i in self._aliases(results) else r
            for i, r in enumerate(out)
        ]
        if not out:
            return None
        return out[0] if len(out) == 1 else tuple(out)

    def _aliases(self, results: list[Any]) -> set[int]:
        """Results that are parameters, or given twice: they need memory of
        their own."""
        terms = self.body.results[len(self.written) :]
        del results
        return {
            i for i, t in enumerate(terms) if t[0] == TENSOR or t in terms[:i]
        }

    # ---- eager ----

    def kernel(self, *args: Any, **kwargs: Any) -> Any:
        """On CPU tensors: a program of the engine, one per dtypes and sizes;
        ATen where there are many."""
        values = self.complete(args, kwargs)
        self._refuse_gradients(values)
        key = tuple(
            (v.dtype, tuple(v.shape), v.stride())
            if isinstance(v, torch.Tensor)
            else v
            for v in values
        )
        program = self.programs.get(key)
        if program is None:
            if len(self.programs) >= _PROGRAMS:
                return self.evaluate(values)
            program = self._compile(values)
            self.programs[key] = program
        results = program([v for v in values if isinstance(v, torch.Tensor)])
        for i, made in zip(self.written, results, strict=False):
            values[i].copy_(made)
        out = results[len(self.written) :]
        return out[0] if len(out) == 1 else tuple(out) or None

    def _compile(self, values: Sequence[Any]) -> Any:
        from torch._subclasses.fake_tensor import FakeTensorMode

        from .backend import compile_graph
        from .config import CompilerConfig

        graph = torch.fx.Graph()
        with FakeTensorMode():

            def call(op: Any, args: Sequence[Any]) -> torch.fx.Node:
                node = graph.call_function(op, tuple(args))
                fake = torch.fx.node.map_arg(
                    tuple(args), lambda n: n.meta["val"]
                )
                node.meta["val"] = op(*fake)
                return node

            nodes: list[Any] = []
            for i, v in enumerate(values):
                if isinstance(v, torch.Tensor):
                    node = graph.placeholder(self.params[i][0])
                    node.meta["val"] = torch.empty_strided(
                        v.shape, v.stride(), dtype=v.dtype
                    )
                    v = node
                nodes.append(v)
            results = self.body.run(nodes, call)
            clone = torch.ops.aten.clone.default
            made = [
                call(clone, [r]) if r.op == "placeholder" else r
                for r in results
            ]
        graph.output(tuple(made))
        gm = torch.fx.GraphModule(torch.nn.Module(), graph)
        inputs = [n.meta["val"] for n in graph.nodes if n.op == "placeholder"]
        return compile_graph(gm, inputs, CompilerConfig(), "inference")

    # ---- graphs ----

    def convert(self, at: Any, args: Sequence[Any]) -> list[Any]:
        """FX nodes in place of a call: results, written ones first."""

        def call(op: Any, given: Sequence[Any]) -> Any:
            return at.emit(op, given, None)

        results = self.body.run(args, call)
        clone = torch.ops.aten.clone.default
        return [
            at.emit(clone, [r], None) if kind == TENSOR else r
            for r, (kind, _) in zip(results, self.body.results, strict=True)
        ]


_defined: dict[Any, Defined] = {}  # by overload


def find(op: Any) -> Defined | None:
    """The operator, where `define` has made it."""
    return _defined.get(op) if isinstance(op, torch._ops.OpOverload) else None


# ---- definition ----


def _parse_schema(schema: str) -> Any:
    if not isinstance(schema, str):
        raise TypeError(f"schema is a str, not {type(schema).__name__}")
    namespace, colons, _ = schema.partition("::")
    if not colons or not namespace.isidentifier():
        raise ValueError(
            f"schema {schema!r} has no namespace: "
            '"ns::op(Tensor a, Tensor b) -> Tensor"'
        )
    try:
        return torch._C.parse_schema(schema)
    except RuntimeError as why:
        said = [line for line in str(why).splitlines() if line.strip()]
        raise ValueError(
            f"schema {schema!r} cannot be read: " + "\n".join(said[:3])
        ) from None


def _parameters(parsed: Any) -> list[tuple[str, bool]]:
    params = []
    for a in parsed.arguments:
        kind = str(a.type)
        if kind != "Tensor" and kind not in _SCALARS:
            raise ValueError(
                f"{parsed.name}: parameter {a.name} is {kind}; a body takes "
                "Tensor, float, int, bool and Scalar"
            )
        params.append((a.name, kind != "Tensor"))
    if all(number for _, number in params):
        raise ValueError(f"{parsed.name}: no parameter is a Tensor")
    for r in parsed.returns:
        if str(r.type) != "Tensor" or r.alias_info is not None:
            raise ValueError(
                f"{parsed.name}: it returns {r.type}; results are new Tensors"
            )
    return params


def _written(parsed: Any) -> list[int]:
    return [
        i
        for i, a in enumerate(parsed.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]


def _exists(name: str) -> bool:
    namespace, _, op = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), op)


def define(
    schema: str,
    body: str,
    derivatives: Mapping[str, str] | None = None,
) -> Any:
    """Makes the operator torch.ops.ns.op, and gives its overload.

    schema: as torch's: "ns::op(Tensor a, Tensor b, float s=1.0) -> Tensor".
    Tensor parameters, numbers; a parameter `Tensor(a!) x` is written.
    body: a formula over elements: `a * sigmoid(b) + s`. `;` separates
    statements, `t = a + b` names a value, `c ? a : b` chooses, `sum(a, -1)`
    reduces an axis, which stays with size 1. The results are what the last
    statements give: parameters that are written first, in the schema's order.
    dtypes and sizes follow ATen's rules for each operation.
    derivatives: parameter -> body of the gradient, over the parameters and
    `grad` (`grad0`, `grad1` where there are several results); parameters that
    are not named have none. None: those of ATen's operators in the body, which
    is computed again in the backward pass; {}: the operator has none. One that
    writes has none.

    The operator runs in eager mode, in torch.compile with every backend, and
    fuses with its neighbours with this one. ValueError: the schema;
    AirSyntaxError: the body, with line and column; RuntimeError: the operator
    exists.
    """
    parsed = _parse_schema(schema)
    params = _parameters(parsed)
    written = _written(parsed)
    results = len(written) + len(parsed.returns)
    if results == 0:
        raise ValueError(f"{parsed.name}: it has no results and writes nothing")
    made_body = Body(f"body of {parsed.name}", body, params, results)
    gradients = _gradients(parsed, params, derivatives, written)
    if _exists(parsed.name):
        raise RuntimeError(f"{parsed.name} is defined already")
    namespace, _, name = parsed.name.partition("::")
    library: Any = getattr(torch.library, "Library")(namespace, "FRAGMENT")  # noqa: B009
    library.define(schema.partition("::")[2])
    found = Defined(
        parsed.name, made_body, params, written, len(parsed.returns), library
    )
    library.impl(name, found.kernel, "CPU")
    library.impl(
        name,
        lambda *a, **k: found.evaluate(found.complete(a, k)),
        "CompositeExplicitAutograd",  # meta tensors and other devices
    )
    overload = parsed.overload_name or "default"
    packet = getattr(getattr(torch.ops, namespace), name)
    found.overload = getattr(packet, overload)
    _defined[found.overload] = found
    if gradients:
        _add_autograd(found, functools.partial(_by_bodies, gradients))
    elif derivatives is None and not written:
        _add_autograd(found, functools.partial(_by_aten, made_body))
    return found.overload


# ---- derivatives ----


def _gradients(
    parsed: Any,
    params: list[tuple[str, bool]],
    derivatives: Mapping[str, str] | None,
    written: list[int],
) -> dict[int, Body]:
    if not derivatives:
        return {}
    if written:
        raise ValueError(
            f"{parsed.name}: an operator that writes has no derivatives"
        )
    n = len(parsed.returns)
    grads = ["grad"] if n == 1 else [f"grad{i}" for i in range(n)]
    names = [name for name, number in params if not number]
    found = {}
    for name, text in derivatives.items():
        if name not in names:
            raise ValueError(
                f"{parsed.name}: derivative of {name}, which is no Tensor "
                f"parameter; they are {', '.join(names)}"
            )
        position = [p for p, _ in params].index(name)
        found[position] = Body(
            f"derivative of {parsed.name} by {name}",
            text,
            params + [(g, False) for g in grads],
            1,
        )
    return found


def _add_autograd(found: Defined, rule: Callable[..., list[Any]]) -> None:
    """rule(values, grads, needed): the gradients of all parameters."""

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.numbers = [
            None if isinstance(x, torch.Tensor) else x for x in inputs
        ]
        ctx.save_for_backward(
            *[x for x in inputs if isinstance(x, torch.Tensor)]
        )

    def backward(ctx: Any, *grads: Any) -> Any:
        saved = iter(ctx.saved_tensors)
        values = [
            next(saved) if not number else ctx.numbers[i]
            for i, (_, number) in enumerate(found.params)
        ]
        return tuple(rule(values, grads, ctx.needs_input_grad))

    torch.library.register_autograd(
        found.overload,
        backward,
        setup_context=setup_context,
        lib=found.library,
    )


def _by_bodies(
    gradients: Mapping[int, Body],
    values: list[Any],
    grads: Sequence[Any],
    needed: Sequence[bool],
) -> list[Any]:
    out: list[Any] = [None] * len(values)
    for i, gradient in gradients.items():
        if needed[i]:
            (made,) = gradient.run([*values, *grads])
            out[i] = _filled(made, values[i])
    return out


def _by_aten(
    body: Body, values: list[Any], grads: Sequence[Any], needed: Sequence[bool]
) -> list[Any]:
    """The body once more, under autograd."""
    again = torch.is_grad_enabled()  # the gradients are differentiated too
    inputs = [
        _apart(v, again) if n else v
        for v, n in zip(values, needed, strict=True)
    ]
    with torch.enable_grad():
        results = body.run(inputs)
    pairs = [
        (r, g) for r, g in zip(results, grads, strict=True) if r.requires_grad
    ]
    wanted = [i for i, n in enumerate(needed) if n]
    made = (
        torch.autograd.grad(
            [r for r, _ in pairs],
            [inputs[i] for i in wanted],
            [g for _, g in pairs],
            create_graph=again,
            allow_unused=True,
        )
        if pairs
        else [None] * len(wanted)
    )
    out: list[Any] = [None] * len(values)
    for i, gradient in zip(wanted, made, strict=True):
        out[i] = gradient
    return out


def _apart(value: torch.Tensor, again: bool) -> torch.Tensor:
    """The same numbers, of which no other argument is a part: arguments may be
    one tensor, or be computed from each other."""
    if again:
        return value.view_as(value)
    return value.detach().requires_grad_()


def _filled(gradient: Any, value: torch.Tensor) -> Any:
    """As large as the parameter. Where that has been broadcast or is of another
    dtype, autograd sums and converts."""
    return gradient.expand(torch.broadcast_shapes(gradient.shape, value.shape))
