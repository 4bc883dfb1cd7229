"""Capture and replay by the names of npugraph_ex: `torch.npu.npugraph_ex` and,
after `import torch_npu` or on its own, `import npugraph_ex`.

>>> model = torch.compile(model, backend="npugraph_ex",
...                       options={"clone_output": True})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..backend import Compiler
from ..config import npugraph_ex_config
from ..logs import logger
from ..passes import register_replacement
from . import inference, scope

__all__ = [
    "compile_fx",
    "inference",
    "logger",
    "register_replacement",
    "scope",
]


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """One graph of AOTAutograd -> a callable, for a backend of your own:

    >>> aot_module_simplified(gm, inputs, fw_compiler=lambda g, i:
    ...                       compile_fx(g, i, {"force_eager": True}))

    example_inputs: what the user's passes are given; the types come from the
    graph. The callable takes the inputs, or one list of them, and returns a
    tuple.
    """
    if not isinstance(gm, torch.fx.GraphModule):
        raise TypeError(
            f"gm must be a torch.fx.GraphModule, got {type(gm).__name__}"
        )
    compiler = Compiler(npugraph_ex_config(options))
    return compiler(gm, list(example_inputs or ()))
