"""The largest of windows of images on a GPU, where images are to have their
channels last (images.py): rows of the engine that take and give [N, H, W, C].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import cuda, schema
from .origin import location_of
from .schema import permuted

aten = torch.ops.aten
MARK = "torchair_channels_last"  # in the meta of such a node
TO_LAST, FROM_LAST = [0, 2, 3, 1], [0, 3, 1, 2]
_LARGEST = "air::max_pool_last"
_WITH_PLACES = "air::max_pool_last_with_indices"
_GRADIENT = "air::max_pool_last_backward"


def _row(
    at: Any,
    node: torch.fx.Node,
    name: str,
    given: dict[str, Any],
    images: Sequence[str],
    results: Sequence[torch.Tensor],
) -> list[int]:
    """A row with the arguments of the node's own, of which `images` are
    turned."""
    row = schema.find_row(node.target)
    if row is None or name in at.without:
        raise schema.Refused(cuda.NO_KERNEL)
    given["stride"] = given["stride"] or given["kernel_size"]
    attrs = schema.attributes(at, row, list(given.values()), {})
    for i in map(list(given).index, images):
        image = list(given.values())[i]
        turned = image.meta["val"].permute(TO_LAST)
        attrs[2 * i + 1] = permuted(at, node, at.ref(image), TO_LAST, turned)
    refs = at.graph.node(name, attrs, location_of(node), len(results))
    refs = [
        at.check_type(ref, result.permute(TO_LAST))
        for ref, result in zip(refs, results, strict=True)
    ]
    return [
        permuted(at, node, ref, FROM_LAST, result)
        for ref, result in zip(refs, results, strict=True)
    ]


def _forward(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    if MARK not in node.meta:
        return at.row_node(node, value)  # type: ignore[no-any-return]
    given = schema.bound(node)
    if schema.used_items(node) == {0}:
        found = _row(at, node, _LARGEST, given, ["self"], value[:1])
        return [*found, None]
    return _row(at, node, _WITH_PLACES, given, ["self"], value)


def _backward(at: Any, node: torch.fx.Node, value: Any) -> Sequence[int | None]:
    if MARK not in node.meta:
        return at.row_node(node, value)  # type: ignore[no-any-return]
    images = ["grad_output", "self", "indices"]
    return _row(at, node, _GRADIENT, schema.bound(node), images, [value])


REWRITES = {
    aten.max_pool2d_with_indices.default: _forward,
    aten.max_pool2d_with_indices_backward.default: _backward,
}
