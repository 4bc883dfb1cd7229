"""TorchAir: a graph-mode backend for torch.compile.

>>> model = torch.compile(model, backend="torchair")

or with a configuration:

>>> config = torchair.CompilerConfig()
>>> config.mode = "reduce-overhead"
>>> backend = torchair.get_npu_backend(compiler_config=config)
>>> model = torch.compile(model, backend=backend)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import (
        AirArgumentError,
        AirDeviceError,
        AirDriverError,
        AirDtypeError,
        AirError,
        AirHostError,
        AirIndexError,
        AirMemoryError,
        AirShapeError,
        AirStateError,
        AirSyntaxError,
        AirUnsupportedError,
    )
    from .artifacts import get_compiler
    from .backend import get_npu_backend
    from .collectives import patch_for_hcom
    from .comparison import Comparison, compare
    from .config import CompilerConfig
    from .converters import register_fx_node_ge_converter
    from .export import dynamo_export
    from .formats import npu_format_cast_via_cpu, use_internal_format_weight
    from .logs import logger
    from .passes import register_replacement
    from .report import Explanation, explain

__version__ = "0.1.0"
__all__ = [
    "AirArgumentError",
    "AirDeviceError",
    "AirDriverError",
    "AirDtypeError",
    "AirError",
    "AirHostError",
    "AirIndexError",
    "AirMemoryError",
    "AirShapeError",
    "AirStateError",
    "AirSyntaxError",
    "AirUnsupportedError",
    "Comparison",
    "CompilerConfig",
    "compare",
    "dynamo_export",
    "Explanation",
    "explain",
    "get_compiler",
    "get_npu_backend",
    "logger",
    "npu_format_cast_via_cpu",
    "patch_for_hcom",
    "register_fx_node_ge_converter",
    "register_replacement",
    "use_internal_format_weight",
]


_MODULES = (
    "ge",
    "inference",
    "llm_datadist",
    "npu",
    "npugraph_ex",
    "ops",
    "quantised",
    "scope",
)
_HOME = {
    "Comparison": "comparison",
    "CompilerConfig": "config",
    "compare": "comparison",
    "dynamo_export": "export",
    "Explanation": "report",
    "explain": "report",
    "get_compiler": "artifacts",
    "get_npu_backend": "backend",
    "logger": "logs",
    "npu_format_cast_via_cpu": "formats",
    "patch_for_hcom": "collectives",
    "register_fx_node_ge_converter": "converters",
    "register_replacement": "passes",
    "use_internal_format_weight": "formats",
    **{name: "_native" for name in __all__ if name.startswith("Air")},
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are asked for: torch_npu needs the native
    module at `import torch`, where Dynamo's second of imports would hurt."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module 'torchair' has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = found
    return found
