"""The op table's schemas are ATen's: same types, defaults and results in the
same order. Parameter names may differ."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

TABLE = Path(__file__).parents[2] / "src" / "ir" / "ops.def"
FACTORY = (
    ", *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None"
)
ROW = re.compile(
    r"^(POINTWISE|CREATE|REDUCE|VIEW|COMPOSITE|CALL|EFFECT)\((.*)$"
)
OWN = ("air::", "prims::fma(")  # not torch's, or only known to Inductor


def rows() -> list[tuple[str, str]]:
    """(class, schema) of every row of the table."""
    found = []
    for line in TABLE.read_text().splitlines():
        match = ROW.match(line)
        if match and not line.startswith("*"):
            text = line.replace('" FACTORY "', FACTORY)
            schema = next(
                s for s in re.findall(r'"((?:[^"\\]|\\.)*)"', text) if "->" in s
            )
            found.append((match[1], schema.replace('\\"', '"')))
    return found


def shape_of(schema: str) -> tuple[list[tuple[str, str | None]], str]:
    """([(type, default)], results) without names."""
    body, results = schema[schema.index("(") + 1 :].rsplit(") -> ", 1)
    params = []
    for part in re.split(r", (?![^\[(]*[\])])", body):
        if part in ("", "*"):
            continue
        part = part.removeprefix("*, ")
        decl, _, default = part.partition("=")
        default = default.replace(", ", ",")  # versions of torch differ
        params.append((decl.rsplit(" ", 1)[0], default or None))
    results = re.sub(r"(Tensor(?:\(\w!?\))?(?:\[\])?) \w+", r"\1", results)
    return params, results


def overload_of(name: str) -> torch._ops.OpOverload:
    space, _, rest = name.rpartition("::")
    op, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, space or "aten"), op)
    return getattr(packet, overload or "default")


ROWS = [row for row in rows() if not row[1].startswith(OWN)]


def test_table_is_read() -> None:
    assert len(ROWS) >= 230
    names = [schema.split("(")[0] for _, schema in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "schema", [s for _, s in ROWS], ids=[s.split("(")[0] for _, s in ROWS]
)
def test_schema(schema: str) -> None:
    torch_schema = str(overload_of(schema.split("(")[0])._schema)
    assert shape_of(schema) == shape_of(torch_schema.split("::", 1)[1])
