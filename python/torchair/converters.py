"""Converters: how the user wants an operator written in the Ascend IR.

They run before a graph is imported, in max-autotune mode: the FX node is
replaced by what the converter builds (torchair.ge). An operator without one
is converted by itself where its type, CamelCase, is registered; else it stays
as it is: a row of the engine, or a HOST node with the reason.
"""

from __future__ import annotations

import inspect
import operator
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import decomposed, define, flex, inlined, norms  # noqa: F401 (registers)
from .operators import remembered
from .sizes import is_symbolic

_ATTRIBUTE = "_ge_converter"
_AUTO = (
    torch.ops.higher_order.auto_functionalized,
    torch.ops.higher_order.auto_functionalized_v2,
)
_BUILT_IN = ("aten", "prim", "prims")
_others: dict[Any, Converter] = {}  # of callables that refuse attributes
_registered = 0


class Converter:
    """What the decorator gives: the function, checked."""

    def __init__(self, op: Any, function: Callable[..., Any]) -> None:
        self.op = op
        self.function = function
        self.__name__ = getattr(function, "__name__", "converter")
        parameters = inspect.signature(function).parameters
        self.wants_meta = "meta_outputs" in parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def register_fx_node_ge_converter(aten_op: Any) -> Callable[..., Any]:
    """A decorator: the function converts FX nodes of this operator.

    aten_op: an overload (torch.ops.ns.name.overload), or a Python callable;
    None: the decorator does nothing. Registering again replaces.

    The function gets Tensors of torchair.ge for tensors and symbolic integers,
    Python values as they are, and, where it has a parameter `meta_outputs`,
    what the operator gives as TensorSpecs. It returns a Tensor, or a list or
    tuple of them, one per result. NotImplementedError: this case is left to
    torch.
    """

    def decorate(function: Callable[..., Any]) -> Converter:
        global _registered
        if not callable(function):
            raise TypeError(
                f"a converter is a function, not {type(function).__name__}"
            )
        made = Converter(aten_op, function)
        try:
            setattr(aten_op, _ATTRIBUTE, made)
        except AttributeError:
            _others[aten_op] = made
        _registered += 1
        return made

    if aten_op is None:
        return lambda *_args, **_kwargs: None
    packet = isinstance(aten_op, torch._ops.OpOverloadPacket)
    if packet or not callable(aten_op):
        raise TypeError(
            "aten_op is an overload such as torch.ops.npu.my_op.default, or "
            f"a callable, not {type(aten_op).__name__}"
        )
    return decorate


@remembered
def _is_torchs(op: Any) -> bool:
    return getattr(op, "namespace", "") in _BUILT_IN


def find(target: Any) -> Converter | None:
    if not _registered:
        return None
    found = getattr(target, _ATTRIBUTE, None)
    if isinstance(found, Converter):
        return found
    try:
        return _others.get(target)
    except TypeError:
        return None


# ---- automatic converters ----


def automatic(op: Any) -> Converter:
    """The converter that the operator's name and schema give.

    RuntimeError: the reason why there is none.
    """
    from .ge import registry

    if not isinstance(op, torch._ops.OpOverload):
        raise RuntimeError(f"{op} is no operator overload")
    if op.namespace in _BUILT_IN:
        raise RuntimeError(f"{op} is PyTorch's own")
    own = registry.of_operator(op)  # refuses Scalars
    found = registry.find(own.name)
    if found is None:
        raise RuntimeError(f"operator type {own.name} is not registered")
    for what in ("inputs", "attrs", "outputs"):
        have, want = len(getattr(own, what)), len(getattr(found, what))
        if have != want:
            raise RuntimeError(
                f"{op} has {have} {what}, operator type {own.name} {want}"
            )
    if own.references != found.references:
        raise RuntimeError(
            f"{op} writes {own.references}, operator type {own.name} "
            f"{found.references}"
        )
    return Converter(op, _positional(found, own.references))


def _positional(found: Any, written: Sequence[str]) -> Callable[..., Any]:
    from . import ge

    def convert(*args: Any, **kwargs: Any) -> Any:
        del kwargs
        made = ge.custom_op(found.name, *args)
        results = made if isinstance(made, tuple) else (made,)
        pairs = zip(found.outputs, results, strict=True)
        return [r for o, r in pairs if o.name not in written]

    return convert


# ---- graphs ----


class _Call:
    """An FX node as a call of its operator: also where AOTAutograd has made a
    functional one of an operator that writes its arguments."""

    def __init__(self, node: torch.fx.Node) -> None:
        self.node = node
        self.functional = node.target in _AUTO
        self.op: Any = node.args[0] if self.functional else node.target

    def arguments(self) -> tuple[list[Any], dict[str, Any]] | None:
        """None: what is written is a part of a tensor."""
        if not self.functional:
            return list(self.node.args), dict(self.node.kwargs)
        given: dict[str, Any] = dict(self.node.kwargs)
        bases = given.pop("_all_bases", None)
        args = []
        for a in self.op._schema.arguments:
            if bases is None or a.name in given:
                args.append(given[a.name])
                continue
            prefix = f"_{a.name}_"
            about = {k: v for k, v in given.items() if k.startswith(prefix)}
            if set(about) != {f"{prefix}base_index"}:
                return None
            base = about[f"{prefix}base_index"]
            args.append(None if base is None else bases[base])
        return args, {}

    def written(self) -> list[str]:
        """Arguments that are written and not absent."""
        found = [
            a.name
            for a in self.op._schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        ]
        return [name for name in found if self._is_given(name)]

    def _is_given(self, name: str) -> bool:
        given = self.node.kwargs
        return given.get(name, given.get(f"_{name}_base_index")) is not None

    def results(
        self, returned: Sequence[Any], versions: dict[str, Any]
    ) -> list[Any]:
        """What the node gives: what the operator returns (None stands for
        nothing), then new versions of what it writes. Two arguments may be
        one tensor, whose version is what is written last."""
        if not self.functional:
            return list(returned)
        bases: Any = self.node.kwargs.get("_all_bases")
        order = self.written()
        if bases is None:
            made = [versions[name] for name in order]
        else:
            made = [None] * len(bases)
            for name in order:
                index: Any = self.node.kwargs[f"_{name}_base_index"]
                made[index] = versions[name]
        return [*(returned or [None]), *made]


def _expected(call: _Call) -> list[Any]:
    value = call.node.meta.get("val")
    many = isinstance(value, (tuple, list))
    values = list(value) if many else [value]  # type: ignore[arg-type]
    if call.functional:
        count = len(call.op._schema.returns)
        values = values[:count]
    return values


def _as_tensors(at: Any, x: Any) -> Any:
    from .ge.build import Tensor

    def convert(node: torch.fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) or is_symbolic(value):
            from .ge.build import Node

            return Tensor(at, Node(node.name, "Data"), 0, node)
        return value

    if isinstance(x, torch.fx.Node):
        return convert(x)
    if isinstance(x, (list, tuple)):
        return type(x)(_as_tensors(at, y) for y in x)
    return x


def _same(got: Any, want: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return (
        isinstance(got, torch.Tensor)
        and got.dtype == want.dtype
        and len(got.shape) == len(want.shape)
        and all(
            statically_known_true(a == b)
            for a, b in zip(got.shape, want.shape, strict=True)
        )
    )


def _check(op: Any, results: Sequence[Any], values: Sequence[Any]) -> None:
    from .ge.build import Tensor

    if len(results) != len(values):
        raise RuntimeError(
            f"the converter of {op} gives {len(results)} results, the "
            f"operator has {len(values)}"
        )
    for i, (r, v) in enumerate(zip(results, values, strict=True)):
        if v is None:
            continue
        if not isinstance(r, Tensor):
            raise RuntimeError(
                f"the converter of {op} gives a {type(r).__name__} as result "
                f"{i}, a Tensor is due"
            )
        got = r.fx.meta["val"]
        if not _same(got, v):
            raise RuntimeError(
                f"the converter of {op} gives {_type(got)} as result {i}, the "
                f"operator's meta function {_type(v)}"
            )


def _type(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{value.dtype}{list(value.shape)}"


def _where(found: Converter, why: BaseException) -> str:
    """The line of the user's converter that has raised."""
    code = getattr(found.function, "__code__", None)
    file = getattr(code, "co_filename", None)
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(why.__traceback__)
        if frame.filename == file
    ]
    return f" ({file}, line {lines[-1]})" if lines else ""


def _run(call: _Call, found: Converter, at: Any) -> list[Any] | None:
    """The Tensors that the converter gives; None: not this case."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    from .ge.build import TensorSpec, current

    given = call.arguments()
    if given is None:
        return None
    args, kwargs = (_as_tensors(at, given[0]), given[1])
    kwargs = {k: _as_tensors(at, v) for k, v in kwargs.items()}
    values = _expected(call)
    if found.wants_meta:
        specs = [TensorSpec(v) for v in values]
        kwargs["meta_outputs"] = specs[0] if len(specs) == 1 else specs
    schema = getattr(call.op, "_schema", None)
    names = [a.name for a in schema.arguments] if schema else []
    at.arguments = {}
    for x, name in zip(given[0], names, strict=False):
        if isinstance(x, torch.fx.Node):
            at.arguments.setdefault(x, []).append(name)
    token = current.set(at)
    try:
        with unset_fake_temporarily():  # a converter's tensors are real
            made = found(*args, **kwargs)
    except NotImplementedError as why:
        call.node.meta["host_reason"] = (
            f"its converter does not take this case: {why}"
        )
        return None
    except Exception as why:
        line = f"the converter of {call.op} failed{_where(found, why)}: "
        if type(why).__module__ == "builtins" and why.args == (str(why),):
            why.args = (line + str(why),)
            raise  # of the type that the interface says
        raise RuntimeError(f"{line}{type(why).__name__}: {why}") from why
    finally:
        current.reset(token)
    results = list(made) if isinstance(made, (list, tuple)) else [made]
    if made is None and not values:
        results = []
    _check(call.op, results, values)
    return results


def _replace(call: _Call, results: list[Any], at: Any) -> None:
    nodes = [None if r is None else r.fx for r in results]
    _replace_by(call, call.results(nodes, at.outputs))


def _replace_by(call: _Call, nodes: list[Any]) -> None:
    node = call.node
    if not isinstance(node.meta.get("val"), (tuple, list)):
        node.replace_all_uses_with(nodes[0])
    else:
        for user in list(node.users):
            if user.target is operator.getitem:
                index: Any = user.args[1]
                user.replace_all_uses_with(nodes[index])
                user.graph.erase_node(user)
    node.graph.erase_node(node)


def _is_users(op: Any) -> bool:
    """May the user have meant an operator type by its name?"""
    return (
        isinstance(op, torch._ops.OpOverload)
        and op.namespace not in _BUILT_IN
        and not op.namespace.startswith("_")
    )


def _stays(op: Any, converts: bool) -> bool:
    """Is it torch's own, with no converter that would be asked?"""
    return _is_torchs(op) and not (converts and find(op))


def _expand_defined(at: Any, call: _Call) -> None:
    """An operator of torchair.ops.define: what its body says."""
    made = define.find(call.op)
    given = call.arguments()
    if made is None or given is None:
        return
    results = made.convert(at, made.complete(*given))
    count = len(made.written)
    versions = dict(zip(call.written(), results, strict=False))
    _replace_by(call, call.results(results[count:], versions))


def expand(gm: torch.fx.GraphModule, converts: bool = True) -> None:
    """Nodes of operators with a converter become what it builds, and those of
    torchair.ops.define what their bodies say.

    converts: converters are asked; without, only the latter are.

    An exception of a converter names the operator; RuntimeError where it gives
    other dtypes or sizes than the operator's meta function.
    """
    from .ge.build import Builder

    decomposed.prepare(gm, find)
    inlined.expand(gm)
    names: set[str] = set()
    for node in list(gm.graph.nodes):
        if node.op != "call_function" or _stays(node.target, converts):
            continue
        call = _Call(node)
        if define.find(call.op) is not None:
            _expand_defined(Builder(gm, node, call.op, names), call)
            continue
        if not converts:
            continue
        found = find(call.op)
        if found is None and not _is_users(call.op):
            continue
        if found is None:
            try:
                found = automatic(call.op)
            except RuntimeError as why:
                node.meta["host_reason"] = f"no converter: {why}"
                continue
        at = Builder(gm, node, call.op, names)
        results = _run(call, found, at)
        if results is None:
            continue
        if call.functional and set(call.written()) - set(at.outputs):
            missing = sorted(set(call.written()) - set(at.outputs))
            raise RuntimeError(
                f"the converter of {call.op} does not give the outputs "
                f"{missing}, which the operator writes"
            )
        _replace(call, results, at)
