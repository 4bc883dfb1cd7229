"""FX graph -> engine graph.

One pass over the nodes. A node whose operator has a row in the op table, and
whose result the engine infers as torch did, becomes that op; any other one
becomes a HOST node with a reason. A graph with something that no value of the
engine can stand for raises Unexpressible.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from . import (
    carried,
    comm,
    compat,
    cuda,
    divisors,
    draws,
    images,
    kinds,
    lazy,
    names,
    pairs,
    places,
    rng_states,
    schema,
    slow,
    views,
)
from ._native import AirError, Graph
from .hosts import Arguments, Call, make_call
from .imported import HostNode, Imported
from .node_log import log_node, logs_nodes
from .origin import location_of
from .recorded import entry
from .schema import DTYPE_NAMES, Refused, used_items
from .sizes import (
    Sizes,
    Source,
    Unexpressible,
    evaluator,
    expression,
    is_symbolic,
    limits,
)
from .tensor_types import Types, dtype_of

PARAM, FROZEN = 1, 2  # AIR_INPUT_PARAM, AIR_INPUT_FROZEN
aten = torch.ops.aten
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def import_graph(
    gm: torch.fx.GraphModule,
    name: str,
    static: dict[int, int],
    without: frozenset[str] = frozenset(),
    origins: bool = False,
) -> Imported:
    """static: flags of arguments that are parameters or buffers; without: names
    of nodes and of operators that the device has no kernel for; origins:
    values are named as the files of debug.data_dump."""
    return _Importer(gm, name, static, without, origins).run()


class _Importer(schema.Importing):
    def __init__(
        self,
        gm: torch.fx.GraphModule,
        name: str,
        static: dict[int, int],
        without: frozenset[str],
        origins: bool,
    ) -> None:
        self.gm = gm
        self.static = static
        self.without = without
        self.origins = origins
        self.place = cuda.place_of(gm)
        self.loose = cuda.movable(gm.graph, self.place)
        self.graph = Graph(name, self.place)
        self.sizes = Sizes(self.graph)
        self.out = Imported(self.graph, self.place)
        self.refs: dict[torch.fx.Node, int] = {}
        self.places = places.Places(self.graph)
        self.tuples: dict[torch.fx.Node, Sequence[int | None]] = {}
        self.sources: dict[Any, Source] = {}
        self.ints: dict[int, int] = {}  # dims of arguments that are integers
        self.arg_of: dict[torch.fx.Node, int] = {}
        self.constants: dict[torch.fx.Node, Any] = {}
        self.names: set[str] = set()  # of inputs
        self.types = Types(self.sizes, self.place)
        self.inexact: set[torch.fx.Node] = set()
        self.told = logs_nodes()

    def run(self) -> Imported:
        rng_states.expand(self.gm.graph)
        nodes = list(self.gm.graph.nodes)
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node)
        self.sizes.close(
            n.meta.get("val") for n in nodes if n.op == "placeholder"
        )
        for node in nodes:
            if node.op == "get_attr":
                self._constant(node)
        for node in nodes:
            if node.op == "call_function":
                self._function(node)
            elif node.op == "output":
                self._output(node)
            elif node.op not in ("placeholder", "get_attr"):
                raise Unexpressible(f"a {node.op} node")
        return self.out

    def ref(self, node: torch.fx.Node) -> int:
        found = self.refs.get(node)
        if found is None:
            raise Refused(f"operand {node} is not a tensor")
        return found

    # ---- inputs ----

    def _placeholder(self, node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        index = len(self.out.args)
        self.arg_of[node] = index
        if isinstance(value, torch.SymInt):
            self._int_input(node, index, value)
            self.out.args.append("int")
        elif schema.is_token(node):
            self.constants[node] = None
            self.out.args.append(None)
        elif isinstance(value, torch.Tensor) and node.users:
            moved = cuda.is_loose_constant(node, value, self.place, self.loose)
            self._tensor_input(node, index, value, moved)
            kept = lazy.entry(node, value, DTYPE_NAMES[value.dtype])
            self.out.args.append((kept,) if moved else kept)
        else:
            computing = [u for u in node.users if u.op != "output"]
            if computing and not isinstance(value, (int, float, bool)):
                raise Unexpressible(f"input {node} is no tensor or integer")
            self.out.args.append(None)

    def _int_input(self, node: torch.fx.Node, index: int, value: Any) -> None:
        expr = expression(value)
        if expr.is_Symbol:
            dim = self.sizes.symbol(expr, value.node.shape_env)
        else:  # a saved expression comes in as a number of its own
            low, high = limits(expr, value.node.shape_env)
            dim = self.graph.symbol(
                f"arg{index}", low, high, int(value.node.hint or 0)
            )
        if expr not in self.sources and not expr.is_Integer:
            self.sizes.bind(expr, dim)
            self.sources[expr] = (index, None)
        name = names.of_input(node, self.names)
        self.out.inputs.append(name)
        self.ints[index] = dim
        self.graph.int_input(name, dim)

    def _tensor_input(
        self, node: torch.fx.Node, index: int, value: torch.Tensor, moved: bool
    ) -> None:
        """moved: a number on the CPU that goes to the GPU at each call."""
        name = names.of_input(node, self.names)
        other = moved or lazy.is_lazy(value)  # a tensor at each call
        flags = 0 if other else self.static.get(index, 0)
        self._input(node, name, value, flags)
        for axis, size in enumerate(value.shape):
            if is_symbolic(size):
                self.sources.setdefault(expression(size), (index, axis))

    def _input(
        self, node: torch.fx.Node, name: str, value: torch.Tensor, flags: int
    ) -> None:
        what = "constant" if node.op == "get_attr" else "input"
        moved = cuda.is_loose_constant(node, value, self.place, self.loose)
        found = self.types.of(value, what, node, moved)
        if not found.exact:
            self.inexact.add(node)
        self.out.inputs.append(name)
        self.refs[node] = self.graph.input(name, *found.type, flags)

    def _constant(self, node: torch.fx.Node) -> None:
        value: Any = self.gm
        for part in str(node.target).split("."):
            value = getattr(value, part)
        self.constants[node] = value
        if isinstance(value, torch.Tensor):
            if cuda.is_loose_constant(node, value, self.place, self.loose):
                with compat.real_tensors():
                    value = value.to(cuda.device_of(self.place))
            name = names.unique(f"const_{node.name}", self.names)
            self._input(node, name, value, PARAM)
            self.out.consts.append(value)
            node.meta.setdefault("val", value)

    # ---- nodes ----

    def _function(self, node: torch.fx.Node) -> None:
        target = node.target
        if target is operator.getitem and node.args[0] in self.tuples:
            self._item(node)
            return
        kind = kinds.of(target)
        value: Any = node.meta.get("val")
        if kind.dropped or isinstance(value, _NUMBERS):
            return  # numbers are taken from their expressions
        if kind.refused:
            raise Unexpressible(f"{target} {kind.refused}")
        self.out.nodes += 1
        if target is schema.with_effects:
            value = (None, *value[1:])
        self._check_results(node, value)
        self.places.enter(node)
        if node.meta.get("after"):
            with self.places.after(node, self.refs):
                results = self._node(node, kind, value)
        else:
            results = self._node(node, kind, value)
        if self.told:
            log_node(node, self.refs, results)
        if isinstance(value, (tuple, list)):
            self.tuples[node] = results
        elif results and results[0] is not None:
            self.refs[node] = results[0]
            if not kind.collective or comm.kind_of(node) != comm.START:
                self._tag(results[0], node, node, 0)  # else not there yet

    def _tag(
        self, ref: int, node: torch.fx.Node, made_by: torch.fx.Node, index: Any
    ) -> None:
        """The origin is what `debug.data_dump` calls the value's file."""
        origin = None
        if self.origins:
            origin = f"{made_by.name}-{made_by.target}.OUTPUT.{index}"
        self.graph.tag(ref, node.name, origin)

    def _item(self, node: torch.fx.Node) -> None:
        several: Any = node.args[0]
        item = self.tuples[several][node.args[1]]  # type: ignore
        if several in self.inexact:
            self.inexact.add(node)
        if item is not None:
            self.refs[node] = item
            self._tag(item, node, several, node.args[1])
        else:  # a token, which is None, or a number
            value = node.meta.get("val")
            self.constants[node] = schema.number_of(value)

    def _node(
        self, node: torch.fx.Node, kind: kinds.Kind, value: Any
    ) -> Sequence[int | None]:
        collective = comm.kind_of(node) if kind.collective else None
        if collective == comm.WAIT:
            return comm.wait_node(self, node, value)
        if collective is not None:
            about = comm.describe(node)
            return self._host_node(node, value, about, collective)
        try:
            return self._engine_node(node, kind, value)
        except (Refused, AirError) as why:
            places.leave_kernel(node, str(why))
            return self._host_node(node, value, str(why))

    def _check_results(self, node: torch.fx.Node, value: Any) -> None:
        many = isinstance(value, (tuple, list))
        used = used_items(node) if many else {0}
        for i, v in enumerate(value if many else (value,)):
            if i not in used and self.place >= cuda.PLACE:
                continue  # numbers, and tensors of the CPU
            if isinstance(v, torch.Tensor):
                moved = cuda.is_loose_result(node, v, self.place, self.loose)
                if not self.types.of(v, "the result of", node, moved).exact:
                    self.inexact.add(node)
            elif v is not None and not (many and isinstance(v, int)):
                raise Unexpressible(f"{node.target} gives a {type(v).__name__}")

    def _without_arithmetic(self, node: torch.fx.Node, value: Any) -> Any:
        """Writes a node on a dtype without it. None: on others, moves only."""
        if self.inexact.isdisjoint((node, *node.all_input_nodes)):
            return None
        dtype = carried.unable(node, value)
        return None if dtype is None else pairs.rewrite_of(node, dtype)

    def _engine_node(
        self, node: torch.fx.Node, kind: kinds.Kind, value: Any
    ) -> Sequence[int | None]:
        rewrite = self._without_arithmetic(node, value) or kind.rewrite
        divisors.check(node, value, self.place < cuda.PLACE)
        if node.name in self.without:
            raise Refused(cuda.NO_KERNEL)
        slow.check(node)
        if kind.state:
            raise Refused(rng_states.REASON)
        if kind.random and schema.draws(node):
            draws.check(node.target, schema.first(value), self.place)
        if rewrite is not None:
            return rewrite(self, node, value)
        return self.row_node(node, value)

    def row_node(self, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
        row = schema.find_row(node.target)
        if row is None:
            raise Refused(node.meta.get("host_reason", schema.NO_ROW))
        if row.kinds & self.without:
            raise Refused(cuda.NO_KERNEL)
        attrs = schema.attributes(self, row, node.args, node.kwargs)
        where, count = location_of(node), row.nresults
        refs = list(self.graph.node(row.name, attrs, where, count))
        if not isinstance(value, (tuple, list)):
            if row.nresults != 1:
                raise Refused(f"1 result, the engine gives {row.nresults}")
            if value is not None:
                return [self.check_type(refs[0], value)]
            return refs
        if len(value) != len(refs):
            raise Refused(f"{len(value)} results, the engine gives {len(refs)}")
        # What nobody reads may differ: unused statistics of a norm do.
        used = used_items(node)
        for i, (ref, v) in enumerate(zip(refs, value, strict=True)):
            if v is not None and i in used:
                refs[i] = self.check_type(ref, v)
        return refs

    def add(
        self,
        node: torch.fx.Node,
        op: str,
        attrs: list[Any],
        value: torch.Tensor,
    ) -> int:
        """A node of a rewrite, checked against torch's result."""
        (ref,) = self.graph.node(op, attrs, location_of(node), 1)
        return self.check_type(ref, value)

    def check_type(self, ref: int, value: torch.Tensor) -> int:
        wanted = self.types.of(value, "the result of", "a node", True).type
        found = self.graph.type(ref)
        if found == wanted:
            return ref
        if found[0] != wanted[0]:
            raise Refused(f"the engine infers another dtype than {value.dtype}")
        if len(found[1]) != len(wanted[1]) or not all(
            map(self.sizes.equal, found[1], wanted[1])
        ):
            raise Refused(
                f"the engine infers other sizes than {list(value.shape)}"
            )
        return schema.narrowed(self, ref, found[1], wanted[1])

    # ---- HOST ----

    def _host_node(
        self,
        node: torch.fx.Node,
        value: Any,
        reason: str,
        collective: int | None = None,
    ) -> Sequence[int | None]:
        """collective: its kind, where it is one."""
        cuda.refuse_writes(node, self.place)
        on_cpu = self.place < cuda.PLACE and comm.is_same_on_cpu(node)
        where = cuda.device_of_call(node, self.place, self.loose, on_cpu)
        arguments = Arguments(self.sources, self.constants, where)
        args = [arguments.template(a) for a in node.args]
        kwargs = arguments.template(dict(node.kwargs))
        many = isinstance(value, (tuple, list))
        values = list(value) if many else [value]
        used = used_items(node) if many else set()
        keep = [
            i
            for i, v in enumerate(values)
            if isinstance(v, torch.Tensor) and (not many or i in used)
        ]
        tensors = [n.meta["val"] for n in arguments.tensors]
        kept = [values[i] for i in keep]
        # Results may share memory with their operand, and be lazy.
        resolve = node.target is aten._neg_view.default or any(
            v.dtype.is_complex for v in tensors + kept
        )
        orders = images.orders(node, kept, self.place)
        call = make_call(
            (images if collective is None else comm).target_of(node),
            args,
            kwargs,
            keep if many or not keep else None,
            [v.dtype for v in kept],
            resolve,
            cuda.device_of(self.place),
            orders,
        )
        name = schema.target_name(node.target)
        if schema.is_random(node.target):
            call = draws.in_memory_order(call, tensors, schema.draws(node))
        if collective is not None:
            call = comm.starting(comm.name_of(node.target), call, collective)
        left = images.stored(kept, orders)
        told = (node, name, reason, call, arguments.tensors, left, collective)
        refs = self.host(*told, reads=arguments.reads(self.ints))
        refs = images.shown(self, node, refs, kept, orders)
        results: list[int | None] = [None] * len(values)
        for i, ref in zip(keep, refs, strict=True):
            results[i] = ref
        return results

    def host(
        self,
        node: torch.fx.Node,
        name: str,
        reason: str,
        call: Call,
        operands: Sequence[torch.fx.Node],
        results: Sequence[torch.Tensor],
        collective: int | None = None,
        reads: Sequence[int] = (),
    ) -> Sequence[int]:
        """A HOST node that does `call` on operands; reads: see Arguments."""
        tensors = [n.meta["val"] for n in operands]
        types = [(dtype_of(v)[0], self.sizes.dims(v.shape)) for v in results]
        location = location_of(node)
        refs: Sequence[int] = self.graph.host(
            name,
            len(self.out.hosts),
            reason,
            images.operands(self, node, operands),
            location,
            types,
            collective or comm.CALL,
            reads,
        )
        if collective == comm.WAIT:
            results = []  # its operand, see air_host_kind
        shown = cuda.HOST
        if self.place >= cuda.PLACE or not comm.is_same_on_cpu(node):
            shown = cuda.place_of_host(self.place, tensors)
        self.out.hosts.append(
            (
                call,
                name,
                tuple(DTYPE_NAMES[v.dtype] for v in tensors),
                tuple(DTYPE_NAMES[v.dtype] for v in results),
                shown,
                *entry(self.place, node, tensors, results),
            )
        )
        plain = collective is None
        found = self.out.host_nodes if plain else self.out.comm_nodes
        if collective != comm.WAIT:
            found.append(HostNode(name, reason, location or ""))
        return refs

    # ---- results ----

    def _output(self, node: torch.fx.Node) -> None:
        results: list[int] = []
        strides: list[list[int] | None] = []
        first: dict[Any, int] = {}
        outputs = node.args[0]
        if not isinstance(outputs, (tuple, list)):
            raise Unexpressible("a graph that does not return a tuple")
        for x in outputs:
            if isinstance(x, torch.fx.Node) and x in first:
                self.out.outs.append(("same", first[x]))
                continue
            if isinstance(x, torch.fx.Node):
                first[x] = len(self.out.outs)
            self.out.outs.append(self._result(x, results, strides))
        views.share_memory(outputs, self.out.outs)
        self.out.nresults = len(results)
        self.graph.results(results, strides)

    def _result(
        self, x: Any, results: list[int], strides: list[list[int] | None]
    ) -> tuple[Any, ...]:
        if not isinstance(x, torch.fx.Node):
            if is_symbolic(x):
                return ("call", evaluator(expression(x), self.sources))
            return ("const", x)
        if x in self.arg_of:
            return ("arg", self.arg_of[x])
        value = x.meta.get("val")
        if x in self.constants:
            return ("const", self.constants[x])
        if isinstance(value, torch.Tensor):
            self.types.of(value, "the result", x)  # not where it was moved to
            results.append(views.result_of(self, x))
            strides.append(self.sizes.result_strides(value))
            dtype = DTYPE_NAMES[value.dtype]
            return ("result", len(results) - 1, dtype, cuda.place(value))
        if is_symbolic(value):
            return ("call", evaluator(expression(value), self.sources))
        return ("const", value)
