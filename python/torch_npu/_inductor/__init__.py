"""torch_npu._inductor: shape handling in front of compiled functions."""

from . import config as config
from .shapes import NPUShapeHandling

__all__ = ["NPUShapeHandling", "config"]
