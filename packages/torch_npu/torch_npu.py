"""`import torch_npu` where the vendor's package is not installed.

A file, not a folder: the vendor's folder torch_npu beside it is found first.
"""

from torchair import packages

packages.load_torch_npu()
