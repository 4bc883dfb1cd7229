"""Images on a GPU: HOST nodes that read and leave channels-last order.

cuDNN's tensor-core kernels want it, and turn each operand there and each result
back where it is not so. In max-autotune convolutions, means of windows and
their gradients get operands in that order (the largest of windows are rows of
the engine in it: pooling.py), as [N, H, W, C], and give results of it,
permuted; pass permute of the engine has what is pointwise between them compute
in it too, and what else a region makes for them is written so (exec/order.c).
What a forward keeps for its backward lies so as well. A bias is added behind,
where it is fused: for cuDNN it is a kernel of its own anyway. Convolutions of
patches are products (patches.py).

Results of other HOST nodes of a GPU are left as torch's kernels leave them, too
(attention: rows of all heads), in both modes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from . import bodies, cuda, layouts, patches, rewrites
from .inlined import call_like
from .pooling import FROM_LAST, MARK, TO_LAST
from .schema import INTS, VALUE, first, permuted, viewed
from .sizes import Unexpressible

aten = torch.ops.aten
_CONVOLUTION, _GRADIENT = patches.CONVOLUTION, patches.GRADIENT
# Which arguments are images, and which are weights of windows.
_IMAGES = {
    _CONVOLUTION: (0,),
    _GRADIENT: (0, 1),
    aten.max_pool2d_with_indices.default: (0,),
    aten.max_pool2d_with_indices_backward.default: (0, 1, 7),
    aten.avg_pool2d.default: (0,),
    aten.avg_pool2d_backward.default: (0, 1),
    aten._adaptive_avg_pool2d.default: (0,),
    aten._adaptive_avg_pool2d_backward.default: (0, 1),
}
_WEIGHTS = {_CONVOLUTION: 1, _GRADIENT: 2}
_GROUPS = {_CONVOLUTION: 8, _GRADIENT: 9}
_ATTENTION_GRADIENT = aten._scaled_dot_product_cudnn_attention_backward.default
_ATTENDED = 4  # which argument the result is
_ROWS = [0, 2, 1, 3]
_MANY_IMAGES = 8


def prepare(gm: torch.fx.GraphModule, captures: bool) -> None:
    """Marks what reads and leaves channels-last order, if all convolutions are
    the faster for it."""
    found = [] if captures else _convolutions(gm.graph)
    if not found or not is_on_gpu(gm):
        return
    found = [n for n in found if not patches.becomes_product(n)]
    if all(map(_suits, found)):
        _mark_all(gm)
    gm.recompile()


def _convolutions(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    return [
        node
        for target in _WEIGHTS
        for node in graph.find_nodes(op="call_function", target=target)
    ]


def _mark_all(gm: torch.fx.GraphModule) -> None:
    for node in list(gm.graph.nodes):
        if node.target in _IMAGES and _is_image(node.args[0]):
            node.meta[MARK] = True
            if node.target is _CONVOLUTION:
                _split_bias(node)


def keep_in_order(
    forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, given: int
) -> None:
    """What forward keeps for backward, its results behind the first `given`,
    is kept as [N, H, W, C], or all as it was; the result of attention with the
    heads of a row side by side, as its gradient wants it. Graphs of several
    GPUs are left as they are."""
    try:
        if not is_on_gpu(forward):
            return
    except Unexpressible:  # on several
        return
    (output,) = forward.graph.find_nodes(op="output")
    results = list(output.args[0])
    inputs = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    images = _images_of(forward.graph) - set(results[:given])
    attended = _attended(backward.graph)
    for i, node in enumerate(results[given:], given):
        read = inputs.get(getattr(node, "name", None))
        order = _ROWS if read in attended else TO_LAST
        if read is None or not (node in images or read in attended):
            continue
        if _may_be_turned(node, order):
            results[i] = _turn_result(node, output, order)
            _turn_input(read, results[i].meta["val"], order)
    output.args = (type(output.args[0])(results),)
    forward.recompile()
    backward.recompile()


def _attended(graph: torch.fx.Graph) -> set[Any]:
    """Results of attention that cuDNN's gradient reads."""
    found = graph.find_nodes(op="call_function", target=_ATTENTION_GRADIENT)
    return {node.args[_ATTENDED] for node in found}


def _images_of(graph: torch.fx.Graph) -> set[Any]:
    """What convolutions and pooling read and give, and what has the sizes of
    such an image and is made of it: not the heads of attention. None, if a
    convolution is the slower for it, or there is none."""
    found: set[Any] = set()
    windows = _convolutions(graph)
    if not windows or not all(map(_suits, windows)):
        return found
    for node in graph.nodes:
        target: Any = node.target
        if target in _IMAGES:
            read = (*_IMAGES[target], *filter(None, [_WEIGHTS.get(target)]))
            found.update((node, *(node.args[i] for i in read)))
        elif any(_follows(node, x) for x in node.all_input_nodes if x in found):
            found.add(node)
    return found


def _follows(node: torch.fx.Node, image: torch.fx.Node) -> bool:
    if node.target in (operator.getitem, aten.cat.default):
        return True
    value = first(node.meta.get("val"))
    return (
        isinstance(value, torch.Tensor)
        and viewed(node) is None
        and value.shape == first(image.meta["val"]).shape
    )


def _may_be_turned(node: torch.fx.Node, order: list[int]) -> bool:
    value = node.meta["val"]
    return (
        node.op == "call_function"
        and isinstance(value, torch.Tensor)
        and value.dim() == 4
        and all(isinstance(n, int) for n in value.shape)
        and value.shape[1] > 1
        and (value.is_contiguous() or value.permute(order).is_contiguous())
    )


def _turn_result(
    node: torch.fx.Node, output: torch.fx.Node, order: list[int]
) -> torch.fx.Node:
    with node.graph.inserting_before(output):
        turned = call_like(node, aten.permute.default, node, order)
    value = turned.meta["val"]
    with value.fake_mode:
        turned.meta["val"] = value.contiguous()
    return turned


def _turn_input(
    read: torch.fx.Node, value: torch.Tensor, order: list[int]
) -> None:
    read.meta["val"] = value
    readers = list(read.users)
    inputs = read.graph.find_nodes(op="placeholder")
    with read.graph.inserting_after(inputs[-1]):
        back = [order.index(i) for i in range(len(order))]
        usual = call_like(read, aten.permute.default, read, back)
    for reader in readers:
        reader.replace_input_with(read, usual)


def is_on_gpu(gm: torch.fx.GraphModule) -> bool:
    return cuda.place_of(gm) >= cuda.PLACE


def _is_image(node: Any) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == 4
        and value.dtype in patches.DTYPES
    )


def _suits(node: torch.fx.Node) -> bool:
    """With groups, kernels of float32 for one image are slower in that order;
    others take a half to a fifth of the time (docs/cuda-figures.md)."""
    if not _is_image(node.args[0]):
        return False
    groups = node.args[_GROUPS[node.target]]  # type: ignore
    image = node.args[0].meta["val"]  # type: ignore
    if groups == 1 or image.dtype != torch.float32:
        return True
    dims = cuda.hints(image.shape[:1])
    return dims is not None and dims[0] >= _MANY_IMAGES


def _split_bias(node: torch.fx.Node) -> None:
    bias: Any = node.args[2]
    if bias is None or not isinstance(bias.meta["val"].shape[0], int):
        return
    graph = node.graph
    with graph.inserting_before(node):
        arguments = (*node.args[:2], None, *node.args[3:])
        plain = graph.call_function(_CONVOLUTION, arguments, {})
        sizes = [bias.meta["val"].shape[0], 1, 1]
        wide = graph.call_function(aten.view.default, (bias, sizes))
        total = graph.call_function(aten.add.Tensor, (plain, wide))
    plain.meta, total.meta = dict(node.meta), dict(node.meta)
    total.meta.pop(MARK)
    wide.meta["val"] = bias.meta["val"].view(sizes)
    node.replace_all_uses_with(total)
    graph.erase_node(node)


def _in_order(node: torch.fx.Node) -> set[int]:
    """Which arguments a HOST node is given as [N, H, W, C]. A weight that is
    computed is written so; one that is not is turned by the engine: torch's
    copy of it reads one number of many."""
    target: Any = node.target
    found = set(_IMAGES[target])
    at = _WEIGHTS.get(target)
    if at is not None and node.args[at].op == "call_function":  # type: ignore
        found.add(at)
    return found


def operands(
    importing: Any, node: torch.fx.Node, tensors: Sequence[torch.fx.Node]
) -> list[int]:
    """What the HOST node reads."""
    refs = [importing.ref(n) for n in tensors]
    if MARK not in node.meta:
        return layouts.operands(importing, node, tensors, refs)
    target: Any = node.target
    given = _in_order(node)
    for i in {tensors.index(node.args[i]) for i in given}:
        image = tensors[i].meta["val"].permute(TO_LAST)
        refs[i] = permuted(importing, node, refs[i], TO_LAST, image)
    at = _WEIGHTS.get(target)
    if at is not None and at not in given:
        i = tensors.index(node.args[at])
        refs[i] = _turned(importing, node, refs[i], tensors[i].meta["val"])
    return refs


def _turned(
    importing: Any, node: torch.fx.Node, ref: int, weight: torch.Tensor
) -> int:
    if not all(isinstance(n, int) for n in weight.shape):
        return ref
    _, c, h, w = weight.shape
    if min(c, h * w) <= 1:
        return ref
    strides = [importing.sizes.dim(n) for n in (c * h * w, 1, c * w, c)]
    return importing.add(  # type: ignore[no-any-return]
        node, "air::restride", [VALUE, ref, INTS, strides], weight
    )


# ---- HOST nodes ----


def _last(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x


def _dense(image: torch.Tensor) -> torch.Tensor:
    """[N, H, W, C]; a copy where it lies otherwise, as an argument may."""
    return image.contiguous()


class Last:
    """An operator on images whose channels lie last; those at `images` of its
    arguments are given as [N, H, W, C]."""

    def __init__(self, target: Any, images: set[int]) -> None:
        self.target, self.images = target, images

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [
            _dense(a).permute(FROM_LAST) if i in self.images else _last(a)
            for i, a in enumerate(args)
        ]
        return self.target(*given, **kwargs)


def target_of(node: torch.fx.Node) -> Any:
    """What the HOST node of an operator calls."""
    target: Any = node.target
    if MARK not in node.meta:
        return rewrites.host_target(node, bodies.target_of(node))
    return Last(target, _in_order(node))


def _order(
    node: torch.fx.Node, result: torch.Tensor, place: int
) -> list[int] | None:
    """Axes in the order in which the HOST node leaves them; None: the usual
    one, or not known. Kernels of attention leave rows of all heads."""
    strides = result.stride()
    if MARK in node.meta:
        return TO_LAST if result.dim() == 4 else None
    if place < cuda.PLACE or not all(isinstance(s, int) for s in strides):
        return None
    order = sorted(range(result.dim()), key=lambda i: -strides[i])
    usual = order == list(range(result.dim()))
    return order if not usual and _is_dense(result.permute(order)) else None


def _is_dense(x: torch.Tensor) -> bool:
    return x.numel() > 1 and x.is_contiguous()


def orders(
    node: torch.fx.Node, results: Sequence[torch.Tensor], place: int
) -> list[list[int] | None]:
    return [_order(node, r, place) for r in results]


def stored(
    results: Sequence[torch.Tensor], orders: Sequence[list[int] | None]
) -> list[torch.Tensor]:
    """Results as the HOST node leaves them, for their sizes."""
    return [
        r if order is None else r.permute(order)
        for r, order in zip(results, orders, strict=True)
    ]


def shown(
    importing: Any,
    node: torch.fx.Node,
    refs: Sequence[int],
    results: Sequence[torch.Tensor],
    orders: Sequence[list[int] | None],
) -> list[int]:
    """Results of the HOST node as the graph's."""
    found = []
    for ref, result, order in zip(refs, results, orders, strict=True):
        if order is not None:
            back = [order.index(i) for i in range(len(order))]
            ref = permuted(importing, node, ref, back, result)
        found.append(ref)
    return found
