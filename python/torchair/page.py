"""A page that shows graphs: data for page.html, which has all the rest.

torchair.explain(model, x).html("model.html")
torchair.compare(model, x).html("errors.html")
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from . import files
from .steps import Step

_OP = r"[\w:.]+|host \"[^\"]*\" \d+ \"(?:[^\"\\]|\\.)*\""
_LINE = re.compile(
    rf"  (?P<outs>%.*) = (?P<op>{_OP}) ?"
    r"\((?P<args>.*)\)(?P<marks>[^()#]*)$"
)
_OUT = re.compile(r"%([\w.]+): (\w+\[[^\]]*\])")
_PLACE = "/*DATA*/null"


def write(
    path: str, title: str, graphs: list[dict[str, Any]], notes: Sequence[str]
) -> str:
    """The page in a file; gives its path."""
    here = os.path.join(os.path.dirname(__file__), "page.html")
    with open(here, encoding="utf-8") as file:
        text = file.read()
    data = {"title": title, "notes": list(notes), "graphs": graphs}
    # "</script>" inside of a string would end the script.
    packed = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    files.write(path, text.replace(_PLACE, packed, 1))
    return path


def graph(record: Any, report: Any, steps: list[Step]) -> dict[str, Any]:
    """What the page knows of one graph. report: its GraphReport."""
    out: dict[str, Any] = {
        "name": record.name,
        "kind": record.kind,
        "fallback": report.fallback,
        "hosts": report.hosts,
        "copies": report.copies,
        "stats": report.stats,
        "import_ms": report.import_ms,
        "compile_ms": report.compile_ms,
        "nodes": [],
        "steps": [],
        "memory": [],
    }
    program = record.program() if record.program else None
    if program is not None:
        with contextlib.suppress(RuntimeError):  # it has not run
            out["memory"] = _memory(program.text(3))
            out["nodes"] = nodes(program.text(0))
            _tag(out)
            out["steps"] = _steps(steps, out["nodes"])
    return out


def nodes(text: str) -> list[dict[str, Any]]:
    """Of the engine's text form."""
    found = []
    for line in text.splitlines():
        code, _, at = line.rpartition("  # ")
        match = _LINE.match(code or at)
        if match is None:
            continue
        outs = _OUT.findall(match["outs"])
        group = re.search(r"@(\d+)", match["marks"])
        found.append(
            {
                "names": [name for name, _ in outs],
                "types": [kind for _, kind in outs],
                "op": match["op"],
                "reads": re.findall(r"%([\w.]+)", match["args"]),
                "text": line.strip(),
                "group": int(group[1]) if group else -1,
                "at": at.strip() if code else "",
            }
        )
    return found


def _memory(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        where, offset, size, first, last, *values = line.split(" ")
        found.append(
            {
                "where": where,
                "offset": int(offset),
                "bytes": int(size),
                "first": int(first),
                "last": int(last),
                "values": values,
            }
        )
    return found


def _tag(out: dict[str, Any]) -> None:
    """FX names into the nodes."""
    tags: dict[str, str] = {}
    for place in out["memory"]:
        for value in place["values"]:
            name, _, tag = value.partition("=")
            tags[name] = tag
    for node in out["nodes"]:
        names = [tags.get(name, "") for name in node["names"]]
        node["fx"] = ",".join(n for n in names if n)


def _steps(
    steps: list[Step], known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Each with the indices of its nodes."""
    by_name = {name: i for i, n in enumerate(known) for name in n["names"]}
    groups: dict[int, list[int]] = {}
    for i, node in enumerate(known):
        if node["group"] >= 0:
            groups.setdefault(node["group"], []).append(i)
    found = []
    for step in steps:
        members = {by_name[v.name] for v in step.gives if v.name in by_name}
        for i in tuple(members):
            members.update(groups.get(known[i]["group"], ()))
        found.append({**step.as_dict(), "nodes": sorted(members)})
    return found
