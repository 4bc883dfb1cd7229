"""debug.fx_summary: a table of the operators of a graph and whether the
engine has them: summary_rank_<r>_pid_<p>_ts_<t>.csv in the working directory.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from . import files, schema

# Readers of these tables know the columns and words by their Chinese names.
COLUMNS = (
    "目标函数",  # the target
    "函数类型",  # its kind: aten, prims, npu, ..., builtin
    "支持状态",  # a word of below
    "调用次数",  # calls
    "输入统计",  # signatures of the inputs, each with its number
    "输出统计",  # of the outputs
)
UNREGISTERED = "未注册"  # no row, no converter: torch computes it
UNIMPLEMENTED = "未实现"  # a row that no call of this graph fits
SUPPORTED = "支持"
PARTLY = "部分支持"  # torch computes some of the calls
UNKNOWN = "未知"  # the graph as a whole is torch's


def write(gm: GraphModule) -> str:
    """The path of the file."""
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    rows.writerows(table(gm))
    path = f"summary_{files.mark()}.csv"
    files.write(path, out.getvalue(), "utf-8-sig")
    return path


def table(gm: GraphModule) -> Iterator[tuple[str, ...]]:
    """One row for each operator, in the order of their first call."""
    calls: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            calls.setdefault(node.target, []).append(node)
    hosted = _hosted(gm)
    for target, nodes in calls.items():
        yield (
            str(target),
            schema.namespace_of(target) or "builtin",
            _status(target, len(nodes), hosted),
            str(len(nodes)),
            _grouped(map(_inputs, nodes)),
            _grouped(_signature(n.meta.get("val")) for n in nodes),
        )


def _hosted(gm: GraphModule) -> Counter[str] | None:
    """Calls that torch computes, by operator; None: it computes the graph."""
    from .importer import import_graph
    from .sizes import Unexpressible

    try:
        found = import_graph(gm, "summary", {})
    except Unexpressible:
        return None
    return Counter(h.op for h in found.host_nodes)


def _status(target: Any, calls: int, hosted: Counter[str] | None) -> str:
    if not schema.namespace_of(target):
        return SUPPORTED  # getitem, sizes
    known = schema.find_row(target) is not None
    if hosted is None:
        return UNKNOWN if known else UNREGISTERED
    count = hosted[schema.target_name(target)]
    if count == 0:
        return SUPPORTED
    if not known:
        return UNREGISTERED
    return UNIMPLEMENTED if count >= calls else PARTLY


def _inputs(node: Node) -> str:
    return ", ".join(
        _signature(a.meta.get("val") if isinstance(a, Node) else a)
        for a in node.args
    )


def _signature(value: Any) -> str:
    """ "float16(1, s0, 4096)" """
    if isinstance(value, Node):
        value = value.meta.get("val")
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}({', '.join(map(str, value.shape))})"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(_signature, value)) + "]"
    return str(value)


def _grouped(signatures: Iterable[str]) -> str:
    """Each different one with how often it came."""
    return "\n".join(f"{s}: {n}" for s, n in Counter(signatures).items())
