"""Private formats of weights: how an NPU lays a matrix out for its cube unit.

FRACTAL_NZ (format 29) cuts the last two dims [H, W] into blocks of 16 x C0,
column by column of blocks. `to_fractal_nz` and `from_fractal_nz` are that
layout exactly. Devices that this engine runs on read weights where torch keeps
them, row-major, so casts leave them there: numbers, `state_dict`, shapes and
dtypes are the same either way.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import checks
from .logs import logger
from .packages import vendor_version

FRACTAL_Z, FRACTAL_NZ = 4, 29
_ROWS = 16  # of a block
# Columns of a block: 32 bytes, but 16 for what is wider than two.
_COLUMNS = {
    torch.float16: 16,
    torch.bfloat16: 16,
    torch.float32: 16,
    torch.int32: 16,
    torch.int8: 32,
    torch.uint8: 32,
}
_DEEPSPEED = ("LinearLayer", "LinearAllreduce", "LmHeadLinearAllreduce")


def fractal_nz_shape(shape: Sequence[int], dtype: torch.dtype) -> list[int]:
    """[..., H, W] -> [..., ceil(W / C0), ceil(H / 16), 16, C0].

    ValueError: fewer than two dims. TypeError: a dtype without the format.
    """
    columns = _COLUMNS.get(dtype)
    if columns is None:
        raise TypeError(
            f"FRACTAL_NZ has no blocks of {dtype}; it has: "
            + ", ".join(str(d) for d in _COLUMNS)
        )
    if len(shape) < 2:
        raise ValueError(
            f"FRACTAL_NZ needs two dims or more, got shape {list(shape)}: "
            "view a vector as [1, n]"
        )
    *outer, rows, width = shape
    return [*outer, -(-width // columns), -(-rows // _ROWS), _ROWS, columns]


def to_fractal_nz(tensor: torch.Tensor) -> torch.Tensor:
    """[..., H, W] in row-major order -> a new tensor of `fractal_nz_shape`,
    zero where blocks are not full. Element (h, w) of matrix b lies at
    ((b * W1 + w // C0) * H1 * 16 + h) * C0 + w % C0."""
    shape = fractal_nz_shape(tensor.shape, tensor.dtype)
    *outer, across, down, rows, columns = shape
    height, width = tensor.shape[-2:]
    padded = torch.nn.functional.pad(
        tensor, (0, across * columns - width, 0, down * rows - height)
    )
    blocks = padded.reshape(*outer, down * rows, across, columns)
    return blocks.transpose(-3, -2).reshape(shape)


def from_fractal_nz(packed: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """What `to_fractal_nz` was given, of that shape, as a new tensor.

    ValueError: packed has another shape than the format says.
    """
    expected = fractal_nz_shape(shape, packed.dtype)
    if list(packed.shape) != expected:
        raise ValueError(
            f"packed has shape {list(packed.shape)}; for {list(shape)} of "
            f"{packed.dtype} FRACTAL_NZ has {expected}"
        )
    *outer, across, down, rows, columns = expected
    blocks = packed.reshape(*outer, across, down * rows, columns)
    whole = blocks.transpose(-3, -2).reshape(
        *outer, down * rows, across * columns
    )
    return whole[..., : shape[-2], : shape[-1]].contiguous()


def npu_format_cast_via_cpu(
    self: torch.Tensor,
    acl_format: int,
    customize_dtype: Any = None,
    input_dtype: Any = None,
) -> torch.Tensor:
    """The tensor in format 29, FRACTAL_NZ, without a peak of device memory.

    On the vendor's NPU that is the vendor's cast; anywhere else the tensor
    itself, whose memory stays row-major. `to_fractal_nz` has the layout.

    ValueError: another format. NotImplementedError: customize_dtype or
    input_dtype (four and eight bit floats).
    """
    checks.is_a(
        torch.Tensor, self, "npu_format_cast_via_cpu: the first", "a tensor"
    )
    if acl_format != FRACTAL_NZ:
        raise ValueError(
            f"npu_format_cast_via_cpu: acl_format={acl_format!r}; only "
            f"{FRACTAL_NZ} (FRACTAL_NZ) can be cast to"
        )
    for name, value in (
        ("customize_dtype", customize_dtype),
        ("input_dtype", input_dtype),
    ):
        if value is not None:
            raise NotImplementedError(
                f"npu_format_cast_via_cpu: {name}={value!r}; leave it out"
            )
    fractal_nz_shape(self.shape, self.dtype)  # refuses what has no such form
    return _cast(self, acl_format)


def use_internal_format_weight(model: torch.nn.Module) -> None:
    """Casts the weights of the model, in place, to the formats that an NPU
    multiplies fastest: Linear layers (DeepSpeed's too) to FRACTAL_NZ, float16
    convolutions without groups to FRACTAL_Z.

    On the vendor's NPU memory changes. On any other device nothing does: the
    engine reads row-major weights as fast, and writing to one stays visible.
    Without torch_npu an error is logged and the model is left alone.

    RuntimeError: a weight is on the CPU; `model.npu()` comes first.
    """
    checks.is_a(
        torch.nn.Module,
        model,
        "use_internal_format_weight: model",
        "a torch.nn.Module",
    )
    if "torch_npu" not in sys.modules:
        logger.error(
            "use_internal_format_weight: torch_npu is not imported, weights "
            "stay as they are"
        )
        return
    found = list(_weights(model))
    for name, module, _ in found:
        if module.weight.device.type == "cpu":
            raise RuntimeError(
                f"use_internal_format_weight: {name}.weight is on the CPU; "
                "move the model first: model.npu()"
            )
    for _, module, form in found:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing changes, each time
            module.weight.data = _cast(module.weight.data, form)
    if found and vendor_version() is None:
        logger.info(
            "use_internal_format_weight: %d weights keep their row-major "
            "memory, which kernels of this device read",
            len(found),
        )


def _weights(model: torch.nn.Module) -> Iterator[tuple[str, Any, int]]:
    """Name, module and format of each weight that has one."""
    for name, module in model.named_modules():
        linear = isinstance(module, torch.nn.Linear)
        if linear or type(module).__name__ in _DEEPSPEED:
            yield name, module, FRACTAL_NZ
        elif (
            isinstance(module, torch.nn.Conv2d)
            and module.groups == 1
            and module.weight.dtype == torch.float16
        ):
            yield name, module, FRACTAL_Z


def _cast(tensor: torch.Tensor, form: int) -> torch.Tensor:
    if vendor_version() is None:
        return tensor
    found: torch.Tensor = sys.modules["torch_npu"].npu_format_cast(tensor, form)
    return found
