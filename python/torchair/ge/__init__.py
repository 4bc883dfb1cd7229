"""torchair.ge: building a graph in terms of the Ascend IR, inside converters.

>>> @torchair.register_fx_node_ge_converter(torch.ops.npu.my_op.default)
... def convert_my_op(x, y, meta_outputs=None):
...     return torchair.ge.custom_op("Add", x, torchair.ge.Cast(y, dst_type=0))

A converter's calls become nodes of the graph in place of the operator it
converts. Types that the engine has a row for (`docs/ops.md`, column Ascend
IR) become that row; others need a kernel: `register_op`.
"""

from __future__ import annotations

from . import attr
from .build import Cast, Clone, Const, Tensor, TensorSpec, custom_op
from .registry import register_op
from .types import DataType, Format

__all__ = [
    "Cast",
    "Clone",
    "Const",
    "DataType",
    "Format",
    "Tensor",
    "TensorSpec",
    "attr",
    "custom_op",
    "register_op",
]
