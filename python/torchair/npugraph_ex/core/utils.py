"""npugraph_ex.core.utils.logger"""

from torchair.backend import logger

__all__ = ["logger"]
