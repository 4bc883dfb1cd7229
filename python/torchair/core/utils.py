"""`from torchair.core.utils import EVENT_LEVEL`."""

from ..logs import EVENT_LEVEL, logger

__all__ = ["EVENT_LEVEL", "logger"]
