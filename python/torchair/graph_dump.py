"""debug.graph_dump: the graph as it came and as it runs, in files. With
TORCH_COMPILE_DEBUG=1 also after each pass, with DUMP_GE_GRAPH for Netron.

    dynamo_original_graph_1_rank_0_pid_17_ts_20261121214000123456.txt
    dynamo_optimized_graph_1_rank_0_pid_17_ts_20261121214000234567.txt

"txt", "pbtxt" and "py" are the engine's graph in terms of the Ascend IR; "py"
as the calls that would build it, with the line of the program and the FX node
in front of each.
"""

from __future__ import annotations

import itertools
import linecache
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import dumps, files, ge_files, names
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
    text = engine(_FORMS[kind])
    return with_nodes(text, gm) if kind == "py" else text


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

_CALL = re.compile(
    r"\w+(, \w+)* = ge\.(?P<type>\w+)\(.*node_name=\"(?P<name>.*)\"\)"
    r"(  # \S+?\[.*?\]( (?P<origin>\S+)\.OUTPUT\.\d+)?)?$"
)


def with_nodes(text: str, gm: GraphModule) -> str:
    """The engine's calls, each under the FX node that it is for and the line
    of the program; text: of form "py" with the origins of values."""
    head, _, calls = text.partition("\n\n")
    return "\n".join((head, *_under_nodes(calls.splitlines(), gm))) + "\n"


def _under_nodes(lines: list[str], gm: GraphModule) -> Iterator[str]:
    owners = _Owners(gm)
    group: list[str] = []  # what the next call needs stands before it
    last: Node | None = None
    for line in lines:
        group.append(line)
        node = owners.of(line)
        if node is None:
            continue
        if node is not last:
            yield from _comments(node)
        # the engine's notes of places say what the comments do
        yield from (x for x in group if not x.startswith("# "))
        group, last = [], node
    yield from ("", *group)


class _Owners:
    """Which FX node a call is for."""

    def __init__(self, gm: GraphModule) -> None:
        taken: set[str] = set()
        self.inputs: dict[str, Node] = {}
        self.nodes: dict[str, Node] = {}
        for node in gm.graph.nodes:
            self.nodes[node.name] = node
            value = node.meta.get("val")
            number = isinstance(value, torch.SymInt)
            if node.op == "placeholder" and (
                number or (isinstance(value, torch.Tensor) and node.users)
            ):  # as the importer takes them, in its order
                self.inputs[names.of_input(node, taken)] = node

    def of(self, line: str) -> Node | None:
        found = _CALL.match(line)
        if found is None:
            return None
        if found["type"] in ("Data", "RefData"):
            return self.inputs.get(found["name"])
        return self.nodes.get((found["origin"] or "").partition("-")[0])


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
