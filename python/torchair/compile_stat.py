"""`fusion_result.json`: what the passes found and did, graph by graph."""

from __future__ import annotations

import atexit
import json
from typing import Any

from .config import CompilerConfig

PATH = "fusion_result.json"
# Passes that keep intermediate results out of memory.
_UB = ("group",)
_graphs: dict[str, dict[str, dict[str, dict[str, str]]]] = {}
_at_exit: list[bool] = []


def wanted(config: CompilerConfig) -> bool:
    """Only where the user set the option, or switches passes by file: nobody
    is surprised by a file in the current folder."""
    stat = config.ge_config.export_compile_stat
    if config.captures or stat.raw == "0":
        return False
    return stat.given or bool(config.fusion_config.fusion_switch_file)


def add(config: CompilerConfig, graph: int, program: Any, found: Any) -> None:
    """Takes up a compiled graph by its number and writes the file: now, or at
    exit for "1". found: rewrites of FX passes by name."""
    passes: dict[str, dict[str, dict[str, str]]]
    passes = {"graph_fusion": {}, "ub_fusion": {}}
    for name, count in found.items():
        passes["graph_fusion"][name] = _counts(count, count)
    for line in program.text(8).splitlines():
        name, matches, made, *_ = line.split()
        if name not in _UB:
            passes["graph_fusion"][name] = _counts(matches, made)
        else:
            counts = _counts(matches, made)
            counts["repository_hit_times"] = "0"
            passes["ub_fusion"][name] = counts
    _graphs[f"session_and_graph_id_0_{graph}"] = passes
    if config.ge_config.export_compile_stat.raw == "2":
        write()
    elif not _at_exit:
        _at_exit.append(True)
        atexit.register(write)


def _counts(matches: Any, made: Any) -> dict[str, str]:
    return {"match_times": str(matches), "effect_times": str(made)}


def write() -> None:
    """All graphs so far, into the current folder."""
    with open(PATH, "w", encoding="utf-8") as file:
        json.dump(_graphs, file, indent=2)
