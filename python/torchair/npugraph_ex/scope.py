"""torch.npu.npugraph_ex.scope"""

from __future__ import annotations

from torchair.scope import limit_core_num

__all__ = ["limit_core_num"]
