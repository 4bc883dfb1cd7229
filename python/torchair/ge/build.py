"""What converters call: each call adds nodes to the graph that is converted.

A node of the Ascend IR becomes the FX node of the ATen overload that the
engine's table gives for it (lower.py), or a call of a registered kernel. So
dtypes and sizes, symbolic ones too, are torch's own inference.
"""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..sizes import is_symbolic
from . import attr as attributes
from . import lower, registry
from .types import DataType, constant_dtype, ge_dtype, torch_dtype


class Tensor:
    """A value of the Ascend IR: result `index` of a node. For annotations and
    isinstance; converters get and make them, users do not."""

    def __init__(
        self, at: Builder, owner: Node, index: int = 0, value: Any = None
    ) -> None:
        self._at = at
        self.node = owner
        self.index = index
        self._fx = value  # an FX node; None: a constant that is not used yet
        self.constant: Any = None  # of Const: a number or nested lists
        self._dtype = DataType.DT_UNDEFINED  # type: ignore[attr-defined]

    @property
    def fx(self) -> Any:
        """The FX node; a constant is put into the graph when first asked."""
        if self._fx is None:
            self._fx = self._at.put_constant(self.constant, self._dtype)
            _name(self._fx, self.node)
        return self._fx

    @property
    def meta(self) -> Any:
        """The fake tensor, or None."""
        return None if self._fx is None else self._fx.meta.get("val")

    @property
    def dtype(self) -> int:
        """A DataType."""
        if isinstance(self.meta, torch.Tensor):
            return ge_dtype(self.meta.dtype)
        if is_symbolic(self.meta):
            return int(DataType.DT_INT64)  # type: ignore[attr-defined]
        return int(self._dtype)

    @property
    def rank(self) -> int:
        """AssertionError: not known."""
        if isinstance(self.meta, torch.Tensor):
            return self.meta.dim()
        if self.constant is None and not is_symbolic(self.meta):
            raise AssertionError(f"the rank of {self.tensor} is not known")
        rank, inner = 0, self.constant
        while isinstance(inner, list):
            rank, inner = rank + 1, inner[0] if inner else 0
        return rank

    @property
    def symsize(self) -> list[Any]:
        return list(self.meta.shape)

    @property
    def tensor(self) -> str:
        return f"{self.node.name}:{self.index}"

    @property
    def controller(self) -> str:
        return f"{self.node.name}:-1"

    @property
    def desc(self) -> str:
        return f"{self.tensor} {self.meta}"

    def __repr__(self) -> str:
        return f"Tensor({self.desc})"


class TensorSpec:
    """What the operator that is converted gives: `meta_outputs`."""

    def __init__(self, value: torch.Tensor) -> None:
        self._value = value

    @property
    def dtype(self) -> int:
        return ge_dtype(self._value.dtype)

    @property
    def rank(self) -> int:
        return self._value.dim()

    @property
    def size(self) -> list[int]:
        """AssertionError: a size is symbolic."""
        if any(is_symbolic(s) for s in self._value.shape):
            raise AssertionError(
                f"size {list(self._value.shape)} is symbolic; build for any "
                "size, or compile with dynamic=False"
            )
        return [int(s) for s in self._value.shape]


@dataclass
class Node:
    """A node of the Ascend IR, as far as converters see it."""

    name: str
    type: str
    given: bool = False  # the name, by the user


def _name(made: Any, owner: Node) -> None:
    """Where the user names a node, the FX node is called so, and with it what
    graph_dump (_fx_tensor_name) and the files of data_dump say."""
    if made is None or not owner.given:
        return
    while made.target is operator.getitem:
        made = made.args[0]
    made._rename(owner.name)


@dataclass
class Builder:
    """Where the calls of a running converter go: before an FX node."""

    gm: torch.fx.GraphModule
    place: torch.fx.Node
    op: Any  # that is converted
    names: set[str] = field(default_factory=set)  # of the graph
    # what the operator's arguments become: FX nodes by name
    outputs: dict[str, Any] = field(default_factory=dict)
    # of the operator's arguments, by FX node
    arguments: dict[Any, list[str]] = field(default_factory=dict)

    def emit(
        self, target: Any, args: Sequence[Any], kwargs: dict[str, Any] | None
    ) -> torch.fx.Node:
        """A call_function node, with its fake result."""

        def fake(x: Any) -> Any:
            return torch.fx.node.map_arg(x, lambda n: n.meta["val"])

        def run(f: Callable[..., Any]) -> Any:
            mode = torch._guards.detect_fake_mode(self._values())
            if mode is None:
                return f()
            with mode:
                return f()

        given = dict(kwargs or {})
        value = run(lambda: target(*fake(tuple(args)), **fake(given)))
        graph = self.gm.graph
        with graph.inserting_before(self.place):
            made = graph.call_function(target, tuple(args), given)
        self._describe(made, value)
        return made

    def _values(self) -> list[Any]:
        nodes = self.gm.graph.nodes
        return [n.meta.get("val") for n in nodes if n.op == "placeholder"]

    def _describe(self, made: torch.fx.Node, value: Any) -> None:
        for key in ("stack_trace", "nn_module_stack", "cores", "after"):
            if key in self.place.meta:
                made.meta[key] = self.place.meta[key]
        made.meta["val"] = value

    def _gpu(self) -> torch.device | None:
        """Where constants are that are added to tensors of a GPU."""
        found = (getattr(v, "device", None) for v in self._values())
        return next((d for d in found if d and d.type == "cuda"), None)

    def put_constant(self, value: Any, dtype: int) -> torch.fx.Node:
        kind = torch_dtype(dtype)
        if isinstance(value, (bool, int, float)):
            scalar = torch.ops.aten.scalar_tensor.default
            return self.emit(scalar, [value], {"dtype": kind})
        tensor = torch.tensor(value, dtype=kind, device=self._gpu())
        name = "_ge_const"
        while hasattr(self.gm, name):
            name += "_"
        self.gm.register_buffer(name, tensor)
        with self.gm.graph.inserting_before(self.place):
            made = self.gm.graph.get_attr(name)
        mode = torch._guards.detect_fake_mode(self._values())
        self._describe(made, mode.from_tensor(tensor) if mode else tensor)
        return made

    def node(self, op_type: str, name: str | None) -> Node:
        """AssertionError: a name that is empty or taken."""
        given = name is not None
        if name is None:
            name, n = op_type, 0
            while name in self.names:
                n += 1
                name = f"{op_type}_{n}"
        if not name:
            raise AssertionError("node_name is empty")
        if name in self.names:
            raise AssertionError(f"two nodes are named {name!r}")
        self.names.add(name)
        return Node(name, op_type, given)


_current: contextvars.ContextVar[Builder | None] = contextvars.ContextVar(
    "torchair.ge.builder", default=None
)
current = _current  # set by converters.py


def _builder() -> Builder:
    at = _current.get()
    if at is None:
        raise RuntimeError(
            "torchair.ge builds nodes inside a converter only: register one "
            "with torchair.register_fx_node_ge_converter(op)"
        )
    return at


# ---- building elements ----


def Const(
    v: Any,
    dtype: int | None = None,
    node_name: str | None = None,
    readable: bool = True,
) -> Tensor:
    """A constant: a number, a list, an array or a torch tensor.

    dtype: a DataType; None: an integer is INT64, a float FLOAT, a list of
    floats DOUBLE, an empty list INT32. readable: dumps have the values of
    constants whether it is set or not. ValueError: v is a Tensor of the graph.
    """
    at = _builder()
    if isinstance(v, Tensor):
        raise ValueError("Const takes a value, not a Tensor of the graph")
    made = Tensor(at, at.node("Const", node_name))
    made._dtype = constant_dtype(v) if dtype is None else int(dtype)
    plain = isinstance(v, (bool, int, float))
    made.constant = v if plain else torch.as_tensor(v).tolist()
    return made


def _check_dependencies(dependencies: Any) -> None:
    for d in dependencies:
        if not isinstance(d, Tensor):
            raise AssertionError(
                f"dependencies are Tensors, not {type(d).__name__}"
            )


def _wait(at: Builder, what: Any, dependencies: Sequence[Tensor]) -> None:
    earlier = [d.fx for d in dependencies]
    if earlier:
        what.meta["after"] = [*what.meta.get("after", ()), *earlier]


def Cast(
    x: Any,
    *,
    dst_type: int,
    dependencies: Sequence[Tensor] = (),
    node_name: str | None = None,
) -> Tensor:
    """x (a number is a constant) converted to a DataType, after the nodes of
    the dependencies."""
    at = _builder()
    if not isinstance(x, Tensor):
        x = Const(x)
    _check_dependencies(dependencies)
    owner = at.node("Cast", node_name)
    kind = torch_dtype(dst_type)
    made = at.emit(torch.ops.aten._to_copy.default, [x.fx], {"dtype": kind})
    _wait(at, made, dependencies)
    _name(made, owner)
    return Tensor(at, owner, 0, made)


def Clone(
    x: Tensor,
    *,
    dependencies: Sequence[Tensor] = (),
    node_name: str | None = None,
) -> Tensor:
    """A copy (type TensorMove). AssertionError: x is no Tensor."""
    at = _builder()
    if not isinstance(x, Tensor):
        raise AssertionError(f"Clone takes a Tensor, not {type(x).__name__}")
    _check_dependencies(dependencies)
    owner = at.node("TensorMove", node_name)
    made = at.emit(torch.ops.aten.clone.default, [x.fx], None)
    _wait(at, made, dependencies)
    _name(made, owner)
    return Tensor(at, owner, 0, made)


# ---- custom_op ----


def _find_type(at: Builder, op_type: str) -> registry.OpType:
    found = registry.find(op_type)
    if found is not None:
        return found
    if isinstance(at.op, torch._ops.OpOverload):
        own = registry.camel_case(at.op._schema.name.partition("::")[2])
        if own == op_type and at.op.namespace not in ("aten", "prims", "prim"):
            return registry.of_operator(at.op)
    raise RuntimeError(
        f"operator type {op_type} is not registered. Either name one of "
        "docs/ops.md (column Ascend IR), or give it a kernel first: "
        f'torchair.ge.register_op("{op_type}(x; axis:Int=0) -> y", kernel=f)'
    )


def _check_input(f: registry.Field, x: Any, error: type[Exception]) -> None:
    if f.is_list:
        good = isinstance(x, (list, tuple)) and all(
            isinstance(t, Tensor) or t is None for t in x
        )
        want = "a list of Tensors"
    else:
        good = isinstance(x, Tensor) or (f.optional and x is None)
        want = "a Tensor or None" if f.optional else "a Tensor"
    if not good:
        raise error(f"input {f.name} takes {want}, not {type(x).__name__}")


def _by_position(
    found: registry.OpType, args: Sequence[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    want = len(found.inputs) + len(found.attrs)
    if len(args) != want:
        names = [f.name for f in found.inputs + found.attrs]
        raise IndexError(
            f"{found.name} takes {want} arguments ({', '.join(names)}), "
            f"{len(args)} were given"
        )
    inputs = dict(zip([f.name for f in found.inputs], args, strict=False))
    for f in found.inputs:
        _check_input(f, inputs[f.name], TypeError)
    attrs = {}
    for f, value in zip(found.attrs, args[len(found.inputs) :], strict=True):
        if value is None:
            continue
        attrs[f.name] = _attribute(f, value)
    return inputs, attrs


def _attribute(f: registry.Field, value: Any) -> Any:
    if f.kind == "Any":
        return value
    kind = attributes.KINDS.get(f.kind)
    if kind is None:
        raise ValueError(f"attribute {f.name} has the unknown kind {f.kind}")
    if isinstance(value, torch.dtype):
        return ge_dtype(value)
    if isinstance(value, Tensor):  # a symbolic integer
        return value
    try:
        return kind(value).value
    except AssertionError as why:
        raise AssertionError(f"attribute {f.name}: {why}") from None


def _by_keyword(
    found: registry.OpType, inputs: Any, attrs: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    for what, given in (("inputs", inputs), ("attrs", attrs)):
        if given is not None and not isinstance(given, dict):
            raise AssertionError(
                f"{what} is a dict of names, not {type(given).__name__}"
            )
    known = {f.name: f for f in found.inputs}
    kinds = {f.name for f in found.attrs}
    for name, x in (inputs or {}).items():
        if name not in known:
            raise AssertionError(_unknown(found, "input", name, known))
        if x is not None:
            _check_input(known[name], x, AssertionError)
    for f in found.inputs:
        if not f.optional and (inputs or {}).get(f.name) is None:
            raise AssertionError(f"{found.name}: input {f.name} must be given")
    for name, a in (attrs or {}).items():
        if not isinstance(a, attributes.Attr):
            raise AssertionError(
                f"attribute {name} takes torchair.ge.attr.X(value), not "
                f"{type(a).__name__}"
            )
        if name not in kinds:
            raise AssertionError(_unknown(found, "attribute", name, kinds))
    return dict(inputs or {}), {n: a.value for n, a in (attrs or {}).items()}


def _unknown(
    found: registry.OpType, what: str, name: str, known: Iterable[str]
) -> str:
    return f"{found.name} has no {what} {name}; it has " + (
        ", ".join(known) or "none"
    )


def _output_names(found: registry.OpType, outputs: Any) -> list[str]:
    names = []
    known = {f.name for f in found.outputs}
    unnamed = [f.name for f in found.outputs if f.name.startswith("#")]
    if isinstance(outputs, str):
        raise AssertionError(f'outputs is a list of names: ["{outputs}"]')
    for o in outputs or ():
        name = o[0] if isinstance(o, tuple) else o
        if not isinstance(name, str):
            raise AssertionError(
                f'outputs are "name" or ("name", n), not {o!r}'
            )
        if name not in known and unnamed:
            name = unnamed.pop(0)
        if name not in known:
            raise AssertionError(_unknown(found, "output", name, known))
        names.append(name)
    return names


def custom_op(
    op_type: str,
    *args: Any,
    inputs: dict[str, Any] | None = None,
    outputs: Sequence[Any] | None = None,
    attrs: dict[str, Any] | None = None,
    node_name: str | None = None,
) -> Any:
    """A node of any operator type.

    By position: all inputs, then all attributes, in the prototype's order; all
    outputs are given. By keyword: inputs by name, attributes as
    torchair.ge.attr values, names of the outputs that are wanted.
    Gives a Tensor, a tuple of them (a list for a list output), or None.
    RuntimeError: the type is not known. IndexError, TypeError: positional
    arguments that do not fit. AssertionError: keyword arguments that do not.
    """
    at = _builder()
    found = _find_type(at, op_type)
    if args:
        values, attributes_ = _by_position(found, args)
        wanted = [f.name for f in found.outputs]
    else:
        values, attributes_ = _by_keyword(found, inputs, attrs)
        wanted = _output_names(found, outputs)
    for f in found.attrs:
        if f.required and f.name not in attributes_:
            raise RuntimeError(f"{op_type}: attribute {f.name} must be given")
    owner = at.node(op_type, node_name)
    made = lower.lower(at, found, values, attributes_)
    if op_type != "Assign":
        at.outputs |= {n: made[n] for n in found.references}
    if op_type != "Assign":  # which makes no node
        _name(_first(made), owner)
    picked = [_wrap(at, owner, i, made[n]) for i, n in enumerate(wanted)]
    if not picked:
        return None
    return picked[0] if len(picked) == 1 else tuple(picked)


def _first(made: dict[str, Any]) -> Any:
    """A result of the FX node; None: it has none."""
    for value in made.values():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                return one
    return None


def _wrap(at: Builder, owner: Node, index: int, value: Any) -> Any:
    if isinstance(value, list):
        return [Tensor(at, owner, index + i, v) for i, v in enumerate(value)]
    return Tensor(at, owner, index, value)
