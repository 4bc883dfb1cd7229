"""npu_print: values of tensors in compiled functions and outside of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import own

_SCHEMA = (
    "print(Tensor[] tensors, str msg_format, str placeholder, "
    "int summarize_size, bool tensor_detail) -> ()"
)


def npu_print(
    *args: Any, summarize_size: int = 3, tensor_detail: bool = False
) -> None:
    """Prints tensors with text, numbers and booleans between them, joined by
    spaces, when the values are there: in a compiled function at every call,
    in the order of the program. No graph break.

    >>> npu_print("hello, tensor:", torch.arange(10))
    hello, tensor: [0 1 2 ... 7 8 9]

    summarize_size: of a dimension the first and last so many elements, -1:
    all. tensor_detail: `tensor([0 1 2], shape=[3], dtype=torch.int64)`.

    TypeError: an argument of another type, complex tensors, summarize_size is
    no int, tensor_detail no bool. ValueError: no tensor, summarize_size is 0 or
    less than -1.
    """
    _check_options(summarize_size, tensor_detail)
    tensors = [a.detach() for a in args if isinstance(a, torch.Tensor)]
    for arg in args:
        _check(arg)
    if not tensors:
        raise ValueError("npu_print needs at least one tensor")
    texts = [str(a) for a in args if not isinstance(a, torch.Tensor)]
    mark, number = "{}", 0
    while any(mark in text for text in texts):
        mark, number = f"{{{number}}}", number + 1
    words = [mark if isinstance(a, torch.Tensor) else str(a) for a in args]
    torch.ops.air.print(
        tensors, " ".join(words), mark, summarize_size, tensor_detail
    )


def _check_options(summarize_size: Any, tensor_detail: Any) -> None:
    if isinstance(summarize_size, bool) or not isinstance(summarize_size, int):
        raise TypeError(
            "npu_print: summarize_size must be an int, got "
            f"{type(summarize_size).__name__}"
        )
    if summarize_size < -1 or summarize_size == 0:
        raise ValueError(
            "npu_print: summarize_size must be positive, or -1 for all "
            f"elements, got {summarize_size}"
        )
    if not isinstance(tensor_detail, bool):
        raise TypeError(
            "npu_print: tensor_detail must be a bool, got "
            f"{type(tensor_detail).__name__}"
        )


def _check(arg: Any) -> None:
    if not isinstance(arg, (torch.Tensor, str, bool, int, float)):
        raise TypeError(
            "npu_print prints tensors, str, bool, float and int, got "
            f"{type(arg).__name__}"
        )
    if isinstance(arg, torch.Tensor) and arg.is_complex():
        raise TypeError("npu_print does not print complex tensors")


def drop_repeated(graph: torch.fx.Graph) -> None:
    """Of the graph of a backward: what it computes again of the forward has
    been printed there."""
    for node in list(graph.nodes):
        forward = node.meta.get("partitioner_tag") == "is_forward"
        if forward and node.target is torch.ops.air.print.default:
            graph.erase_node(node)


# ---- the text ----


def summary(tensor: torch.Tensor, size: int) -> str:
    """Values, of each dimension the first and last `size`; -1: all."""
    if tensor.dim() == 0:
        return _number(tensor.item())
    if tensor.numel() == 0:
        return "[]"
    return _rows(tensor, size)


def _rows(tensor: torch.Tensor, size: int) -> str:
    count = tensor.shape[0]
    whole = size == -1 or count <= 2 * size
    ends = (tensor,) if whole else (tensor[:size], tensor[count - size :])
    last = tensor.dim() == 1
    parts: list[str] = []
    for end in ends:
        parts += ["..."] if parts else []
        parts += (
            map(_number, end.tolist())
            if last
            else (_rows(t, size) for t in end)
        )
    return "[" + (" " if last else "\n ").join(parts) + "]"


def _number(value: Any) -> str:
    """Integers, also of floats, without decimals; 9 significant digits."""
    if isinstance(value, float):
        return f"{value:.9g}"
    return str(int(value))


def _pieces(
    tensors: Sequence[torch.Tensor],
    text: str,
    mark: str,
    size: int,
    detail: bool,
) -> Iterator[str]:
    words = text.split(mark)
    for word, tensor in zip(words, tensors, strict=False):
        yield word
        said = summary(tensor, size)
        if detail:
            shape = list(tensor.shape)
            said = f"tensor({said}, shape={shape}, dtype={tensor.dtype})"
        yield said
    yield words[-1]


def _print(
    tensors: Sequence[torch.Tensor],
    msg_format: str,
    placeholder: str,
    summarize_size: int,
    tensor_detail: bool,
) -> None:
    found = _pieces(
        tensors, msg_format, placeholder, summarize_size, tensor_detail
    )
    print("".join(found), flush=True)


_library = own.define(_SCHEMA, _print, lambda *_: None)
torch.fx.node.has_side_effect(torch.ops.air.print.default)
