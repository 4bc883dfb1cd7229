"""torch_npu: programs written for an NPU, on any machine.

Importing it gives torch the device "npu", over host memory, and the names of
torch_npu that such programs use: `.npu()`, `torch.npu`, torch.compile's
backends "inductor" and "npugraphs" for tensors of the device. Computing is
done by torch's CPU kernels and, in compiled functions, by torchair's engine.

It refuses to be imported where a real torch_npu is installed.
"""

from __future__ import annotations

import importlib
from typing import Any

from torchair import packages

packages.refuse_to_shadow()

from . import _device  # noqa: E402
from . import npu as npu  # noqa: E402

_device.register()


def __getattr__(name: str) -> Any:
    if name in ("print_npugraph_tensor", "save_npugraph_tensor"):
        import torchair.npu

        return getattr(torchair.npu, name)
    if name == "_C":
        return importlib.import_module("torch_npu._C")
    raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")
