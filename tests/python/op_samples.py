"""PyTorch's operator samples, traced and run by the engine, and their error.

Error is counted in ulps of the result's dtype, against the same samples
evaluated in float64. An element's ulp is that of its own exact value where
every element has a formula of its own (pointwise operators); where elements
are sums (everything else) it is that of the tensor's largest value, because
what a sum loses is of the size of its terms.
"""

import functools
import operator
from dataclasses import dataclass

import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torchair import _native, cuda
from torchair.importer import import_graph
from torchair.schema import DTYPES


def tensors_of(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def usable(tensors):
    return all(
        t.layout == torch.strided
        and not t.is_complex()
        and not t.is_quantized
        and t.dtype in DTYPES
        for t in tensors
    )


def closed(op, sample):
    """A function of the sample's tensors alone, and those tensors."""
    leaves, spec = pytree.tree_flatten(
        (sample.input, sample.args, sample.kwargs)
    )
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def fn(*tensors):
        filled = list(leaves)
        for i, t in zip(places, tensors, strict=True):
            filled[i] = t
        first, args, kwargs = pytree.tree_unflatten(filled, spec)
        return op(first, *args, **kwargs)

    # clones: views of a larger memory become tensors of their own
    return fn, [
        leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad)
        for i in places
    ]


def gradients(fn, tensors):
    """(function of plain tensors that gives fn's gradients, plain tensors).

    Results are weighed: the gradient of a plain sum of a softmax or of a
    normalised tensor is zero, and its error would be one of nothing.
    """
    places = [i for i, t in enumerate(tensors) if t.requires_grad]

    def weighed(t):
        weights = torch.arange(t.numel(), dtype=torch.float64).cos() + 2
        return (t * weights.to(t).reshape(t.shape)).sum()

    def grads(*args):
        leaves = [
            a.detach().requires_grad_(i in places) for i, a in enumerate(args)
        ]
        out = [t for t in tensors_of(fn(*leaves)) if t.requires_grad]
        found = torch.autograd.grad(
            sum(weighed(t) for t in out),
            [leaves[i] for i in places],
            allow_unused=True,
        )
        return [f for f in found if f is not None]

    return grads, [t.detach() for t in tensors]


def _writes(node):
    return getattr(getattr(node.target, "_schema", None), "is_mutable", False)


def trace(fn, tensors):
    """The functional graph of fn, as AOTAutograd makes it."""

    def flat(*args):
        return tuple(tensors_of(fn(*args)))

    gm = make_fx(flat, tracing_mode="fake")(*tensors)
    if not any(_writes(n) for n in gm.graph.nodes):
        return gm
    return make_fx(functionalize(gm), tracing_mode="fake")(*tensors)


SUMS = {"mm", "bmm", "addmm", "baddbmm", "dot", "convolution", "cumsum"}


def rows_of(gm):
    """The rows of the op table that a graph names."""
    known = set(_native.ops())
    return {_row(n) for n in gm.graph.nodes if n.op == "call_function"} & known


def is_pointwise(gm):
    """Is every element of the results a formula of its own?"""
    local = {"pointwise", "create", "view"}
    return all(
        n.op != "call_function"
        or n.target is operator.getitem
        or (_native.describe(_row(n)) or ("", ""))[1] in local
        for n in gm.graph.nodes
    )


def _row(node):
    name = str(node.target).removeprefix("aten.")
    return name.removesuffix(".default")


def program_of(gm, exact):
    return cuda.until_made(functools.partial(_program, gm, exact))


def _program(gm, exact, without):
    got = import_graph(gm, "sample", {}, without)
    program = _native.Program(
        got.graph,
        tuple(got.args),
        tuple(got.consts),
        got.nresults,
        tuple(got.outs),
        tuple(got.hosts),
        None,
        exact=exact,
    )
    more = cuda.prepare(program, gm, without) if got.place else without
    return program if more == without else more


def in_double(fn, tensors):
    """The tensors of fn in float64; None where torch cannot."""
    wide = [t.double() if t.is_floating_point() else t.clone() for t in tensors]
    torch.set_default_dtype(torch.float64)  # what integers become
    try:
        return tensors_of(fn(*wide))
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def ulp(values, dtype):
    """The distance of neighbours of `dtype` at each value (float64)."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs())
    size = torch.ldexp(torch.ones_like(values), exponent - 1) * info.eps
    return size.clamp(min=info.smallest_normal * info.eps)


@dataclass
class Error:
    """In ulps: largest over elements, of their own and of the whole."""

    own: float = 0.0
    whole: float = 0.0
    special: bool = True  # NaN and infinities are where they should be


def error(t, exact, scale=0.0):
    """How far the tensor t is from `exact`, float64 of the same shape.

    scale: what `whole` counts the ulp of, where that is larger than the
    largest of `exact`.
    """
    dtype = t.dtype
    t = t.double()
    limit = exact.to(dtype).double()  # what is too large is an infinity
    fine = torch.isfinite(limit) & torch.isfinite(t)
    special = torch.equal(
        torch.nan_to_num(t[~fine], 7.0), torch.nan_to_num(limit[~fine], 7.0)
    )
    t, exact = t[fine], exact[fine]
    if exact.numel() == 0:
        return Error(special=special)
    apart = (t - exact).abs()
    largest = exact.abs().max().clamp(min=scale)
    return Error(
        (apart / ulp(exact, dtype)).max().item(),
        (apart.max() / ulp(largest, dtype)).item(),
        special,
    )


def rms(t, exact, scale, own):
    """Of the errors of all elements, in ulps of their own or of the whole; of
    an exact one 0.01."""
    dtype, t, exact = t.dtype, t.double(), exact.double()
    fine = torch.isfinite(exact.to(dtype)) & torch.isfinite(t)
    t, exact = t[fine], exact[fine]
    if exact.numel() == 0:
        return 0.01
    size = exact if own else exact.abs().max().clamp(min=scale)
    size = ulp(size, dtype)
    return max(((t - exact) / size).square().mean().sqrt().item(), 0.01)


def moved(tensors, draw):
    """The tensors, each number times a random one between 1/2 and 2: zeros,
    signs and infinities stay where they are."""
    g = torch.Generator("cpu").manual_seed(draw)

    def move(t):
        if not t.is_floating_point():
            return t.clone()
        power = torch.rand(
            t.shape, generator=g, dtype=torch.float64, device="cpu"
        )
        return t * torch.exp2(2 * power - 1).to(t)

    return [move(t) for t in tensors]


def term_scale(fn, tensors, which):
    """How large the terms of result `which` of a sum are: the result of the
    operands' absolute values."""
    found = in_double(
        fn, [t.abs() if t.is_floating_point() else t for t in tensors]
    )
    if not found or len(found) <= which or found[which].numel() == 0:
        return 0.0
    sizes = found[which].double().abs().nan_to_num(0, 0, 0)
    return sizes.max().item()
