"""Linear weights of a model as 8 or 4 bits, made when it is compiled: the
options `weights.*`.

A product with a parameter becomes `air::quantised_mm` over buffers of the
graph. The parameter stays an argument: before each call its identity, memory
and version are compared with what was quantised, and a parameter that was
written or replaced is quantised again, into the same buffers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import compat, eager, quantised
from .config import CompilerConfig

aten = torch.ops.aten
_BITS = {"int8": 8, "int4": 4}
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_VALUE = "air_weight"  # of a placeholder's meta: the parameter
_PARTS = "_air_parts"  # of a watched program


@dataclass
class Weight:
    """A parameter that products read. kept: why it is as it was."""

    name: str
    shape: tuple[int, ...]
    bits: int = 0
    group: int = 0
    error: float = 0.0  # quantised.Stored
    bytes: int = 0  # that a product reads
    was: int = 0
    kept: str = ""


@dataclass
class Report:
    """What became of the weights of one graph. reason: why none was looked
    at."""

    weights: list[Weight] = field(default_factory=list)
    reason: str = ""

    def as_dicts(self) -> list[dict[str, Any]]:
        return [asdict(w) for w in self.weights]

    def lines(self) -> Iterator[str]:
        if self.reason:
            yield f"weights stay as they are: {self.reason}"
        done = [w for w in self.weights if not w.kept]
        if self.weights:
            now = sum(w.bytes for w in done)
            was = sum(w.was for w in done)
            yield (
                f"weights: {len(done)} of {len(self.weights)} quantised, "
                f"{now / 1e6:.1f} MB instead of {was / 1e6:.1f}"
            )
        for w in self.weights:
            what = (
                f"stays: {w.kept}"
                if w.kept
                else f"int{w.bits}, groups of {w.group}, error {w.error:.2%}"
            )
            yield f"  {w.name} {list(w.shape)}: {what}"


def mark(gm: GraphModule, values: Sequence[Any]) -> None:
    """Notes in the placeholders of AOTAutograd's graph the parameters that
    they are. values: the arguments of Dynamo's graph."""
    for node in gm.graph.nodes:
        desc = node.meta.get("desc") if node.op == "placeholder" else None
        index = getattr(desc, "idx", len(values))
        if type(desc).__name__ == "PlainAOTInput" and index < len(values):
            value = values[index]
            fake = torch._subclasses.fake_tensor.FakeTensor
            if isinstance(value, torch.nn.Parameter) and not isinstance(
                value, fake
            ):
                node.meta[_VALUE] = weakref.ref(value)


# ---- which products ----


@dataclass
class _Product:
    """Of an argument of the graph; turned: it is [k, n] there."""

    node: Node
    turned: bool


_TURNS = (aten.t.default, aten.permute.default, aten.transpose.int)


def _is_turn(node: Any) -> bool:
    """Are the axes of a matrix exchanged?"""
    if not isinstance(node, Node) or node.target not in _TURNS:
        return False
    if node.target is aten.permute.default:
        return [int(i) % 2 for i in node.args[1]] == [1, 0]  # type: ignore
    return node.target is aten.t.default or (
        {int(i) % 2 for i in node.args[1:3]} == {0, 1}  # type: ignore
    )


def _products(node: Node) -> Iterator[tuple[Node, _Product]]:
    """(placeholder, product) where the node is one with a weight."""
    first = {aten.mm.default: 0, aten.addmm.default: 1}.get(node.target)  # type: ignore
    if first is None or (first and set(node.kwargs.values()) - {1}):
        return
    bias: Any = node.args[0] if first else None
    if bias is not None and bias.meta["val"].dim() != 1:
        return
    w: Any = node.args[first + 1]
    turns = _is_turn(w)
    source: Any = w.args[0] if turns else w
    if source.op == "placeholder" and _VALUE in source.meta:
        yield source, _Product(node, not turns)


def _find(gm: GraphModule) -> dict[Node, list[_Product]]:
    found: dict[Node, list[_Product]] = {}
    for node in gm.graph.nodes:
        for source, product in _products(node):
            found.setdefault(source, []).append(product)
    return found


def _why_kept(
    value: torch.Tensor, products: list[_Product], config: CompilerConfig
) -> str:
    """ "" for a weight that is to be quantised."""
    wanted = config.weights
    rows, depth = value.shape
    if products[0].turned:
        rows, depth = depth, rows
    if value.dtype not in _FLOATS:
        return f"{value.dtype} has no kernel"
    if value.device.type not in ("cpu", "cuda"):
        return f"it is on device {value.device}"
    if len({p.turned for p in products}) > 1:
        return "it is used both ways round"
    if not value.numel():
        return "it is empty"
    if value.numel() < wanted.smallest.raw:
        return f"less than weights.smallest = {wanted.smallest.raw} numbers"
    group = wanted.group.raw
    if wanted.quantise.raw == "int4" and depth % group:
        return f"its rows of {depth} are not groups of {group}"
    return ""


# ---- what is quantised ----


@dataclass
class _Held:
    """A weight in the buffers of a graph."""

    index: int  # argument of the program
    value: weakref.ref[torch.Tensor]
    version: int
    pointer: int
    turned: bool
    numbers: torch.Tensor
    scale: torch.Tensor
    bits: int
    group: int

    def is_current(self, value: torch.Tensor) -> bool:
        return (
            value._version == self.version
            and value.data_ptr() == self.pointer
            and self.value() is value
        )

    def take(self, value: torch.Tensor) -> None:
        """Quantises it again."""
        found = _store(value, self.turned, self.bits, self.group)
        with torch.no_grad():
            self.numbers.copy_(found.weight)
            self.scale.copy_(found.scale)
        self.value = weakref.ref(value)
        self.version, self.pointer = value._version, value.data_ptr()


def _store(
    value: torch.Tensor, turned: bool, bits: int, group: int
) -> quantised.Stored:
    with compat.real_tensors(), torch.no_grad():
        return quantised.store(value.t() if turned else value, bits, group)


class Weights:
    """The quantised weights of one graph."""

    def __init__(self) -> None:
        self.report = Report()
        self.held: list[_Held] = []

    def refresh(self, *args: Any) -> None:
        """Before a call, of its arguments."""
        for held in self.held:
            value = args[held.index]
            if not held.is_current(value):
                held.take(value)

    def watch(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program, behind a look at its parameters."""
        if not self.held:
            return program

        def run(*args: Any) -> Any:
            self.refresh(*args)
            return program(*args)

        watched = eager.boxed(run)
        setattr(watched, _PARTS, (program, self.refresh))
        return watched


def parts(made: Any) -> tuple[Any, Callable[..., None] | None]:
    """What `Weights.watch` made of which program, and the look before it."""
    found: tuple[Any, Callable[..., None] | None]
    found = getattr(made, _PARTS, (made, None))
    return found


def apply(gm: GraphModule, config: CompilerConfig, kind: str) -> Weights:
    """Quantises the weights of a graph as `weights.*` ask."""
    out = Weights()
    found = _find(gm) if config.weights.quantise.raw else {}
    if found and kind != "inference":
        out.report.reason = "the graph is differentiated"
        return out
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    for source, products in found.items():
        value = source.meta[_VALUE]()
        weight = Weight(
            source.meta.get("user_name", source.name), tuple(value.shape)
        )
        weight.kept = _why_kept(value, products, config)
        out.report.weights.append(weight)
        if not weight.kept:
            index = places.index(source)
            out.held.append(
                _replace(gm, config, products, value, index, weight)
            )
    if out.held:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return out


def _replace(
    gm: GraphModule,
    config: CompilerConfig,
    products: list[_Product],
    value: torch.Tensor,
    index: int,
    weight: Weight,
) -> _Held:
    bits = _BITS[config.weights.quantise.raw]
    turned = products[0].turned
    stored = _store(value, turned, bits, config.weights.group.raw)
    weight.bits, weight.group = bits, stored.group
    weight.error = stored.error
    weight.was = value.nbytes
    weight.bytes = stored.weight.nbytes + stored.scale.nbytes
    buffers = []
    with gm.graph.inserting_before(_after_placeholders(gm)):
        for part, tensor in (("q", stored.weight), ("s", stored.scale)):
            name = f"_air_weight_{index}_{part}"
            gm.register_buffer(name, tensor)
            node = gm.graph.get_attr(name)
            node.meta["val"] = tensor
            buffers.append(node)
    for p in products:
        _write(gm, p, buffers, bits)
    return _Held(
        index,
        weakref.ref(value),
        value._version,
        value.data_ptr(),
        turned,
        stored.weight,
        stored.scale,
        bits,
        stored.group,
    )


def _after_placeholders(gm: GraphModule) -> Node:
    nodes: list[Node] = list(gm.graph.nodes)
    return next(n for n in nodes if n.op != "placeholder")


def _write(
    gm: GraphModule, p: _Product, buffers: list[Node], bits: int
) -> None:
    # as they are now: one may be a product that was replaced before
    *bias_or_none, a, _ = p.node.args
    bias = bias_or_none[0] if bias_or_none else None
    with gm.graph.inserting_before(p.node):
        new = gm.graph.call_function(
            torch.ops.air.quantised_mm.default,
            (a, *buffers, None, bias, bits, True),
        )
    new.meta.update(p.node.meta)
    p.node.replace_all_uses_with(new)
    gm.graph.erase_node(p.node)
