"""Convolutions of patches on a GPU: windows side by side that cover the image.

The first layer of a ViT is one product, as are its gradients. In half precision
cuDNN takes ten times as long as that. In float32 what it does depends on the
order of the channels: the kernels that it finds for channels-last images
multiply 10 bits of mantissa (torch.backends.cudnn.allow_tf32, torch's default),
where those that eager's images get may not: a ViT had 570 times eager's error.
Products of float32 are exact unless the user wants otherwise.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from .inlined import call_like
from .pooling import FROM_LAST, TO_LAST

aten = torch.ops.aten
CONVOLUTION = aten.convolution.default
GRADIENT = aten.convolution_backward.default
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TO_ROWS, _FROM_ROWS = [0, 2, 4, 1, 3, 5], [0, 3, 1, 4, 2, 5]


class _Written:
    """What stands where a node did; image and weight are its operands."""

    def __init__(self, node: Any, image: Any, weight: Any) -> None:
        self.node, self.image, self.weight = node, image, weight
        n, c, height, width = image.meta["val"].shape
        self.windows, _, h, w = weight.meta["val"].shape
        self.split = [n, c, height // h, h, width // w, w]
        self.rows = n * (height // h) * (width // w)
        self.columns = c * h * w

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return call_like(self.node, target, *args, **kwargs)

    def view(self, x: Any, *sizes: int) -> Any:
        return self.call(aten.view.default, x, list(sizes))

    def permuted(self, x: Any, axes: list[int]) -> Any:
        return self.call(aten.permute.default, x, axes)

    def dense(self, x: Any) -> Any:
        kept = torch.contiguous_format
        return self.call(aten.clone.default, x, memory_format=kept)

    def patches(self) -> Any:
        """[rows, columns]"""
        x = self.permuted(self.view(self.image, *self.split), _TO_ROWS)
        return self.view(self.dense(x), self.rows, self.columns)

    def flat_weight(self) -> Any:
        """[windows, columns]"""
        usual = self.weight.meta["val"].is_contiguous()
        weight = self.weight if usual else self.dense(self.weight)
        return self.view(weight, self.windows, self.columns)

    def result(self, bias: Any) -> Any:
        x, y = self.patches(), self.permuted(self.flat_weight(), [1, 0])
        if bias is None:
            x = self.call(aten.mm.default, x, y)
        else:
            x = self.call(aten.addmm.default, bias, x, y)
        n, _, rows, _, columns, _ = self.split
        x = self.view(x, n, rows, columns, self.windows)
        return self.permuted(x, FROM_LAST)

    def gradient_of_image(self, g: Any) -> Any:
        """g: gradient_rows"""
        x = self.call(aten.mm.default, g, self.flat_weight())
        x = self.view(x, *(self.split[i] for i in _TO_ROWS))
        x = self.dense(self.permuted(x, _FROM_ROWS))
        return self.view(x, *self.image.meta["val"].shape)

    def gradient_of_weight(self, g: Any) -> Any:
        turned = self.permuted(g, [1, 0])
        x = self.call(aten.mm.default, turned, self.patches())
        return self.view(x, *self.weight.meta["val"].shape)

    def gradient_of_bias(self, g: Any) -> Any:
        return self.call(aten.sum.dim_IntList, g, [0])

    def gradient_rows(self, given: Any) -> Any:
        """[rows, windows]. given: the gradient of the result, as an image"""
        last = self.dense(self.permuted(given, TO_LAST))
        return self.view(last, self.rows, self.windows)


# Results of the gradient, in its order.
_GRADIENTS = (
    _Written.gradient_of_image,
    _Written.gradient_of_weight,
    _Written.gradient_of_bias,
)


def becomes_product(node: torch.fx.Node) -> bool:
    """The node, a convolution or its gradient, is gone if so."""
    given: Any = node.args
    if node.target is GRADIENT:
        given = given[1:]
    image, weight, after, *how = given
    if not _are_patches(image, weight, how):
        return False
    with node.graph.inserting_before(node):
        written = _Written(node, image, weight)
        if node.target is GRADIENT:
            _take_gradients(node, written)
        else:
            _replace(node, written.result(after))
    node.graph.erase_node(node)
    return True


def _take_gradients(node: torch.fx.Node, written: _Written) -> None:
    g = written.gradient_rows(node.args[0])
    for part in list(node.users):
        assert part.target is operator.getitem
        _replace(part, _GRADIENTS[part.args[1]](written, g))  # type: ignore
        node.graph.erase_node(part)


def _replace(node: torch.fx.Node, by: torch.fx.Node) -> None:
    by.meta = node.meta
    node.replace_all_uses_with(by)


def _are_patches(image: Any, weight: Any, how: Any) -> bool:
    """how: arguments of the convolution from its strides on"""
    stride, padding, dilation, transposed, _, groups = how[:6]
    image, weight = image.meta["val"], weight.meta["val"]
    sizes = (*image.shape, *weight.shape)
    return (
        image.dim() == 4
        and image.dtype in DTYPES
        and all(isinstance(n, int) for n in sizes)
        and list(stride) == list(weight.shape[2:])
        and max(sizes[6:]) > 1
        and set(padding) == {0}
        and set(dilation) == {1}
        and not transposed
        and groups == 1
        and all(n % k == 0 for n, k in zip(sizes[2:4], sizes[6:], strict=True))
    )
