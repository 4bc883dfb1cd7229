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

aten = torch.ops.aten
CONVOLUTION = aten.convolution.default
GRADIENT = aten.convolution_backward.default
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_TO_ROWS, _FROM_ROWS = [0, 2, 4, 1, 3, 5], [0, 3, 1, 4, 2, 5]
_TO_LAST, _FROM_LAST = [0, 2, 3, 1], [0, 3, 1, 2]


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
        return self.permuted(x, _FROM_LAST)

    def gradients(self, given: Any) -> tuple[Any, Any, Any]:
        """Of image, weight and bias, as calls to make. given: [n, windows,
        rows, columns], the gradient of the result."""
        last = self.dense(self.permuted(given, _TO_LAST))
        g = self.view(last, self.rows, self.windows)

        def of_image() -> Any:
            x = self.call(aten.mm.default, g, self.flat_weight())
            x = self.view(x, *(self.split[_TO_ROWS[i]] for i in range(6)))
            x = self.dense(self.permuted(x, _FROM_ROWS))
            return self.view(x, *self.image.meta["val"].shape)

        def of_weight() -> Any:
            turned = self.permuted(g, [1, 0])
            x = self.call(aten.mm.default, turned, self.patches())
            return self.view(x, *self.weight.meta["val"].shape)

        def of_bias() -> Any:
            return self.call(aten.sum.dim_IntList, g, [0])

        return of_image, of_weight, of_bias


def becomes_product(node: torch.fx.Node) -> bool:
    """The node, a convolution or its gradient, is gone if so."""
    gradient = node.target is GRADIENT
    image, weight, after = node.args[int(gradient) :][:3]
    if not _are_patches(image, weight, node.args[3 + int(gradient) :]):
        return False
    with node.graph.inserting_before(node):
        written = _Written(node, image, weight)
        if gradient:
            return _take_gradients(node, written)
        x = written.result(after)
    x.meta = node.meta
    node.replace_all_uses_with(x)
    node.graph.erase_node(node)
    return True


def _take_gradients(node: torch.fx.Node, written: _Written) -> bool:
    made = written.gradients(node.args[0])
    for part in list(node.users):
        assert part.target is operator.getitem
        x = made[part.args[1]]()  # type: ignore
        x.meta = part.meta
        part.replace_all_uses_with(x)
        node.graph.erase_node(part)
    node.graph.erase_node(node)
    return True


def _are_patches(image: Any, weight: Any, how: Any) -> bool:
    """how: arguments of the convolution from its strides on"""
    stride, padding, dilation, transposed, _, groups = how[:6]
    image, weight = image.meta["val"], weight.meta["val"]
    sizes = (*image.shape, *weight.shape)
    return (
        image.dim() == 4
        and image.dtype in _DTYPES
        and all(isinstance(n, int) for n in sizes)
        and list(stride) == list(weight.shape[2:])
        and max(sizes[6:]) > 1
        and set(padding) == {0}
        and set(dilation) == {1}
        and not transposed
        and groups == 1
        and all(n % k == 0 for n, k in zip(sizes[2:4], sizes[6:], strict=True))
    )
