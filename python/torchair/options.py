"""The options, one row each. `CompilerConfig`, the backend "npugraph_ex" and
docs/options.md are made from this table; `tools/gen_docs.py` writes the last.
Its rows stand in options_debug.py and options_engine.py.
"""

from __future__ import annotations

from .option_row import (
    ALL,
    BOOL,
    CAPTURE,
    ENGINE,
    MODES,
    Key,
    Row,
    captures,
    text,
)
from .options_debug import DEBUG, DUMP, EXPORT
from .options_engine import CAPTURED, EXPERIMENTAL, GE, SIZES, WEIGHTS

__all__ = [
    "ALIASES",
    "ALL",
    "BOOL",
    "CAPTURE",
    "CONSTANTS",
    "ENGINE",
    "MODES",
    "OPTIONS",
    "WITHOUT",
    "Key",
    "Row",
    "captures",
    "text",
]
OPTIONS = (
    *DEBUG,
    *DUMP,
    *EXPORT,
    *EXPERIMENTAL,
    *CAPTURED,
    *GE,
    *WEIGHTS,
    *SIZES,
)
# What a graph engine is always told: of a graph, of the process (True).
CONSTANTS = {
    False: {"ge.exec.atomicCleanPolicy": "1"},
    True: {
        "ge.exec.staticMemoryPolicy": "2",
        "ge.opSelectImplmode": "high_precision",
    },
}
ALIASES = {row.key: row for row in OPTIONS if row.alias}
# Keys that switch something in the engine: include/air_without.def
WITHOUT = {
    "remove_noop_ops": "noop",
    "input_inplace_pass": "input_inplace",
    "inplace_pass": "inplace",
    "remove_cat_ops": "cat",
}
