"""Operators torch.ops.air.*, which torch computes where the engine does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .compat import register_fake


def define(
    schema: str, compute: Callable[..., Any], fake: Callable[..., Any]
) -> Any:
    """Operator torch.ops.air.NAME of schema "NAME(...) -> ...", which `compute`
    computes on the CPU and on GPUs. Gives its library; it lasts as long."""
    make: Any = torch.library.Library
    library = make("air", "FRAGMENT")
    name = library.define(schema)
    for key in ("CPU", "CUDA"):
        library.impl(name, compute, key)
    register_fake(library, name, fake)
    return library
