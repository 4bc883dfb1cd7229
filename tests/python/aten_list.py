"""The supported ATen list of graph mode: each of its 151 rows as printed, with
its dtypes and a call.

A row is (name, dtypes, function of the maker m). m(2, 3) makes a tensor of the
dtype, m.i(n, *size) integers below n, m.p(...) one above zero, m.u(...) one
with parts of 1. `grad=True` rows are run backward too. More calls of a row are
in aten_variants.py, the rows of the engine that they become in aten_rows.txt.
"""

import math
from pathlib import Path

import torch
import torch.nn.functional as F

H, B, S, D = "float16", "bfloat16", "float32", "float64"
FLOAT = (B, H, S)
SMALL = ("uint8", "int8", "int16", "int32", "int64")
COMPLEX = ("complex64", "complex128")
NO8 = ("uint8", "int8", "int32", "int64")  # no int16

FOREACH_UNARY = {
    "abs": FLOAT, "acos": FLOAT, "asin": FLOAT, "atan": FLOAT, "ceil": FLOAT,
    "cos": FLOAT, "cosh": FLOAT, "erf": FLOAT, "erfc": FLOAT, "exp": FLOAT,
    "expm1": FLOAT, "floor": (*FLOAT, *NO8), "frac": FLOAT,
    "log": FLOAT, "log10": FLOAT, "log1p": FLOAT, "log2": FLOAT,
    "norm": FLOAT, "round": (*FLOAT, "int32", "int64"), "sigmoid": FLOAT,
    "sin": FLOAT, "sinh": FLOAT, "tan": FLOAT, "tanh": FLOAT, "trunc": FLOAT,
}  # fmt: skip
_FOREACH_OTHER = {
    "add": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 2)),
    "sub": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 2)),
    "mul": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 3)),
    "div": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 2)),
    "maximum": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 1)),
    "minimum": ((*FLOAT, "int32"), lambda f, a, b: f(a, b) + f(a, 1)),
    "addcdiv": ((B, S), lambda f, a, b: f(a, b, b, 0.5)),
    "addcmul": ((B, S), lambda f, a, b: f(a, b, b, 0.5)),
    "lerp": (FLOAT, lambda f, a, b: f(a, b, 0.25)),
    "pow": (FLOAT, lambda f, a, b: f(a, 2) + f(a, b)),
}


def _unary(name):
    f = getattr(torch, f"_foreach_{name}")
    return lambda m: (lambda a, b: f([a, b]), [m.u(2, 3), m.u(4)])


def _other(name, call):
    f = getattr(torch, f"_foreach_{name}")
    return lambda m: (
        lambda a, b, c, d: call(f, [a, b], [c, d]),
        [m.p(2, 3), m.p(4), m.p(2, 3), m.p(4)],
    )


FOREACH = [
    (f"torch._foreach_{n}", d, _unary(n)) for n, d in FOREACH_UNARY.items()
] + [
    (f"torch._foreach_{n}", d, _other(n, c))
    for n, (d, c) in _FOREACH_OTHER.items()
]


def _norm(make, *size):
    """A module in training, by dtype."""

    def row(m):
        x = m(*size)
        module = make().to(x.dtype)
        return lambda x: module(x), [x]

    return row


def _batch_norm(training, stats):
    aten = torch.ops.aten
    if not training:
        f = aten._native_batch_norm_legit_no_training
        return lambda m: (
            lambda x, w, b, c, d: f(x, w, b, c, d, 0.1, 1e-5)[0],
            [m(2, 3, 4), m(3), m(3), m(3), m.p(3)],
        )
    f = aten._native_batch_norm_legit.no_stats
    return lambda m: (
        lambda x, w, b: f(x, w, b, True, 0.1, 1e-5)[0],
        [m(2, 3, 4), m(3), m(3)],
    )


NORMS = [
    ("torch.nn.BatchNorm1d", (H, S),
     _norm(lambda: torch.nn.BatchNorm1d(3), 4, 3, 5)),
    ("torch.nn.BatchNorm2d", (H, S),
     _norm(lambda: torch.nn.BatchNorm2d(3), 4, 3, 5, 2)),
    ("torch.nn.BatchNorm3d", (H, S),
     _norm(lambda: torch.nn.BatchNorm3d(3), 4, 3, 5, 2, 2)),
    ("torch._native_batch_norm_legit_no_training", (H, S),
     _batch_norm(False, True)),
    ("torch._softmax", (S,),
     lambda m: (lambda x: torch._softmax(x, -1, False), [m(3, 5)])),
    ("torch._softmax_backward_data", (S,),
     lambda m: (lambda g, x: torch._softmax_backward_data(
         g, x.softmax(1), 1, x.dtype), [m(3, 5), m(3, 5)])),
    ("torch.native_layer_norm", FLOAT,
     lambda m: (lambda x, w, b: torch.native_layer_norm(
         x, [5], w, b, 1e-5)[0], [m(3, 5), m(5), m(5)])),
    ("torch.nn.functional.layer_norm", FLOAT,
     lambda m: (lambda x: F.layer_norm(x, [5]), [m(3, 5)])),
    ("torch.nn.functional.group_norm", FLOAT,
     lambda m: (lambda x: F.group_norm(x, 2), [m(2, 4, 3)])),
    ("torch._native_batch_norm_legit", (H, S), _batch_norm(True, False)),
    ("torch.nn.LogSoftmax", FLOAT,
     lambda m: (lambda x: F.log_softmax(x, 1), [m(3, 5)])),
]  # fmt: skip


def one(f, *size):
    return lambda m: (f, [m(*(size or (3, 4)))])


def two(f, *size):
    size = size or (3, 4)
    return lambda m: (f, [m(*size), m.p(*size)])


ACTIVATIONS = [
    ("torch.nn.functional.gelu", FLOAT, one(F.gelu)),
    ("torch.nn.functional.hardswish", FLOAT, one(F.hardswish), True),
    ("torch.nn.functional.leaky_relu", FLOAT, one(F.leaky_relu)),
    ("torch.nn.Threshold", (S, *SMALL),
     one(lambda x: F.threshold(x, 1, 2))),
    ("sigmoid", (H, S, "int8", "int32", "int64"), one(lambda x: x.sigmoid())),
    ("torch.sigmoid", (*FLOAT, D), one(torch.sigmoid)),
    ("torch.nn.functional.hardsigmoid", (H, S), one(F.hardsigmoid)),
    ("torch.nn.functional.sigmoid", (*FLOAT, D), one(torch.sigmoid)),
    ("torch.nn.functional.hardtanh", (*FLOAT, D, "int32", "int64"),
     one(F.hardtanh), True),
    ("torch.nn.functional.elu", (H, S), one(F.elu)),
    ("torch.nn.functional.tanh", FLOAT, one(torch.tanh)),
    ("torch.nn.functional.glu", (H, S), one(F.glu), True),
]  # fmt: skip


def _layer(f, *sizes):
    return lambda m: (f, [m(*s) for s in sizes])


IMAGES = [
    ("torch.nn.MaxPool2d", FLOAT,
     _layer(lambda x: F.max_pool2d(x, 2), (1, 2, 6, 6)), True),
    ("torch.nn.functional.avg_pool2d", (H, S),
     _layer(lambda x: F.avg_pool2d(x, 2), (1, 2, 6, 6)), True),
    ("torch.nn.avgpool2d", (H, S),
     _layer(lambda x: F.avg_pool2d(x, 3, 1), (1, 2, 6, 6))),
    ("torch.nn.Conv2d", (H, S),
     _layer(lambda x, w, b: F.conv2d(x, w, b, padding=1),
            (1, 2, 5, 5), (3, 2, 3, 3), (3,))),
    ("torch.nn.Conv1d", (H, S),
     _layer(lambda x, w: F.conv1d(x, w), (1, 2, 7), (3, 2, 3))),
    ("torch.nn.ConvTranspose1d", (H, S),
     _layer(lambda x, w: F.conv_transpose1d(x, w, stride=2),
            (1, 2, 5), (2, 3, 3))),
    ("torch.nn.ConvTranspose2d", (H, S),
     _layer(lambda x, w: F.conv_transpose2d(x, w), (1, 2, 4, 4),
            (2, 3, 3, 3))),
    ("torch.nn.AdaptiveAvgPool2d", (H, S),
     _layer(lambda x: F.adaptive_avg_pool2d(x, [2, 3]), (1, 2, 6, 6))),
    ("torch.nn.functional.grid_sample", (H, S, D),
     _layer(lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
            (1, 2, 4, 4), (1, 3, 3, 2))),
    ("torch.nn.functional.pad", (*FLOAT, "int16", "int32", "int64"),
     one(lambda x: F.pad(x, (1, 2)))),
    ("torch.constant_pad_nd", (*FLOAT, "int32", "int64", "bool"),
     one(lambda x: torch.constant_pad_nd(x, [1, 0, 2, 1], 1))),
]  # fmt: skip


def _nll(m):
    return (lambda x, t: F.nll_loss(x, t)), [m(4, 5), m.i(5, 4)]


LOSSES = [
    ("torch.nn.functional.mse_loss", (H, S), two(F.mse_loss), True),
    ("torch.nn.functional.nll_loss", FLOAT, _nll, True),
    ("torch.addmm", (H, S), _layer(torch.addmm, (5,), (3, 4), (4, 5))),
    ("torch.nn.functional.embedding", ("int32", "int64"),
     lambda m: (F.embedding, [m.i(6, 2, 3, dtype=m.dtype), m.f(6, 4)])),
]  # fmt: skip
POINTWISE = [
    ("torch.div", (*FLOAT, *SMALL, "bool"), two(torch.div)),
    ("torch.sub", (*FLOAT, D, *SMALL), two(torch.sub)),
    ("torch.mul", (*FLOAT, *SMALL, "bool", *COMPLEX), two(torch.mul)),
    ("torch.clamp", (*FLOAT, *SMALL), one(lambda x: x.clamp(1, 2))),
    ("torch.ops.aten.floor.default", (H, S), one(torch.ops.aten.floor.default)),
    ("torch.abs", (H, S, *SMALL), one(torch.abs)),
    ("torch.ceil", (H, S), one(torch.ceil)),
    ("torch.exp", (*FLOAT, "int64", "bool", *COMPLEX), one(torch.exp)),
    ("torch.log", (*FLOAT, "int64", "bool", *COMPLEX),
     lambda m: (torch.log, [m.p(3, 4)])),
    ("torch.minimum", (*FLOAT, *SMALL, "bool"), two(torch.minimum)),
    ("torch.remainder", (H, S, "int32", "int64"), two(torch.remainder)),
    ("torch.sgn", (*FLOAT, "int32"), one(torch.sgn)),
    ("torch.sqrt", (*FLOAT, *SMALL, "bool", *COMPLEX),
     lambda m: (torch.sqrt, [m.p(3, 4)])),
    ("torch.erf", FLOAT, one(torch.erf)),
    ("torch.bitwise_and", (*SMALL, "bool"), two(torch.bitwise_and)),
    ("torch.bitwise_not", (*SMALL, "bool"), one(torch.bitwise_not)),
    ("torch.le", (*FLOAT, *SMALL, "bool"), two(torch.le)),
    ("torch.where", (H, S, D, *SMALL, "bool"),
     two(lambda x, y: torch.where(x > 0, x, y))),
    ("torch.eq", (*FLOAT, *NO8, "bool"), two(torch.eq)),
    ("torch.lt", (*FLOAT, *NO8), two(torch.lt)),
    ("torch.ne", (*FLOAT, *SMALL, "bool", *COMPLEX), two(torch.ne)),
    ("torch.ge", (*FLOAT, D, *SMALL, "bool"), two(torch.ge)),
    ("torch.logical_and", (*FLOAT, D, *SMALL, "bool", *COMPLEX),
     two(torch.logical_and)),
]  # fmt: skip


def _searched(m):
    return torch.searchsorted, [m(8).sort().values, m(3)]


REDUCTIONS = [
    ("torch.mean", (*FLOAT, *COMPLEX), one(lambda x: x.mean(1))),
    ("torch.sum", (*FLOAT, *SMALL, "bool"), one(lambda x: x.sum(0))),
    ("torch.argmax", (*FLOAT, D, *SMALL), one(lambda x: x.argmax(1))),
    ("torch.cumsum", (*FLOAT, "int8", "int16", "int32", "int64", "bool"),
     one(lambda x: x.cumsum(1))),
    ("torch.logsumexp", (H, S, *SMALL, "bool"), one(lambda x: x.logsumexp(1))),
    ("torch.max", (*FLOAT, "int64", "bool"),
     one(lambda x: (x.max(), x.max(1).values))),
    ("torch.sort", (H, S, *SMALL),
     one(lambda x: x.sort(dim=1, stable=True))),
    ("torch.searchsorted", (H, S, *SMALL), _searched),
]  # fmt: skip


def shapes(f, fills=True):
    """What a random or empty call gives, without the values."""
    return lambda m: (
        lambda x: tuple(
            t * 0 if fills else torch.zeros_like(t) for t in (f(x, m.dtype),)
        ),
        [m(2, 3)],
    )


def new(f):
    return lambda m: (lambda x: f(x, m.dtype), [m(2, 3)])


CREATION = [
    ("torch.bernoulli", (H, S),
     lambda m: (torch.bernoulli, [(m(3, 4) > 0).to(m.dtype)])),
    ("torch.empty_like", (H, S, *SMALL),
     shapes(lambda x, d: torch.empty_like(x), False)),
    ("torch.ops.aten.new_empty_strided.default", (S,),
     shapes(lambda x, d: x.new_empty_strided((2, 3), (3, 1)), False)),
    ("torch.fill", (*FLOAT, *SMALL, "bool", *COMPLEX),
     one(lambda x: torch.fill(x, 1))),
    ("self.new_zeros(...)", (*FLOAT, D, *SMALL, "bool", *COMPLEX),
     one(lambda x: x.new_zeros(2, 2))),
    ("self.new_ones(...)", (*FLOAT, D, *SMALL, "bool"),
     one(lambda x: x.new_ones(2, 2))),
    ("torch.arange", (*FLOAT, "int32", "int64"),
     new(lambda x, d: torch.arange(1, 7, 2, dtype=d) + x.shape[0])),
    ("torch.empty", (H, S, *SMALL),
     shapes(lambda x, d: torch.empty(2, 3, dtype=d), False)),
    ("torch.linspace", (S,),
     new(lambda x, d: torch.linspace(0, 1, 5) + x.sum())),
    ("torch.new_empty", (S,), shapes(lambda x, d: x.new_empty(3), False)),
    ("torch.new_full", ("int64",), one(lambda x: x.new_full((2,), 7))),
    ("torch.ones_like", (*FLOAT, *SMALL, "bool"), one(torch.ones_like)),
    ("torch.rand", (S,), shapes(lambda x, d: torch.rand(2, 3))),
    ("torch.randint", ("int64",),
     shapes(lambda x, d: torch.randint(9, (2, 3)))),
    ("torch.randn", (S,), shapes(lambda x, d: torch.randn(2, 3))),
    ("torch.zeros", (H, S, D, *SMALL),
     new(lambda x, d: torch.zeros(3, dtype=d))),
    ("torch.zeros_like", (*FLOAT, *SMALL, "bool", *COMPLEX),
     one(torch.zeros_like)),
    ("torch.full_like",
     (H, S, "uint8", "int16", "int32", "int64", "bool", *COMPLEX),
     one(lambda x: torch.full_like(x, 1))),
]  # fmt: skip
VIEWS = [
    ("torch.ops.aten._to_copy.default", (*FLOAT, *SMALL, "bool"),
     one(lambda x: (x.to(torch.float32), x.to(torch.int64)))),
    ("torch.clone", (*FLOAT, *SMALL), one(torch.clone)),
    ("torch.Tensor.expand", (*FLOAT, "int16", "int32", "int64"),
     one(lambda x: x.expand(2, 3, 4).clone())),
    ("torch.permute", (*FLOAT, *SMALL, "bool", *COMPLEX),
     one(lambda x: x.permute(1, 0).clone())),
    ("torch.t", (*FLOAT, *SMALL), one(lambda x: x.t().clone())),
    ("torch.ops.aten.alias.default", (*FLOAT, D, *SMALL, "bool"),
     one(lambda x: torch.ops.aten.alias.default(x).clone())),
    ("torch.stack", (*FLOAT, D, *SMALL), two(lambda x, y: torch.stack([x, y]))),
    ("torch.unbind", (*FLOAT, D, *SMALL, "bool"),
     one(lambda x: [y.clone() for y in x.unbind(1)])),
    ("torch.as_strided", (S,),
     one(lambda x: x.as_strided((2, 2), (2, 1), 1).clone())),
    ("torch.as_strided_scatter", (*FLOAT, D, *SMALL, "bool", *COMPLEX),
     one(lambda x: torch.as_strided_scatter(
         x, x[:2, :2], (2, 2), (4, 1), 1))),
    ("torch.detach", (*FLOAT, *SMALL, "bool"),
     one(lambda x: x.detach().clone())),
    ("torch.view_as_complex", (S, D),
     one(lambda x: torch.view_as_complex(x).clone(), 3, 2)),
    ("torch.view_as_real", ("complex64",),
     one(lambda x: torch.view_as_real(x).clone())),
]  # fmt: skip


def indexed(f, n=3, *size):
    """f(x, index below n)."""
    return lambda m: (f, [m(3, 4), m.i(n, *(size or (2,)))])


INDEXING = [
    ("torch.select", (S,), one(lambda x: x.select(1, 2).clone())),
    ("torch.ops.aten.slice.Tensor", FLOAT, one(lambda x: x[:, 1:3].clone())),
    ("torch.ops.aten.slice_backward.default", FLOAT,
     one(lambda x: torch.ops.aten.slice_backward.default(
         x, [5, 4], 0, 1, 4, 1))),
    ("torch.slice_scatter", (*FLOAT, D, *SMALL, "bool"),
     one(lambda x: torch.slice_scatter(x, x[:, :2], 1, 1, 3))),
    ("torch.index_select", (*FLOAT, D, *SMALL, "bool"),
     indexed(lambda x, i: x.index_select(0, i))),
    ("torch.ops.aten.index.Tensor", (H, S, *NO8, "bool"),
     indexed(lambda x, i: x[:, i])),
    ("torch.index_add", (H, S, "int64", "bool"),
     indexed(lambda x, i: torch.index_add(x, 0, i, x[:2]))),
    ("torch.scatter", ("int16", "int32", "int64"),
     indexed(lambda x, i: torch.scatter(x, 0, i, x), 3, 1, 4)),
    ("torch.scatter_add", (*FLOAT, D, *SMALL, "bool"),
     indexed(lambda x, i: torch.scatter_add(x, 0, i, x), 3, 2, 4)),
    ("torch.select_scatter", (H, S, *SMALL, "bool"),
     one(lambda x: torch.select_scatter(x, x[0], 0, 1))),
    ("torch.triu", (*FLOAT, *SMALL, "bool"), one(torch.triu)),
    ("torch.fft.fft", ("complex64",), one(torch.fft.fft)),
    ("torch.fft.fft2", ("complex64",), one(torch.fft.fft2)),
    ("torch.ops.aten.sym_size.int", (*FLOAT, *SMALL),
     one(lambda x: x + x.shape[0])),
    ("math.ceil", (*FLOAT, D),
     one(lambda x: x + math.ceil(x.shape[0] / 2))),
    ("torch.sym_sum", (*FLOAT, D, *SMALL, "bool", *COMPLEX),
     one(lambda x: x.new_zeros(torch.sym_sum(x.shape)))),
]  # fmt: skip

ROWS = [
    *FOREACH,
    *NORMS,
    *ACTIVATIONS,
    *IMAGES,
    *LOSSES,
    *POINTWISE,
    *REDUCTIONS,
    *CREATION,
    *VIEWS,
    *INDEXING,
]

# Calls that run on torch's kernels, and why. All others are the engine's in
# float32 (or their first dtype).
HOST = {
    "torch._foreach_norm": "with dtype=",
    "torch.linspace": "with ends that are tensors",
    "torch.fft.fft": "transforms",
    "torch.fft.fft2": "transforms",
}

# Rows with calls that are several graphs.
BREAKS = {"torch.ops.aten.index.Tensor", "torch.sym_sum"}


# Rows of aten_rows.txt that are others in torch 2.14, whose Dynamo leaves
# these calls as they are, and in torch 2.11.
SINCE_2_14 = {"torch._foreach_lerp": "copy_, lerp.Scalar, lerp.Tensor"}
TILL_2_12 = {
    "torch._foreach_lerp": "add.Tensor, copy_, lerp.Scalar, lerp.Tensor, "
    "mul.Scalar, sub.Tensor"
}


def computed_by():
    """Rows of the engine that the calls of a row of the list become."""
    text = (Path(__file__).parent / "aten_rows.txt").read_text()
    return dict(line.split(" | ") for line in text.splitlines())
