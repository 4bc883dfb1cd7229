"""torchair.llm_datadist: tensors over memory of a data-distribution library,
such as the KV cache that prefill hands to decode."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence

import torch

__all__ = ["create_npu_tensors"]

_DTYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
}


def create_npu_tensors(
    shape: Sequence[int], dtype: torch.dtype, addresses: Sequence[int]
) -> list[torch.Tensor]:
    """One dense tensor of this shape and dtype per address, on device npu
    where torch_npu is loaded, else on the CPU.

    Nothing is copied and nothing is ever freed: the memory is the caller's,
    must be of shape x itemsize bytes and outlive the tensors. Addresses are
    those of host memory and are not checked, other than for 0.

    TypeError: shape or addresses is no list or tuple of int, dtype no dtype.
    ValueError: a dtype that the interface does not have. RuntimeError: a size
    below 0, no address, or one that the dtype cannot have.
    """
    for name, value in (("shape", shape), ("addresses", addresses)):
        if not isinstance(value, (list, tuple)) or any(
            type(v) is not int for v in value
        ):
            raise TypeError(
                f"create_npu_tensors: {name} must be a list or tuple of int, "
                f"got {value!r}"
            )
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"create_npu_tensors: dtype must be a torch.dtype, got {dtype!r}"
        )
    if dtype not in _DTYPES:
        names = ", ".join(sorted(str(d) for d in _DTYPES))
        raise ValueError(
            f"create_npu_tensors: {dtype} is not supported; use one of {names}"
        )
    if any(size < 0 for size in shape):
        raise RuntimeError(
            f"create_npu_tensors: shape {list(shape)} has a size below 0"
        )
    return [_over(address, shape, dtype) for address in addresses]


def _over(
    address: int, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    count = math.prod(shape)
    if count == 0:
        return _on_device(torch.empty(shape, dtype=dtype))
    if address <= 0:
        raise RuntimeError(
            f"create_npu_tensors: {address} is no address of memory"
        )
    if address % dtype.itemsize:
        raise RuntimeError(
            f"create_npu_tensors: address {address:#x} is no multiple of the "
            f"{dtype.itemsize} bytes of a {dtype}"
        )
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    flat = torch.frombuffer(memory, dtype=dtype, count=count)
    return _on_device(flat.view(shape))


def _on_device(tensor: torch.Tensor) -> torch.Tensor:
    if "torch_npu" not in sys.modules:
        return tensor
    from ._native import npu_alias

    found: torch.Tensor = npu_alias(tensor, True)
    return found
