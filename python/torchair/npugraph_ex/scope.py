"""torch.npu.npugraph_ex.scope"""

from __future__ import annotations

from torchair.scope import deterministic, limit_core_num

__all__ = ["deterministic", "limit_core_num"]
