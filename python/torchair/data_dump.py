"""dump_config.*: values of the graph as the engine runs it, in files.

    <dump_path>/worldsize1_global_rank0/<time>/0/<graph>/<id>/<call>/
        mm-aten.mm.default.INPUT.0.<time>.npy
        mm-aten.mm.default.OUTPUT.0.<time>.npy
        stats.csv                              dump_data = "stats"

The names are those of the FX nodes, as in `debug.data_dump`, so that both can
be compared file by file. A fused region has the name of the last node in it;
what lives in registers is not dumped, unless a node is asked for by name
(`dump_layer`, `scope.data_dump()`) or `quant_dumpable` is set: tagged values
are in memory then.
"""

from __future__ import annotations

import csv
import difflib
import itertools
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import dumps, files
from .config import CompilerConfig

MARK = "torchair_scope_data_dump"  # in node.meta: inside scope.data_dump()
_models = itertools.count(1)
_KEYS = {
    "dump_list",
    "dump_path",
    "dump_mode",
    "dump_op_switch",
    "dump_data",
    "dump_debug",
    "dump_scene",
    "dump_step",
}


@dataclass
class Settings:
    """What is asked for."""

    path: str = "./"
    mode: str = "all"
    data: str = "tensor"
    steps: str = ""
    layers: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)  # empty: all
    registers: bool = False  # values that live in registers as well
    overflow: bool = False  # only steps that make inf or nan
    watched: set[str] = field(default_factory=set)  # after each other step

    def has_step(self, step: int) -> bool:
        return not self.steps or any(
            low <= step <= high for low, high in _ranges(self.steps)
        )


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split("|"):
        low, _, high = part.partition("-")
        yield int(low), int(high or low)


def settings(config: CompilerConfig) -> Settings | None:
    """Of the options and the JSON file; None where nothing is dumped. An
    option that was set wins over the file. ValueError for a file with keys
    that it cannot have, or modes that exclude each other."""
    options = config.dump_config
    file = options.dump_config_path.raw
    if config.captures or not (options.enable_dump or file):
        return None
    found = _of_file(file) if file else Settings()
    if not options.enable_dump:
        return found
    for name, option in (
        ("path", options.dump_path),
        ("mode", options.dump_mode),
        ("data", options.dump_data),
        ("steps", options.dump_step),
    ):
        if option.given or not file:
            setattr(found, name, option.raw)
    found.layers |= set(options.dump_layer.raw.replace('"', " ").split())
    found.registers |= bool(options.quant_dumpable)
    return found


def _of_file(path: str) -> Settings:
    with open(path, encoding="utf-8") as file:
        said = json.load(file).get("dump")
    if not isinstance(said, dict):
        raise ValueError(f'{path} must hold {{"dump": {{...}}}}')
    unknown = sorted(set(said) - _KEYS)
    if unknown:
        raise ValueError(
            f"{path}: unknown {', '.join(unknown)}; known are "
            + ", ".join(sorted(_KEYS))
        )
    found = Settings(
        _of(said, path, "dump_path", None),
        _of(said, path, "dump_mode", "output", "input", "output", "all"),
        _of(said, path, "dump_data", "tensor", "tensor", "stats"),
        said.get("dump_step", ""),
    )
    _set_scene(found, said, path)
    return found


def _of(said: dict[str, Any], path: str, key: str, *choices: Any) -> Any:
    """The value of a key; choices: the default (None: there is none), and
    what it may be."""
    value = said.get(key, choices[0])
    if value is None or (len(choices) > 1 and value not in choices):
        allowed = ", ".join(map(str, choices[1:])) or "a folder"
        raise ValueError(f"{path}: {key} is {value!r}; give {allowed}")
    return value


def _set_scene(found: Settings, said: dict[str, Any], path: str) -> None:
    rows = said.get("dump_list", [])
    overflow = said.get("dump_debug") == "on"
    watcher = said.get("dump_scene") == "watcher"
    switch = said.get("dump_op_switch") == "on"
    if overflow + watcher + (bool(rows) and not watcher or switch) > 1:
        raise ValueError(
            f'{path}: dump_debug "on", dump_scene "watcher" and dumps of '
            "models or operators exclude each other; keep one"
        )
    if watcher and found.mode != "output":
        raise ValueError(f'{path}: a watcher needs dump_mode "output"')
    if switch:
        warnings.warn(
            f"{path}: dump_op_switch: operators outside of compiled graphs "
            "are torch's own and are not dumped",
            stacklevel=2,
        )
    found.overflow = overflow
    for row in rows:
        found.layers |= set(row.get("layer", []))
        found.watched |= set(row.get("watcher_nodes", []))
        found.models |= {row["model_name"]} if "model_name" in row else set()


class Names:
    """Stems of files, by the tags that values have."""

    def __init__(self, gm: GraphModule) -> None:
        self.stems: dict[str, str] = {}
        self.marked: set[str] = set()
        for node in gm.graph.nodes:
            source, index = _item(node)
            stem = f"{source.name}-{source.target}"
            self.stems[node.name] = f"{stem}.OUTPUT.{index}"
            if MARK in node.meta:
                self.marked.add(node.name)

    def output(self, value: Any) -> str:
        name, op, _, tags, _ = value
        for tag in tags:
            if tag in self.stems:
                return self.stems[tag]
        return f"{name}-{op}.OUTPUT.0"


def _look_for(layers: set[str], gm: GraphModule, graph: str) -> None:
    """A warning where none of them is a node: nothing would be written."""
    have = [n.name for n in gm.graph.nodes if n.op == "call_function"]
    if not layers or not layers.isdisjoint(have):
        return
    near = [m for n in layers for m in difflib.get_close_matches(n, have)]
    warnings.warn(
        f"dump_layer: graph {graph} has no node {' or '.join(sorted(layers))}, "
        "so nothing of it is dumped; it has "
        + ", ".join(near or have[:8])
        + ("" if near or len(have) <= 8 else ", ..."),
        stacklevel=2,
    )


def _item(node: Node) -> tuple[Any, Any]:
    if getattr(node.target, "__name__", "") == "getitem":
        return node.args[0], node.args[1]
    return node, 0


class Dumper:
    """Program.watch that writes files."""

    def __init__(self, asked: Settings, gm: GraphModule, graph: str) -> None:
        self.asked = asked
        self.names = Names(gm)
        self.chosen = asked.layers | self.names.marked
        _look_for(asked.layers, gm, graph)
        self.root = os.path.join(
            files.rank_folder(asked.path),
            files.now()[:14],
            "0",
            "".join("_" if c in "./\\ " else c for c in graph),
            str(next(_models)),
        )
        self.step = -1
        self.inputs: tuple[Any, ...] = ()
        self.kept: dict[str, Any] = {}  # watched values of this run

    @property
    def needs_registers(self) -> bool:
        return bool(self.asked.registers or self.chosen or self.asked.watched)

    def __call__(
        self,
        index: int,
        _kind: str,
        label: str,
        done: bool,
        _once: bool,
        _seconds: float,
        values: tuple[Any, ...],
    ) -> None:
        if index == 0 and not done:
            self.step += 1
            self.kept.clear()
        if not self.asked.has_step(self.step):
            return
        if not done:
            self.inputs = values
        elif self.asked.watched:
            self._watch(index, values)
        elif self._is_wanted(label, values):
            self._dump(values)

    def _is_wanted(self, label: str, values: Iterable[Any]) -> bool:
        if self.asked.overflow:
            return _overflows(values) and not _overflows(self.inputs)
        if not self.chosen:
            return True
        return label in self.chosen or any(
            self.chosen & {v[0], *v[3]} for v in values
        )

    def _dump(self, values: tuple[Any, ...]) -> None:
        outputs = [(self.names.output(v), v) for v in values]
        if self.chosen and not self.asked.overflow:
            outputs = [
                (stem, v)
                for stem, v in outputs
                if len(outputs) == 1 or self.chosen & {v[0], *v[3]}
            ]
        unit = outputs[-1][0].rpartition(".OUTPUT")[0] if outputs else "none"
        sides: list[tuple[str, Any]] = []
        if self.asked.mode != "output":
            sides += [
                (f"{unit}.INPUT.{i}", v) for i, v in enumerate(self.inputs)
            ]
        if self.asked.mode != "input":
            sides += outputs
        self._write(sides)

    def _watch(self, index: int, values: tuple[Any, ...]) -> None:
        """The watched values as they are now: their memory may have been
        written by somebody else meanwhile."""
        for v in values:
            if self.asked.watched & {v[0], *v[3]}:
                self.kept[self.names.output(v)] = v
        if self.asked.layers and not any(
            self.asked.layers & {v[0], *v[3]} for v in values
        ):
            return
        self._write([(f"after_{index}.{s}", v) for s, v in self.kept.items()])

    def _write(self, sides: list[tuple[str, Any]]) -> None:
        folder = os.path.join(self.root, str(self.step))
        files.make_folder(folder)
        if self.asked.data == "stats":
            _add_rows(os.path.join(folder, "stats.csv"), sides)
            return
        for stem, value in sides:
            stem = stem.replace("/", "_")
            path = os.path.join(folder, f"{stem}.{files.now()}.npy")
            dumps.save_array(value[4], path)


def _overflows(values: Iterable[Any]) -> bool:
    return any(
        v[4].is_floating_point() and not bool(torch.isfinite(v[4]).all())
        for v in values
    )


_COLUMNS = (
    "name",
    "op",
    "dtype",
    "shape",
    "max",
    "min",
    "mean",
    "norm",
    "nan",
    "inf",
)


def _add_rows(path: str, sides: list[tuple[str, Any]]) -> None:
    fresh = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        if fresh:
            rows.writerow(_COLUMNS)
        rows.writerows(_row(stem, value) for stem, value in sides)


def _row(stem: str, value: Any) -> list[Any]:
    tensor = value[4]
    dtype = str(tensor.dtype).removeprefix("torch.")
    head = [stem, value[1] or "Data", dtype, list(tensor.shape)]
    if tensor.numel() == 0 or tensor.is_complex():
        return head + [""] * (len(_COLUMNS) - len(head))
    x = tensor.double()
    return [
        *head,
        x.max().item(),
        x.min().item(),
        x.mean().item(),
        x.norm().item(),
        int(x.isnan().sum()),
        int(x.isinf().sum()),
    ]


def dumper(
    config: CompilerConfig, gm: GraphModule, graph: str
) -> Dumper | None:
    """The watcher of a program named `graph`; None where it dumps nothing."""
    asked = settings(config)
    if asked is None or (asked.models and graph not in asked.models):
        return None
    return Dumper(asked, gm, graph)
