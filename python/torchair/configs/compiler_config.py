"""CompilerConfig, by its other name."""

from ..config import CompilerConfig

__all__ = ["CompilerConfig"]
