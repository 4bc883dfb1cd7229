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

from .backend import get_compiler, get_npu_backend, logger
from .config import CompilerConfig
from .passes import register_replacement

if TYPE_CHECKING:
    from ._native import (
        AirArgumentError,
        AirDeviceError,
        AirDriverError,
        AirDtypeError,
        AirError,
        AirHostError,
        AirMemoryError,
        AirShapeError,
        AirStateError,
        AirSyntaxError,
        AirUnsupportedError,
    )
    from .report import Explanation, explain

__version__ = "0.1.0"
__all__ = [
    "AirArgumentError",
    "AirDeviceError",
    "AirDriverError",
    "AirDtypeError",
    "AirError",
    "AirHostError",
    "AirMemoryError",
    "AirShapeError",
    "AirStateError",
    "AirSyntaxError",
    "AirUnsupportedError",
    "CompilerConfig",
    "Explanation",
    "explain",
    "get_compiler",
    "get_npu_backend",
    "logger",
    "register_replacement",
]


_MODULES = ("npugraph_ex", "ops", "scope")


def __getattr__(name: str) -> Any:
    """What costs time to import is imported when it is asked for."""
    if name in ("explain", "Explanation"):
        from . import report as module

        return getattr(module, name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("Air") and name in __all__:
        from . import _native

        return getattr(_native, name)
    raise AttributeError(f"module 'torchair' has no attribute {name!r}")
