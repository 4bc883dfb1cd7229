"""`import npugraph_ex`: torchair.npugraph_ex by its own name."""

import sys

import torchair.npugraph_ex as _package

sys.modules[__name__] = _package
