"""debug.graph_dump: the graph as it came and as it runs, in files. With
TORCH_COMPILE_DEBUG=1 also after each pass, with DUMP_GE_GRAPH for Netron.

    dynamo_original_graph_1_rank_0_pid_17_ts_20261121214000123456.txt
    dynamo_optimized_graph_1_rank_0_pid_17_ts_20261121214000234567.txt

"py" is the sequence of calls that would build the graph, with the line of the
program and the FX node in front of each; "txt" and "pbtxt" are the engine's
graph in terms of the Ascend IR.
"""

from __future__ import annotations

import itertools
import linecache
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import dumps, files, ge_files, schema, scope
from .config import CompilerConfig
from .dumps import Folder
from .origin import source_of

_count = itertools.count(1)


class Dump:
    """The files of one graph: the option's, those of the bundle, and those
    that the environment asks for (level: of ge_files)."""

    def __init__(
        self,
        kind: str | None,
        path: str | None,
        bundle: Folder | None,
        level: int,
    ) -> None:
        self.kind = kind
        self.path = path or "."
        self.bundle = bundle
        self.level = level
        self.number = next(_count) if kind or level else 0
        self.wanted = bool(kind) or bundle is not None or level > 0

    def write(
        self, moment: str, gm: GraphModule, engine: Callable[[int], str]
    ) -> None:
        """moment: "original" or "optimized". engine(form): the engine's graph
        as Ascend IR; forms are those of `Graph.ge_text`."""
        if self.bundle is not None:
            kind = self.kind or "pbtxt"
            if moment == "optimized":
                _after_passes(self.bundle, kind)
            self.bundle.ge(
                f"{moment}_ge_graph.{kind}", printed(kind, gm, engine)
            )
        if self.level:
            ge_files.write(self.level, moment, self.number, engine)
        if self.kind is not None:
            stem = f"dynamo_{moment}_graph_{self.number}_{files.mark()}"
            path = os.path.join(self.path, f"{stem}.{self.kind}")
            files.write(path, printed(self.kind, gm, engine))


def of(config: CompilerConfig, bundle: Folder | None) -> Dump:
    """Captures dump their code instead: see backend."""
    if config.captures:
        return Dump(None, None, None, 0)
    wanted = config.debug.graph_dump
    return Dump(wanted.type.raw, wanted.path.raw, bundle, ge_files.level())


def check_capture(kind: str) -> None:
    """RuntimeError for what a captured graph is not."""
    if kind != "py":
        raise RuntimeError(
            "debug.graph_dump.type: captured graphs only support 'py' type, "
            f"not {kind!r}; for others use mode max-autotune"
        )


def printed(kind: str, gm: GraphModule, engine: Callable[[int], str]) -> str:
    """The graph as "py", "txt" or "pbtxt"."""
    return builder_calls(gm) if kind == "py" else engine(_FORMS[kind])


_FORMS = {"txt": 0, "pbtxt": 1, "py": 2}


def _after_passes(bundle: Folder, kind: str) -> None:
    """The graph after each pass of the engine that changed it."""
    from ._native import Graph

    for name, text in bundle.engine_passes():
        graph = Graph.parse(text)
        bundle.ge(f"graph_after_{name}.{kind}", graph.ge_text(_FORMS[kind]))


_GE_TEXT = 4  # AIR_TEXT_GE_TXT; the other forms follow it


def text_of(program: Any) -> Callable[[int], str]:
    """`engine` of a program: the graph after its passes."""
    return lambda form: str(program.text(_GE_TEXT + form))


# ---- py ----

_HEAD = """\
# -*- coding: utf-8 -*-
from torch import tensor
from torchair._ge_concrete_graph import ge_apis as ge
from torchair.ge._ge_graph import get_default_ge_graph
"""


def builder_calls(gm: GraphModule) -> str:
    return "\n".join(_Builder(gm).lines()) + "\n"


class _Builder:
    """Names of nodes and of their results while calls are written."""

    def __init__(self, gm: GraphModule) -> None:
        self.gm = gm
        self.types: Counter[str] = Counter()
        self.names: dict[Node, str] = {}

    def lines(self) -> Iterator[str]:
        yield _HEAD
        index = 0
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.names[node] = f"{node.name}_0"
                yield from _comments(node)
                yield (
                    f"{node.name}_0 = ge.Data(index={index}, "
                    f"dtype={_dtype(node)}, shape={_shape(node)}, "
                    f'node_name="{node.name}")'
                )
                index += 1
            elif node.op == "output":
                values = torch.fx.node.map_arg(node.args[0], self._name)
                yield f"_ = ge.NetOutput({_text(values)}, dependencies=[])"
            else:
                yield from self._call(node)

    def _name(self, node: Node) -> Any:
        return _Word(self.names.get(node, node.name))

    def _call(self, node: Node) -> Iterator[str]:
        source, index = _item(node)
        if source is not None:
            self.names[node] = self.names[source][:-1] + str(index)
            return
        kind = op_type(node)
        name = kind + (f"_{self.types[kind]}" if self.types[kind] else "")
        self.types[kind] += 1
        self.names[node] = f"{name}_0"
        value = node.meta.get("val")
        many = len(value) if isinstance(value, (tuple, list)) else 1
        made = ", ".join(f"{name}_{i}" for i in range(many))
        words = [*self._arguments(node), f'node_name="{name}"']
        if node.meta.get("after"):
            awaited = ", ".join(self._name(n) for n in node.meta["after"])
            words.append(f"dependencies=[{awaited}]")
        yield from _comments(node)
        if inside := scope.of(node):
            yield f"# Scope: {inside}"
        yield f"{made} = ge.{kind}({', '.join(words)})"

    def _arguments(self, node: Node) -> Iterator[str]:
        known = getattr(node.target, "_schema", None)
        names = [a.name for a in known.arguments] if known else []
        for i, value in enumerate(node.args):
            value = torch.fx.node.map_arg(value, self._name)
            word = _text(value)
            plain = isinstance(value, _Word) or i >= len(names)
            yield word if plain else f"{names[i]}={word}"
        for name, value in node.kwargs.items():
            yield f"{name}={_text(torch.fx.node.map_arg(value, self._name))}"


class _Word(str):
    """Stands for itself, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _item(node: Node) -> tuple[Any, Any]:
    """(tuple, index) where the node takes one result of several."""
    if getattr(node.target, "__name__", "") == "getitem":
        return node.args[0], node.args[1]
    return None, None


def op_type(node: Node) -> str:
    """Of the Ascend IR where the op table knows it, else ATen's name."""
    from ._native import describe

    found = describe(schema.target_name(node.target))
    if found is not None and found[2]:
        return found[2]
    name = schema.target_name(node.target).split("::")[-1]
    words = name.split(".")[0].split("_")
    return "".join(w[:1].upper() + w[1:] for w in words) or "Node"


def _text(value: Any) -> str:
    if isinstance(value, (torch.dtype, torch.device)):
        return f'"{value}"'
    if isinstance(value, (bool, int, float)) and not isinstance(value, _Word):
        return (
            f"ge.Const({value!r})"
            if isinstance(value, float)
            else (repr(value))
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    if value is None or isinstance(value, _Word):
        return repr(value)
    return repr(str(value))


def _comments(node: Node) -> Iterator[str]:
    source = source_of(node)
    yield ""
    if source is not None:
        file, line = source
        code = linecache.getline(file, line).strip()
        yield f"# File: {file}:{line}, code: {code}"
    yield f"## FX Code: {_typed(node)}"


def _typed(node: Node) -> str:
    what = node.format_node() or f"{node.name} = {node.target}"
    return f"{node.name}: {_dtype(node)}{_shape(node)} | {what}".replace(
        "\n", " "
    )


def _value(node: Node) -> Any:
    value = node.meta.get("val")
    return value[0] if isinstance(value, (tuple, list)) and value else value


def _dtype(node: Node) -> str:
    value = _value(node)
    if isinstance(value, torch.Tensor):
        return f'"{str(value.dtype).removeprefix("torch.")}"'
    return f'"{type(value).__name__}"'


def _shape(node: Node) -> str:
    value = _value(node)
    if not isinstance(value, torch.Tensor):
        return "[]"
    return "[" + ", ".join(str(s) for s in value.shape) + "]"


def write_code(
    gm: GraphModule, config: CompilerConfig, name: str, bundle: Folder | None
) -> None:
    """What a capture runs, as Python. Other modes dump what they build."""
    wanted = config.debug.graph_dump
    to_user = config.captures and wanted.type.raw is not None
    if bundle is None and not to_user:
        return
    code = dumps.python_code(gm, config)
    if bundle is not None:
        dumps.write(os.path.join(bundle.path, "output_code.py"), code)
    if to_user:
        check_capture(wanted.type.raw)
        folder = os.path.join(wanted.path.raw or ".", name)
        files.write(os.path.join(folder, "graph.py"), code)
