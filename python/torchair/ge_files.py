"""DUMP_GE_GRAPH: the graph that the engine is given and the one it builds, in
the working directory, for Netron.

    ge_onnx_00000000_graph_1_PreRunBegin.pbtxt     as it came
    ge_proto_00000000_graph_1_PreRunBegin.txt
    ge_onnx_00000001_graph_1_Build.pbtxt           as it runs
    ge_proto_00000001_graph_1_Build.txt

1: everything; 2: the ONNX text without the values of constants; 3: with what
reads what only. "proto" has all attributes always.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable

from . import files

_STAGES = {"original": "PreRunBegin", "optimized": "Build"}
_TXT, _ONNX = 0, 3  # forms of Graph.ge_text
_NO_VALUES, _EDGES = 2, 3
_count = itertools.count()


def level() -> int:
    """What the environment asks for, 0 for nothing."""
    said = os.environ.get("DUMP_GE_GRAPH") or "0"
    if said not in ("0", "1", "2", "3"):
        _complain(said)
        return 0
    return int(said)


@functools.cache
def _complain(said: str) -> None:
    print(
        f"[WARNING] DUMP_GE_GRAPH={said!r} is none of 1, 2 and 3: no graphs "
        "are written",
        file=sys.stderr,
    )


def write(
    asked: int, moment: str, number: int, engine: Callable[[int], str]
) -> None:
    """moment, engine: of graph_dump.Dump.write. number: of the graph."""
    name = f"{next(_count):08}_graph_{number}_{_STAGES[moment]}"
    files.write(f"ge_onnx_{name}.pbtxt", reduced(engine(_ONNX), asked))
    files.write(f"ge_proto_{name}.txt", engine(_TXT))


def reduced(text: str, asked: int) -> str:
    """ONNX text with what a level has: attributes and types are lines."""
    dropped: tuple[str, ...] = ()
    if asked == _NO_VALUES:
        dropped = ('    attribute { name: "value" ',)
    if asked == _EDGES:
        dropped = "    attribute {", "    doc_string:", "  value_info {"
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(dropped))
