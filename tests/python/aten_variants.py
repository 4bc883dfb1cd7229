"""More calls for rows of the supported ATen list: the overloads and optional
arguments that a row's name stands for.

name -> functions of the maker, as in aten_list.py. A dtype that eager refuses
for a call is left out; the test says so if that is every one.
"""

import math

import torch
import torch.nn.functional as F
from aten_list import FOREACH_UNARY, one, two

aten = torch.ops.aten


def over(f, *sizes):
    """f of tensors of these sizes."""
    return lambda m: (f, [m(*s) for s in sizes])


def above(f, *sizes):
    """The same, above zero."""
    return lambda m: (f, [m.p(*s) for s in sizes])


def with_index(f, n, *size):
    """f(x, y, indices below n)."""
    return lambda m: (f, [m(3, 4), m(3, 4), m.i(n, *(size or (2,)))])


# ---- foreach ----


def _written(f):
    """The function that writes its operands."""

    def call(a, b):
        f([a, b])
        return a, b

    return lambda m: (call, [m.u(2, 3), m.u(4)])


def lists(f):
    """f of two lists of two tensors above zero; what it writes is seen."""
    return lambda m: (
        lambda a, b, c, d: (f([a, b], [c, d]), a, b),
        [m.p(2, 3), m.p(4), m.p(2, 3), m.p(4)],
    )


def _arithmetic(name):
    f = getattr(torch, f"_foreach_{name}")
    in_place = getattr(torch, f"_foreach_{name}_")
    alpha = [lists(lambda x, y: f(x, y, alpha=2))]
    tensor = [lists(lambda x, y: f(x, y[0].sum()))]
    return [
        lists(lambda x, y: f(x, [2, 3])),
        lists(lambda x, y: in_place(x, y)),
        lists(lambda x, y: in_place(x, 2)),
        *(alpha if name in ("add", "sub") else []),
        *(tensor if name in ("add", "mul", "div") else []),
    ]


def _bounds(name):
    f = getattr(torch, f"_foreach_{name}")
    in_place = getattr(torch, f"_foreach_{name}_")
    return [
        lists(lambda x, y: f(x, [1, 2])),
        lists(lambda x, y: in_place(x, y)),
    ]


def _addc(name):
    f = getattr(torch, f"_foreach_{name}")
    in_place = getattr(torch, f"_foreach_{name}_")
    return [
        lists(lambda x, y: f(x, y, y)),
        lists(lambda x, y: f(x, y, y, [0.5, 2.0])),
        lists(lambda x, y: in_place(x, y, y, 0.5)),
    ]


FOREACH = {
    f"torch._foreach_{n}": [_written(getattr(torch, f"_foreach_{n}_"))]
    for n in FOREACH_UNARY
    if n != "norm"
}
FOREACH |= {
    f"torch._foreach_{n}": _arithmetic(n) for n in ("add", "sub", "mul", "div")
}
FOREACH |= {
    "torch._foreach_maximum": _bounds("maximum"),
    "torch._foreach_minimum": _bounds("minimum"),
    "torch._foreach_addcdiv": _addc("addcdiv"),
    "torch._foreach_addcmul": _addc("addcmul"),
    "torch._foreach_lerp": [
        lists(lambda x, y: torch._foreach_lerp(x, y, y)),
        lists(lambda x, y: torch._foreach_lerp(x, y, [0.25, 0.75])),
        lists(lambda x, y: torch._foreach_lerp_(x, y, 0.25)),
    ],
    "torch._foreach_pow": [
        lists(lambda x, y: torch._foreach_pow(x, [2, 3])),
        lists(lambda x, y: torch._foreach_pow(x, 0.5)),
        lists(lambda x, y: torch._foreach_pow(2, y)),
        lists(lambda x, y: torch._foreach_pow_(x, y)),
    ],
    "torch._foreach_norm": [
        lists(lambda x, y: torch._foreach_norm(x, 1)),
        lists(lambda x, y: torch._foreach_norm(x, math.inf)),
        lists(lambda x, y: torch._foreach_norm(x, 2, dtype=torch.float32)),
    ],
}


# ---- normalisation and softmax ----


def _module(make, *size):
    """A batch norm over other arguments; its buffers are results."""

    def row(m):
        x = m(*size)
        module = make().to(x.dtype)

        def f(x, mean, var, n):
            state = {"running_mean": mean, "running_var": var}
            state["num_batches_tracked"] = n
            y = torch.func.functional_call(module, state, x)
            return y, mean, var, n

        count = torch.tensor(3)
        return f, [x, m(size[1]), m.p(size[1]), count]

    return row


def _batch_norms(make, *size):
    return [
        _module(lambda: make(3), *size),
        _module(lambda: make(3).eval(), *size),
        _module(lambda: make(3, affine=False, eps=1e-3), *size),
        _module(lambda: make(3, momentum=0.3), *size),
    ]


NORMS = {
    "torch.nn.BatchNorm1d": [
        *_batch_norms(torch.nn.BatchNorm1d, 4, 3, 5),
        _module(lambda: torch.nn.BatchNorm1d(3), 4, 3),
    ],
    "torch.nn.BatchNorm2d": _batch_norms(torch.nn.BatchNorm2d, 4, 3, 5, 2),
    "torch.nn.BatchNorm3d": _batch_norms(torch.nn.BatchNorm3d, 4, 3, 5, 2, 2),
    "torch._native_batch_norm_legit_no_training": [
        lambda m: (
            lambda x, c, d: aten._native_batch_norm_legit_no_training(
                x, None, None, c, d, 0.1, 1e-3
            ),
            [m(2, 3, 4), m(3), m.p(3)],
        ),
    ],
    "torch._native_batch_norm_legit": [
        over(
            lambda x: torch._native_batch_norm_legit(
                x, None, None, True, 0.1, 1e-3
            ),
            (2, 3, 4, 5),
        ),
        lambda m: (
            lambda x, w, b, c, d: torch._native_batch_norm_legit(
                x, w, b, c, d, True, 0.2, 1e-5
            ),
            [m(2, 3, 4), m(3), m(3), m(3), m.p(3)],
        ),
    ],
    "torch._softmax": [
        over(lambda x: torch._softmax(x, 0, False), (3, 5)),
        over(lambda x: torch._softmax(x, 1, False), (2, 3, 5)),
        over(lambda x: torch.softmax(x, -1, dtype=torch.float64), (3, 5)),
        over(lambda x: torch.softmax(x[0, 0], 0), (3, 5)),
    ],
    "torch._softmax_backward_data": [
        over(
            lambda g, x: torch._softmax_backward_data(
                g, x.softmax(0), 0, x.dtype
            ),
            (3, 5, 2),
            (3, 5, 2),
        ),
    ],
    "torch.native_layer_norm": [
        over(
            lambda x: torch.native_layer_norm(x, x.shape[1:], None, None, 1e-3),
            (2, 3, 5),
        ),
        over(
            lambda x, w: torch.native_layer_norm(
                x, x.shape[-1:], w, None, 1e-5
            ),
            (3, 5),
            (5,),
        ),
    ],
    "torch.nn.functional.layer_norm": [
        over(
            lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b, 1e-3),
            (2, 3, 5),
            (3, 5),
            (3, 5),
        ),
        over(lambda x, b: F.layer_norm(x, x.shape[-1:], None, b), (3, 5), (5,)),
    ],
    "torch.nn.functional.group_norm": [
        over(
            lambda x, w, b: F.group_norm(x, 2, w, b, 1e-3),
            (2, 4, 3, 5),
            (4,),
            (4,),
        ),
        over(lambda x, w: F.group_norm(x, 4, w), (2, 4), (4,)),
        over(lambda x: F.group_norm(x, 1), (2, 4, 3, 2, 2)),
    ],
    "torch.nn.LogSoftmax": [
        over(lambda x: F.log_softmax(x, 0), (2, 3, 5)),
        over(lambda x: F.log_softmax(x, -1, dtype=torch.float32), (3, 5)),
    ],
}


# ---- activations ----

ACTIVATIONS = {
    "torch.nn.functional.gelu": [
        one(lambda x: F.gelu(x, approximate="tanh")),
    ],
    "torch.nn.functional.leaky_relu": [
        one(lambda x: F.leaky_relu(x, 0.3)),
        one(lambda x: (F.leaky_relu(x, 0.2, inplace=True), x)),
        one(lambda x: F.leaky_relu(x, -0.5)),
    ],
    "torch.nn.functional.hardswish": [
        one(lambda x: (F.hardswish(x * 4, inplace=True), x)),
    ],
    "torch.nn.Threshold": [
        one(lambda x: F.threshold(x * 2, 3, 7)),
        one(lambda x: F.threshold(x, 0.5, 2.5)),
        one(lambda x: (F.threshold(x, 1, 2, inplace=True), x)),
    ],
    "sigmoid": [one(lambda x: (x * 1.0).sigmoid_())],
    "torch.sigmoid": [
        one(lambda x: (torch.sigmoid(x), x.sigmoid_())),
        two(lambda x, y: torch.sigmoid(x, out=torch.empty_like(y))),
    ],
    "torch.nn.functional.sigmoid": [one(lambda x: F.sigmoid(x * 3))],
    "torch.nn.functional.hardsigmoid": [
        one(lambda x: F.hardsigmoid(x * 4)),
        one(lambda x: (F.hardsigmoid(x, inplace=True), x)),
    ],
    "torch.nn.functional.hardtanh": [
        one(lambda x: F.hardtanh(x, -2, 1)),
        one(lambda x: F.hardtanh(x, -0.5, 0.25)),
        one(lambda x: (F.hardtanh(x, inplace=True), x)),
    ],
    "torch.nn.functional.elu": [
        one(lambda x: F.elu(x, 0.5)),
        one(lambda x: (F.elu(x, inplace=True), x)),
        one(lambda x: aten.elu(x, 1.5, 1.2, 0.7)),
    ],
    "torch.nn.functional.tanh": [
        one(lambda x: (F.tanh(x), x.tanh_())),
    ],
    "torch.nn.functional.glu": [
        over(lambda x: F.glu(x, 0), (4, 3)),
        over(lambda x: F.glu(x, -2), (2, 4, 3)),
    ],
}


# ---- images ----

X4 = (2, 2, 8, 6)
IMAGES = {
    "torch.nn.MaxPool2d": [
        over(lambda x: F.max_pool2d(x, 3, 2, 1), X4),
        over(lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0)), X4),
        over(lambda x: F.max_pool2d(x, 2, 2, 0, 2), X4),
        over(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), X4),
        over(lambda x: F.max_pool2d(x, 2, return_indices=True), X4),
        over(lambda x: F.max_pool2d(x, 2), X4[1:]),
    ],
    "torch.nn.functional.avg_pool2d": [
        over(lambda x: F.avg_pool2d(x, 3, 2, 1), X4),
        over(lambda x: F.avg_pool2d(x, (3, 2), (1, 2), (1, 0)), X4),
        over(lambda x: F.avg_pool2d(x, 3, 2, 1, True), X4),
        over(lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), X4),
        over(lambda x: F.avg_pool2d(x, 2, divisor_override=3), X4),
        over(lambda x: F.avg_pool2d(x, 2), X4[1:]),
    ],
    "torch.nn.avgpool2d": [
        over(lambda x: torch.nn.AvgPool2d(2, 2)(x), X4),
        over(lambda x: torch.nn.AvgPool2d(3, 1, 1, True, False, 5)(x), X4),
    ],
    "torch.nn.Conv2d": [
        over(lambda x, w: F.conv2d(x, w), X4, (3, 2, 3, 3)),
        over(
            lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 2)),
            X4,
            (3, 2, 3, 3),
        ),
        over(lambda x, w: F.conv2d(x, w, groups=2), X4, (4, 1, 3, 3)),
        over(lambda x, w: F.conv2d(x, w, padding="same"), X4, (3, 2, 3, 3)),
        over(lambda x, w: F.conv2d(x, w, padding="valid"), X4, (3, 2, 1, 1)),
        over(lambda x, w: F.conv2d(x, w), X4[1:], (3, 2, 3, 3)),
        over(
            lambda x, w: F.conv2d(
                F.pad(x, (1, 1, 1, 1), mode="reflect"), w
            ),
            X4,
            (3, 2, 3, 3),
        ),
    ],
    "torch.nn.Conv1d": [
        over(
            lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2), (2, 2, 9), (4, 2, 3),
            (4,),
        ),
        over(lambda x, w: F.conv1d(x, w, groups=2), (2, 2, 9), (4, 1, 3)),
        over(lambda x, w: F.conv1d(x, w, padding="same"), (2, 2, 9), (4, 2, 3)),
        over(lambda x, w: F.conv1d(x, w), (2, 9), (4, 2, 3)),
    ],
    "torch.nn.ConvTranspose1d": [
        over(
            lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1),
            (2, 2, 5), (2, 3, 3), (3,),
        ),
        over(
            lambda x, w: F.conv_transpose1d(x, w, groups=2, dilation=2),
            (2, 4, 5), (4, 3, 3),
        ),
        over(lambda x, w: F.conv_transpose1d(x, w), (2, 5), (2, 3, 3)),
    ],
    "torch.nn.ConvTranspose2d": [
        over(
            lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
            (2, 2, 4, 5), (2, 3, 3, 3), (3,),
        ),
        over(
            lambda x, w: F.conv_transpose2d(
                x, w, None, (1, 2), (0, 1), (0, 1), 2, (1, 2)
            ),
            (2, 4, 4, 5), (4, 3, 3, 2),
        ),
        over(lambda x, w: F.conv_transpose2d(x, w), (2, 4, 5), (2, 3, 3, 3)),
    ],
    "torch.nn.AdaptiveAvgPool2d": [
        over(lambda x: F.adaptive_avg_pool2d(x, [3, 5]), X4),
        over(lambda x: F.adaptive_avg_pool2d(x, [1, 1]), X4),
        over(lambda x: F.adaptive_avg_pool2d(x, [None, 4]), X4),
        over(lambda x: F.adaptive_avg_pool2d(x, 2), X4[1:]),
    ],
    "torch.nn.functional.grid_sample": [
        over(
            lambda x, g, mode=mode, pad=pad, corners=corners: F.grid_sample(
                x, g, mode, pad, corners
            ),
            (2, 2, 4, 5), (2, 3, 3, 2),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for pad in ("zeros", "border", "reflection")
        for corners in (False, True)
    ] + [
        over(
            lambda x, g: F.grid_sample(x, g, align_corners=False),
            (2, 2, 3, 4, 5), (2, 2, 3, 3, 3),
        ),
        over(
            lambda x, g, h: F.grid_sample(
                x, torch.stack([g, h], -1), align_corners=True
            ),
            (2, 2, 4, 5), (2, 3, 4), (2, 3, 4),
        ),
    ],
    "torch.nn.functional.pad": [
        one(lambda x: F.pad(x, (1, 2, 2, 1), value=3)),
        one(lambda x: F.pad(x, (-1, 2))),
        over(lambda x: F.pad(x, (1, 2), mode="reflect"), (2, 3, 4)),
        over(lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), (2, 3, 4, 5)),
        over(lambda x: F.pad(x, (1, 2), mode="circular"), (2, 3, 4)),
    ],
    "torch.constant_pad_nd": [
        one(lambda x: torch.constant_pad_nd(x, [0, 0, 1, 1])),
        one(lambda x: torch.constant_pad_nd(x, [-1, 0, 2, -1], 2)),
    ],
}  # fmt: skip


# ---- losses, products ----


def nll(f, *size, dtype=torch.int64):
    """f(x, target, weight of classes)."""
    classes = size[1] if len(size) > 1 else size[0]
    spots = (size[0], *size[2:]) if len(size) > 1 else ()
    return lambda m: (
        f, [m(*size), m.i(classes, *spots, dtype=dtype), m.p(classes)]
    )  # fmt: skip


LOSSES = {
    "torch.nn.functional.mse_loss": [
        two(lambda x, y: F.mse_loss(x, y, reduction="sum")),
        two(lambda x, y: F.mse_loss(x, y, reduction="none")),
        two(lambda x, y: F.mse_loss(x, y, weight=y)),
    ],
    "torch.nn.functional.nll_loss": [
        nll(lambda x, t, w: F.nll_loss(x, t, w), 4, 5),
        nll(lambda x, t, w: F.nll_loss(x, t, w, ignore_index=2), 4, 5),
        nll(lambda x, t, w: F.nll_loss(x, t, reduction="sum"), 4, 5),
        nll(lambda x, t, w: F.nll_loss(x, t, w, reduction="none"), 4, 5),
        nll(lambda x, t, w: F.nll_loss(x, t), 5),
        nll(lambda x, t, w: F.nll_loss(x, t, w), 2, 5, 3, 4),
    ],
    "torch.addmm": [
        over(
            lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2),
            (3, 5), (3, 4), (4, 5),
        ),
        over(lambda c, x, y: torch.addmm(c, x, y.t()), (3, 1), (3, 4), (5, 4)),
        over(
            lambda c, x, y: torch.addmm(c, x, y, beta=0), (5,), (3, 4), (4, 5)
        ),
        over(lambda c, x, y: c.addmm_(x, y), (3, 5), (3, 4), (4, 5)),
    ],
    "torch.nn.functional.embedding": [
        lambda m: (
            lambda i, w: F.embedding(i, w, padding_idx=0),
            [m.i(6, 2, 3, dtype=m.dtype), m.f(6, 4)],
        ),
        lambda m: (
            lambda i, w: F.embedding(i, w.bfloat16(), padding_idx=-1),
            [m.i(6, 5, dtype=m.dtype), m.f(6, 4)],
        ),
    ],
}  # fmt: skip


# ---- pointwise ----


def arithmetic(f, name):
    """Scalars, broadcast, another dtype, in place, out."""
    return [
        one(lambda x: (f(x, 2), f(x, 3.5))),
        over(lambda x, y: f(x, y[:1]) + f(x[:, :1], y), (3, 4), (3, 4)),
        above(lambda x, y: (f(x, y.int()), f(x.int(), y)), (3, 4), (3, 4)),
        above(lambda x, y: f(x, y.double()), (3, 4), (3, 4)),
        above(lambda x, y: (getattr(x, f"{name}_")(y), x), (3, 4), (3, 4)),
    ]


def compared(f, name):
    return [
        one(lambda x: (f(x, 1), f(x, 0.5))),
        over(lambda x, y: f(x, y[:1]), (3, 4), (3, 4)),
        above(lambda x, y: (f(x, y.int()), f(x.int(), y)), (3, 4), (3, 4)),
        above(lambda x, y: getattr(x, f"{name}_")(y), (3, 4), (3, 4)),
    ]


def in_place(name, make=one):
    return make(lambda x: (getattr(x, f"{name}_")(), x))


def _positive(f):
    return above(f, (3, 4))


POINTWISE = {
    "torch.div": [
        *arithmetic(torch.div, "div"),
        above(lambda x, y: (
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc")), *[(3, 4)] * 2),
        one(lambda x: torch.div(x, 2, rounding_mode="floor")),
        _positive(lambda x: 3 / x),
    ],
    "torch.sub": [
        *arithmetic(torch.sub, "sub"),
        two(lambda x, y: torch.sub(x, y, alpha=2)),
        one(lambda x: (torch.rsub(x, 2), 1 - x)),
    ],
    "torch.mul": arithmetic(torch.mul, "mul"),
    "torch.remainder": [
        *arithmetic(torch.remainder, "remainder"),
        _positive(lambda x: torch.remainder(7, x)),
        one(lambda x: torch.remainder(x, -3)),
    ],
    "torch.clamp": [
        one(lambda x: (x.clamp(min=1), x.clamp(max=1))),
        one(lambda x: x.clamp(0.5, 1.5)),
        two(lambda x, y: torch.clamp(x, y - 1, y)),
        two(lambda x, y: (x.clamp(min=y), x.clamp(max=y))),
        one(lambda x: (x.clamp_(1, 2), x)),
    ],
    "torch.ops.aten.floor.default": [in_place("floor")],
    "torch.abs": [in_place("abs"), one(lambda x: -abs(x))],
    "torch.ceil": [in_place("ceil"), one(lambda x: torch.ceil(x * 5))],
    "torch.exp": [in_place("exp"), one(lambda x: x.double().exp())],
    "torch.log": [in_place("log", _positive), one(lambda x: x.float().log())],
    "torch.sqrt": [
        in_place("sqrt", _positive), one(lambda x: x.float().sqrt())
    ],
    "torch.erf": [in_place("erf")],
    "torch.sgn": [in_place("sgn"), one(lambda x: torch.sgn(x * 0))],
    "torch.minimum": [
        over(lambda x, y: torch.minimum(x, y[:1]), (3, 4), (3, 4)),
        two(lambda x, y: torch.minimum(x, y.double())),
        over(lambda x, y: torch.min(x, y), (3, 4), (3, 4)),
    ],
    "torch.bitwise_and": [
        one(lambda x: (x & 1, 1 & x)),
        over(lambda x, y: x & y[:1], (3, 4), (3, 4)),
        over(lambda x, y: (x.bitwise_and_(y), x), (3, 4), (3, 4)),
        over(lambda x, y: x & y.long(), (3, 4), (3, 4)),
    ],
    "torch.bitwise_not": [in_place("bitwise_not"), one(lambda x: ~x)],
    "torch.le": compared(torch.le, "le"),
    "torch.eq": compared(torch.eq, "eq"),
    "torch.lt": compared(torch.lt, "lt"),
    "torch.ne": compared(torch.ne, "ne"),
    "torch.ge": compared(torch.ge, "ge"),
    "torch.logical_and": [
        over(lambda x, y: torch.logical_and(x, y[:1]), (3, 4), (3, 4)),
        over(lambda x, y: torch.logical_and(x, y.int()), (3, 4), (3, 4)),
        over(lambda x, y: (x.logical_and_(y), x), (3, 4), (3, 4)),
    ],
    "torch.where": [
        two(lambda x, y: torch.where(x > 0, x, 1)),
        two(lambda x, y: torch.where(x > 0, 0.5, y)),
        two(lambda x, y: torch.where(x > 0, 1, 2)),
        two(lambda x, y: torch.where(x > 0, x, y.double())),
        over(lambda x, y: torch.where(x[:, :1] > 0, x, y[:1]), *[(3, 4)] * 2),
        over(lambda x, y: torch.where(x > 0, x, y),
             *[(1, 2, 1, 2, 1, 2, 2)] * 2),
    ],
}  # fmt: skip


# ---- reductions ----

REDUCTIONS = {
    "torch.mean": [
        one(torch.mean),
        one(lambda x: x.mean(0, keepdim=True)),
        over(lambda x: x.mean((0, -1)), (2, 3, 4)),
        one(lambda x: x.mean(1, dtype=torch.float64)),
    ],
    "torch.sum": [
        one(torch.sum),
        one(lambda x: x.sum(-1, keepdim=True)),
        over(lambda x: x.sum((0, 2)), (2, 3, 4)),
        one(lambda x: x.sum(1, dtype=torch.float32)),
        one(lambda x: x.sum(dtype=torch.int64)),
        over(lambda x: x[0, 0].sum(0), (3, 4)),
    ],
    "torch.argmax": [
        one(torch.argmax),
        one(lambda x: x.argmax(-2, keepdim=True)),
        one(lambda x: x.argmax(keepdim=True)),
    ],
    "torch.cumsum": [
        one(lambda x: x.cumsum(0)),
        one(lambda x: x.cumsum(-1, dtype=torch.float64)),
        over(lambda x: x.cumsum(1), (2, 3, 4)),
        one(lambda x: (x.cumsum_(0), x)),
    ],
    "torch.logsumexp": [
        one(lambda x: x.logsumexp(0, keepdim=True)),
        over(lambda x: x.logsumexp((0, 2)), (2, 3, 4)),
    ],
    "torch.max": [
        one(lambda x: tuple(x.max(0, keepdim=True))),
        one(lambda x: tuple(x.max(-1))),
        two(lambda x, y: torch.max(x, y)),
        one(lambda x: (x.amax(0), x.amax((0, 1)))),
    ],
    "torch.sort": [
        one(lambda x: tuple(x.sort(dim=0, stable=True))),
        one(lambda x: tuple(x.sort(dim=0, descending=True, stable=True))),
        one(lambda x: x.sort(0).values),
        over(lambda x: tuple(x.sort(dim=1, stable=True)), (2, 5, 3)),
    ],
    "torch.searchsorted": [
        lambda m: (
            lambda s, v: (
                torch.searchsorted(s, v, right=True),
                torch.searchsorted(s, v, side="right"),
                torch.searchsorted(s, v, out_int32=True),
                torch.searchsorted(s, 1),
            ),
            [m(8).sort().values, m(2, 3)],
        ),
        lambda m: (
            torch.searchsorted, [m(2, 8).sort(1).values, m(2, 3)]
        ),
        lambda m: (
            lambda x, v: torch.searchsorted(x, v, sorter=x.argsort()),
            [m(8), m(3)],
        ),
    ],
}  # fmt: skip


# ---- creation ----


def like(f):
    """Of the tensor and the dtype that is tested."""
    return lambda m: (lambda x: f(x, m.dtype), [m(2, 3)])


def shaped(f):
    """The shape, strides and dtype only."""
    return lambda m: (
        lambda x: torch.zeros_like(f(x, m.dtype)), [m(2, 3)]
    )  # fmt: skip


def drawn(f):
    """Numbers of torch's generator: eager's own."""
    return lambda m: (lambda x: f(x, m.dtype), [m(2, 3)])


CREATION = {
    "torch.bernoulli": [
        lambda m: (torch.bernoulli, [m.u(3, 4)]),
        lambda m: (lambda x: torch.bernoulli(x, 0.3), [m.u(3, 4)]),
        lambda m: (lambda x: (x.bernoulli_(0.3), x), [m.u(3, 4)]),
    ],
    "torch.empty_like": [
        shaped(lambda x, d: torch.empty_like(x.t())),
        shaped(lambda x, d: torch.empty_like(x, dtype=torch.float64)),
    ],
    "torch.ops.aten.new_empty_strided.default": [
        shaped(lambda x, d: x.new_empty_strided((2, 3), (1, 2))),
        shaped(
            lambda x, d: x.new_empty_strided((4,), (1,), dtype=torch.int32)
        ),
    ],
    "torch.fill": [
        one(lambda x: torch.fill(x, 2)),
        one(lambda x: torch.fill(x, torch.tensor(3.5))),
        one(lambda x: (x.fill_(1), x)),
    ],
    "self.new_zeros(...)": [
        one(lambda x: x.new_zeros(x.shape)),
        one(lambda x: x.new_zeros((2,), dtype=torch.int32)),
        one(lambda x: x.new_zeros(())),
    ],
    "self.new_ones(...)": [
        one(lambda x: x.new_ones(x.shape)),
        one(lambda x: x.new_ones((2,), dtype=torch.float64)),
        one(lambda x: x.new_ones((0, 3))),
    ],
    "torch.arange": [
        like(lambda x, d: torch.arange(x.shape[0], dtype=d)),
        like(lambda x, d: torch.arange(2, x.shape[1] + 2, dtype=d)),
        like(lambda x, d: torch.arange(10, 1, -3, dtype=d)),
        like(lambda x, d: torch.arange(5)),
        like(lambda x, d: torch.arange(0.5, 3.0)),
    ],
    "torch.empty": [
        shaped(lambda x, d: torch.empty(x.shape, dtype=d)),
        shaped(
            lambda x, d: torch.empty(
                2, 3, 4, 5, dtype=d, memory_format=torch.channels_last
            )
        ),
    ],
    "torch.linspace": [
        like(lambda x, d: torch.linspace(-3, 10, 8, dtype=d)),
        like(lambda x, d: torch.linspace(0, 1, x.shape[0])),
        like(lambda x, d: torch.linspace(5, 5, 1)),
        like(lambda x, d: torch.linspace(5, 0, 0)),
        like(lambda x, d: torch.linspace(0, 1, 7, dtype=torch.float64)),
        like(lambda x, d: torch.linspace(x[0, 0], x[0, 1], 4)),
    ],
    "torch.new_empty": [
        shaped(lambda x, d: x.new_empty(x.shape)),
        shaped(lambda x, d: x.new_empty((2, 2), dtype=torch.int8)),
    ],
    "torch.new_full": [
        one(lambda x: x.new_full(x.shape, 3)),
        one(lambda x: x.new_full((2,), 1.5, dtype=torch.float32)),
    ],
    "torch.ones_like": [
        one(lambda x: torch.ones_like(x.t())),
        one(lambda x: torch.ones_like(x, dtype=torch.int32)),
        one(lambda x: torch.ones_like(
            x.t(), memory_format=torch.contiguous_format)),
    ],
    "torch.rand": [
        drawn(lambda x, d: torch.rand(2, 3)),
        drawn(lambda x, d: torch.rand(x.shape, dtype=torch.float64)),
        drawn(lambda x, d: torch.rand_like(x)),
    ],
    "torch.randint": [
        drawn(lambda x, d: torch.randint(9, (2, 3))),
        drawn(lambda x, d: torch.randint(-4, 9, x.shape)),
        drawn(lambda x, d: torch.randint(3, 7, (5,), dtype=torch.int32)),
        drawn(lambda x, d: torch.randint_like(x, 5)),
    ],
    "torch.randn": [
        drawn(lambda x, d: torch.randn(2, 3)),
        drawn(lambda x, d: torch.randn(40, dtype=torch.float64)),
        drawn(lambda x, d: torch.randn_like(x)),
        drawn(lambda x, d: torch.randn(x.shape)),
    ],
    "torch.zeros": [
        like(lambda x, d: torch.zeros(x.shape, dtype=d)),
        like(lambda x, d: torch.zeros((), dtype=d)),
    ],
    "torch.zeros_like": [
        one(lambda x: torch.zeros_like(x.t())),
        one(lambda x: torch.zeros_like(x, dtype=torch.bool)),
    ],
    "torch.full_like": [
        one(lambda x: torch.full_like(x, 0)),
        one(lambda x: torch.full_like(x, 2.5, dtype=torch.float64)),
        one(lambda x: torch.full_like(x, True)),
    ],
}  # fmt: skip


# ---- views ----

VIEWS = {
    "torch.ops.aten._to_copy.default": [
        one(lambda x: (x.half(), x.bfloat16(), x.bool(), x.to(torch.uint8))),
        one(lambda x: aten._to_copy(x, dtype=torch.float64)),
        over(lambda x: aten._to_copy(
            x, memory_format=torch.channels_last), (2, 3, 4, 5)),
    ],
    "torch.clone": [
        one(lambda x: x.t().clone()),
        one(lambda x: x.t().clone(memory_format=torch.contiguous_format)),
        over(lambda x: x.clone(
            memory_format=torch.channels_last), (2, 3, 4, 5)),
    ],
    "torch.Tensor.expand": [
        one(lambda x: x.expand(2, -1, -1) + x),
        over(lambda x: x.expand(3, 4), (1, 4)),
        over(lambda x: x[:1].expand_as(x), (3, 4)),
    ],
    "torch.permute": [
        over(lambda x: x.permute(2, 0, 1), (2, 3, 4)),
        over(lambda x: x.permute(-1, 1, 0) + x.permute(-1, 1, 0), (2, 3, 4)),
        over(lambda x: (x.transpose(0, 2), x.mT, x.movedim(0, 2)), (2, 3, 4)),
    ],
    "torch.t": [one(lambda x: x.t()), over(lambda x: x.t() + x, (4,))],
    "torch.ops.aten.alias.default": [one(lambda x: aten.alias(x))],
    "torch.stack": [
        two(lambda x, y: torch.stack([x, y], 1)),
        two(lambda x, y: torch.stack([x, y, x], -1)),
        two(lambda x, y: torch.stack([x.t(), y.t()])),
    ],
    "torch.unbind": [
        one(torch.unbind),
        over(lambda x: x.unbind(-1), (2, 3, 4)),
    ],
    "torch.as_strided": [
        one(lambda x: x.as_strided((2, 2), (1, 2))),
        one(lambda x: x.as_strided((3,), (0,), 2) + 1),
    ],
    "torch.as_strided_scatter": [
        one(lambda x: torch.as_strided_scatter(x, x[0], (4,), (1,))),
        one(lambda x: torch.as_strided_scatter(x, x[:2, 0], (2,), (3,), 2)),
    ],
    "torch.detach": [one(torch.detach), one(lambda x: x.detach() + x)],
    "torch.view_as_complex": [
        over(lambda x, y: torch.view_as_complex(torch.stack([x, y], -1)) * 1,
             (3, 4), (3, 4)),
        over(lambda x: torch.view_as_complex(x) * 2, (3, 4, 2)),
    ],
    "torch.view_as_real": [
        one(lambda x: torch.view_as_real(x)),
        one(lambda x: torch.view_as_real(x) + 1),
    ],
}  # fmt: skip


# ---- indexing ----

INDEXING = {
    "torch.select": [
        one(lambda x: (x.select(0, -1), x[1] + 1)),
        over(lambda x: x.select(-2, 0), (2, 3, 4)),
    ],
    "torch.ops.aten.slice.Tensor": [
        one(lambda x: x[1:]),
        one(lambda x: x[:, ::2] + 1),
        one(lambda x: (x[-2:, :-1] + 1, x[5:] + 1)),
        one(lambda x: aten.slice(x, 1, -3, 9223372036854775807, 2)),
    ],
    "torch.ops.aten.slice_backward.default": [
        one(lambda x: aten.slice_backward(
            x, [x.shape[0], x.shape[1] + 2], 1, 1, x.shape[1] + 1, 1)),
        one(lambda x: aten.slice_backward(x, [3, 9], 1, 1, 9, 2)),
    ],
    "torch.slice_scatter": [
        one(lambda x: torch.slice_scatter(x, x[:2], 0, 0, 2)),
        one(lambda x: torch.slice_scatter(x, x[:, :2], -1, 0, 4, 2)),
        one(lambda x: torch.slice_scatter(x, x[1:], 0, -2)),
    ],
    "torch.index_select": [
        with_index(lambda x, y, i: torch.index_select(x, 1, i), 4, 5),
        with_index(lambda x, y, i: torch.index_select(x, -2, i.int()), 3, 5),
        with_index(lambda x, y, i: x.index_select(0, i), 3, 0),
    ],
    "torch.ops.aten.index.Tensor": [
        with_index(lambda x, y, i: x[i], 3),
        with_index(lambda x, y, i: x[i, i], 3, 2, 2),
        with_index(lambda x, y, i: x[i[:, None], i], 3),
        with_index(lambda x, y, i: x[:, None, i - 3], 3),
        with_index(lambda x, y, i: x[i.int()], 3),
        one(lambda x: x[x[:, 0] > 0]),
        one(lambda x: x[x > 0]),
    ],
    "torch.index_add": [
        with_index(
            lambda x, y, i: torch.index_add(x, 0, i, y[: i.shape[0]]), 3
        ),
        with_index(lambda x, y, i: torch.index_add(x, 1, i, y[:, :2]), 4),
        with_index(
            lambda x, y, i: torch.index_add(x, 0, i, y[:2], alpha=2), 3
        ),
        with_index(lambda x, y, i: (x.index_add_(-1, i, y[:, :2]), x), 4),
    ],
    "torch.scatter": [
        with_index(lambda x, y, i: torch.scatter(x, 0, i, 7), 3, 1, 4),
        with_index(lambda x, y, i: torch.scatter(x, -1, i.sort(1).values % 4 * 0
                   + torch.arange(2), y), 4, 3, 2),
        with_index(lambda x, y, i: torch.scatter(
            x, 0, i, y, reduce="add"), 3, 1, 4),
        with_index(lambda x, y, i: torch.scatter(
            x, 0, i, 3, reduce="multiply"), 3, 1, 4),
        with_index(lambda x, y, i: (x.scatter_(0, i, y), x), 3, 1, 4),
    ],
    "torch.scatter_add": [
        with_index(lambda x, y, i: torch.scatter_add(x, 1, i, y), 4, 3, 4),
        with_index(lambda x, y, i: (x.scatter_add_(0, i, y), x), 3, 2, 3),
    ],
    "torch.select_scatter": [
        one(lambda x: torch.select_scatter(x, x[:, 0], 1, -1)),
    ],
    "torch.triu": [
        one(lambda x: (torch.triu(x, 1), torch.triu(x, -1))),
        over(lambda x: torch.triu(x, 2), (2, 3, 4)),
        one(lambda x: (x.triu_(), x)),
    ],
    "torch.fft.fft": [
        one(lambda x: torch.fft.fft(x, n=6)),
        one(lambda x: torch.fft.fft(x, dim=0, norm="ortho")),
        one(lambda x: torch.fft.fft(x, n=3, norm="forward") * 2),
    ],
    "torch.fft.fft2": [
        one(lambda x: torch.fft.fft2(x, s=(2, 5))),
        over(lambda x: torch.fft.fft2(x, dim=(0, 2), norm="ortho"), (2, 3, 4)),
    ],
    "torch.ops.aten.sym_size.int": [
        one(lambda x: x.reshape(x.shape[1], x.shape[0])),
        one(lambda x: x.new_zeros(x.shape[0] * 2 + x.shape[1])),
        one(lambda x: (x.shape[0], x + x.size(-1) // 2)),
    ],
    "math.ceil": [
        one(lambda x: x.new_ones(math.ceil(x.shape[1] / 3))),
        one(lambda x: math.ceil(x.shape[0] * 1.5)),
    ],
    "torch.sym_sum": [
        one(lambda x: x + torch.sym_sum([x.shape[0], x.shape[1]])),
        one(lambda x: torch.sym_sum([x.shape[0], x.shape[1], 3])),
    ],
}  # fmt: skip

VARIANTS = {
    **FOREACH,
    **NORMS,
    **ACTIVATIONS,
    **IMAGES,
    **LOSSES,
    **POINTWISE,
    **REDUCTIONS,
    **CREATION,
    **VIEWS,
    **INDEXING,
}
