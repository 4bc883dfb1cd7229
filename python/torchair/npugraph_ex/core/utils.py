"""npugraph_ex.core.utils.logger"""

from torchair.logs import logger

__all__ = ["logger"]
