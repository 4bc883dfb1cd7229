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

import torch

from torchair import packages

packages.refuse_to_shadow()

from . import _collectives, _device, _ops  # noqa: E402
from . import npu as npu  # noqa: E402
from ._attention import npu_fusion_attention as npu_fusion_attention  # noqa: E402
from ._attention import npu_rotary_mul as npu_rotary_mul  # noqa: E402
from ._ops import get_npu_format as get_npu_format  # noqa: E402
from ._ops import npu_format_cast as npu_format_cast  # noqa: E402
from ._ops import scatter_update_ as scatter_update_  # noqa: E402

_device.register()
_ops.install()
_collectives.install()
_OPS = (
    "npu_rms_norm",
    "npu_add_rms_norm",
    "npu_add_rms_norm_cast",
    "npu_apply_rotary_pos_emb",
    "npu_incre_flash_attention",
    "npu_prompt_flash_attention",
    "npu_add_rms_norm_dynamic_quant",
    "npu_dynamic_quant",
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_get_max_workspace",
)
_MODULES = ("_C", "_inductor", "contrib", "distributed", "profiler")


def __getattr__(name: str) -> Any:
    if name in ("print_npugraph_tensor", "save_npugraph_tensor"):
        import torchair.npu

        return getattr(torchair.npu, name)
    if name in _MODULES:
        return importlib.import_module(f"torch_npu.{name}")
    if name in _OPS:
        return getattr(torch.ops.npu, name)
    raise AttributeError(f"module 'torch_npu' has no attribute {name!r}")
