"""Single operators in turns with eager: one compiled call of each, dtypes and
shapes as models have them, one thread, CPU time.

    operators.py [CASE ...] [--below 0.95] [--seconds 0.2]

A row is printed for what is slower than --below times eager, then the geometric
mean. CASE is a part of a case's name, as "cumsum" or "sum.*i64"; calls have
Dynamo's guards in them, so a case works on at least 16K elements or says so.
"""

import argparse
import math
import re
import statistics
import time
import warnings

import torch
import torch.nn.functional as F
from backends import BACKENDS, OURS

DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}
FLOATS = "f32 bf16 f64"
INTS = "u8 i32 i64"
NUMBERS = FLOATS + " " + INTS
SIZE = 512 * 512


def tensor(dtype, *shape):
    """Values between -50 and 50 of integers, of the normal distribution."""
    kind = DTYPES[dtype]
    if kind == torch.bool:
        return torch.rand(shape) > 0.5
    if kind.is_floating_point:
        return torch.randn(shape).to(kind)
    low = 0 if kind == torch.uint8 else -50
    return torch.randint(low, 50, shape).to(kind)


def places(count, *shape):
    return torch.randint(0, count, shape)


CASES = {}


def case(name, dtypes, function, *shapes):
    """function of tensors of these shapes; a shape that is a function makes
    the argument itself, of the dtype."""
    for dtype in dtypes.split():
        CASES[f"{name} {dtype}"] = (dtype, function, shapes)


def unary(name, dtypes, function):
    case(name, dtypes, function, (512, 512))


def binary(name, dtypes, function):
    case(name, dtypes, function, (512, 512), (512, 512))


def positive(dtype):
    """Divisors and shifts: 1 to 7."""
    return torch.randint(1, 8, (512, 512)).to(DTYPES[dtype])


def pointwise():
    for name in ["add", "mul", "maximum", "eq", "lt"]:
        binary(name, NUMBERS + " i8", getattr(torch, name))
    binary("where", NUMBERS, lambda a, b: torch.where(a > b, a, b))
    for name in ["neg", "abs", "sign", "square"]:
        unary(name, FLOATS + " i32 i64", getattr(torch, name))
    for name in [
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "tanh",
        "sigmoid",
        "erf",
        "sin",
        "floor",
        "round",
        "reciprocal",
        "log1p",
    ]:
        unary(
            name,
            FLOATS,
            lambda a, n=name: getattr(torch, n)(a.abs() + 0.5),
        )
    for name in [
        "relu",
        "gelu",
        "silu",
        "hardswish",
        "softplus",
        "elu",
        "leaky_relu",
    ]:
        unary(name, FLOATS, getattr(F, name))
    unary("isnan", FLOATS, torch.isnan)
    unary("clamp", NUMBERS, lambda a: a.clamp(3, 20))
    unary("pow 2", FLOATS + " i64", lambda a: a**2)
    unary("pow 3", FLOATS + " i64", lambda a: a**3)
    unary("pow 2.5", FLOATS, lambda a: a.abs() ** 2.5)
    binary("pow", FLOATS, lambda a, b: a.abs() ** b)
    binary("atan2", FLOATS, torch.atan2)
    for name in ["div", "fmod", "remainder", "floor_divide"]:
        case(name, NUMBERS, getattr(torch, name), (512, 512), positive)
    for name in ["bitwise_and", "bitwise_xor", "bitwise_left_shift"]:
        case(name, INTS, getattr(torch, name), (512, 512), positive)
    binary("logical_and", "bool f32 i64", torch.logical_and)
    unary("logical_not", "bool f32 i64", torch.logical_not)
    case(
        "lerp",
        FLOATS,
        lambda a, b: torch.lerp(a, b, 0.3),
        (512, 512),
        (512, 512),
    )
    case(
        "addcmul",
        FLOATS,
        lambda a, b, c: torch.addcmul(a, b, c, value=0.5),
        (512, 512),
        (512, 512),
        (512, 512),
    )
    case("add row", NUMBERS, torch.add, (512, 512), (512,))
    case("add column", NUMBERS, torch.add, (512, 512), (512, 1))
    case(
        "add transposed",
        NUMBERS,
        lambda a, b: a + b.t(),
        (512, 512),
        (512, 512),
    )
    case(
        "masked_fill",
        NUMBERS,
        lambda a, m: a.masked_fill(m > 0, 3),
        (512, 512),
        lambda dtype: places(2, 512, 512) > 0,
    )
    case(
        "where of a row",
        NUMBERS,
        lambda m, a: torch.where(m, a, 0),
        lambda dtype: places(2, 1, 512) > 0,
        (512, 512),
    )
    for source in [
        "f32",
        "bf16",
        "f16",
        "f64",
        "i8",
        "u8",
        "i32",
        "i64",
        "bool",
    ]:
        for name in [
            "f32",
            "bf16",
            "f16",
            "f64",
            "i8",
            "u8",
            "i32",
            "i64",
            "bool",
        ]:
            if source != name:
                case(
                    f"to {name} from",
                    source,
                    lambda a, to=DTYPES[name]: a.to(to),
                    (512, 512),
                )


def reductions():
    where = {"all": {}, "rows": {"dim": 1}, "columns": {"dim": 0}}
    for name in [
        "sum",
        "mean",
        "amax",
        "prod",
        "any",
        "var",
        "std",
        "logsumexp",
        "argmax",
        "norm",
    ]:
        function = getattr(torch, name)
        dtypes = FLOATS
        if name in "sum amax argmax prod any":
            dtypes = NUMBERS + " bool" * (name in "sum any")
        for place, dim in where.items():
            if place == "all" and name == "logsumexp":
                continue
            unary(
                f"{name} of {place}",
                dtypes,
                lambda a, f=function, d=dim: f(a, **d),
            )
    for dim in (1, 2):
        case(
            f"sum of dim {dim} of 4",
            FLOATS + " i64",
            lambda a, d=dim: a.sum(d),
            (8, 32, 64, 32),
        )
        case(
            f"mean of maps, dims {dim}",
            FLOATS,
            lambda a: a.mean((2, 3)),
            (8, 64, 7 * dim, 7 * dim),
        )
    for name in ["cumsum", "cumprod"]:
        for dim in (0, 1):
            unary(
                f"{name} {dim}",
                FLOATS + " i64",
                lambda a, d=dim, n=name: getattr(torch, n)(a, d),
            )
    unary("cummax 1", "f32 i64", lambda a: a.cummax(1)[0])
    unary("max of rows", NUMBERS, lambda a: a.max(1))
    unary("max of columns", NUMBERS, lambda a: a.max(0))
    unary("softmax 0", FLOATS, lambda a: a.softmax(0))
    unary("softmax 1", FLOATS + " f16", lambda a: a.softmax(1))
    unary("log_softmax", FLOATS, lambda a: a.log_softmax(1))
    unary("normalize", FLOATS, lambda a: F.normalize(a, dim=1))
    for rows, columns in ((512, 64), (512, 768), (32, 4096)):
        size = f"{rows}x{columns}"
        case(
            f"layer_norm {size}",
            FLOATS,
            lambda a, w, b: F.layer_norm(a, a.shape[1:], w, b),
            (rows, columns),
            (columns,),
            (columns,),
        )
        case(
            f"rms_norm {size}",
            FLOATS,
            lambda a, w: F.rms_norm(a, a.shape[1:], w),
            (rows, columns),
            (columns,),
        )
        case(
            f"layer_norm backward {size}",
            "f32 f64",
            norm_gradients,
            (rows, columns),
            (columns,),
            (columns,),
        )
    case(
        "group_norm",
        FLOATS,
        lambda a, w, b: F.group_norm(a, 8, w, b),
        (4, 64, 28, 28),
        (64,),
        (64,),
    )
    for size in (7, 28):
        case(
            f"batch_norm {size}",
            FLOATS,
            lambda a, m, w, b: F.batch_norm(a, m, m.abs() + 1, w, b),
            (4, 64, size, size),
            (64,),
            (64,),
            (64,),
        )
        case(
            f"batch_norm training {size}",
            FLOATS,
            lambda a, w, b: F.batch_norm(a, None, None, w, b, True),
            (4, 64, size, size),
            (64,),
            (64,),
        )
        case(
            f"batch_norm backward {size}",
            FLOATS,
            batch_norm_gradients,
            (4, 64, size, size),
            (64,),
            (64,),
            (64,),
            (64,),
        )
    case(
        "cross_entropy",
        FLOATS,
        lambda a, t: F.cross_entropy(a, t),
        (256, 1000),
        lambda dtype: places(1000, 256),
    )
    binary("mse_loss", FLOATS, F.mse_loss)
    binary("cosine_similarity", FLOATS, F.cosine_similarity)
    case("cdist", "f32 f64", torch.cdist, (128, 64), (128, 64))


def norm_gradients(a, w, b):
    mean, rstd = a[:, :1], a[:, 1:2]
    return torch.ops.aten.native_layer_norm_backward(
        a, a, a.shape[1:], mean, rstd, w, b, [True, True, True]
    )


def batch_norm_gradients(a, w, m, s, b):
    return torch.ops.aten.native_batch_norm_backward(
        a, a, w, m, s, m, s, True, 1e-5, [True, True, True]
    )


def movements():
    moved = "f32 bf16 f64 u8 i64 bool"
    unary("clone", moved, lambda a: a.clone())
    unary("transpose", moved, lambda a: a.t().contiguous())
    case(
        "permute nhwc",
        moved,
        lambda a: a.permute(0, 2, 3, 1).contiguous(),
        (4, 64, 32, 32),
    )
    case(
        "permute heads",
        moved,
        lambda a: a.transpose(1, 2).contiguous(),
        (4, 64, 8, 64),
    )
    unary("flip rows", moved, lambda a: a.flip(0))
    unary("flip columns", moved, lambda a: a.flip(1))
    unary("flip transposed", moved, lambda a: a.t().flip(0))
    unary("roll", moved, lambda a: a.roll(3, 1))
    unary("roll both", moved, lambda a: a.roll((3, 5), (0, 1)))
    unary("repeat", moved, lambda a: a.repeat(2, 2))
    unary("repeat_interleave", moved, lambda a: a.repeat_interleave(2, 0))
    case(
        "repeat_interleave 1",
        moved,
        lambda a: a.repeat_interleave(2, 1),
        (512, 512),
    )
    unary("tril", moved, torch.tril)
    unary("triu", moved, torch.triu)
    case("cat 0", moved, lambda a, b: torch.cat([a, b]), (64, 64), (64, 64))
    case("cat 1", moved, lambda a, b: torch.cat([a, b], 1), (64, 64), (64, 64))
    case(
        "cat large",
        moved,
        lambda a, b: torch.cat([a, b], 1),
        (256, 512),
        (256, 512),
    )
    case(
        "stack",
        moved,
        lambda a, b: torch.stack([a, b], -1),
        (256, 512),
        (256, 512),
    )
    unary("split", moved, lambda a: [t.clone() for t in a.chunk(4, 1)])
    unary("pad", moved, lambda a: F.pad(a, (1, 1, 1, 1)))
    case(
        "pad reflect",
        "f32 bf16 f64",
        lambda a: F.pad(a, (2, 2, 2, 2), mode="reflect"),
        (4, 16, 64, 64),
    )
    case(
        "pad replicate",
        "f32 bf16 f64",
        lambda a: F.pad(a, (2, 2, 2, 2), mode="replicate"),
        (4, 16, 64, 64),
    )
    case(
        "pad circular",
        "f32 bf16 f64",
        lambda a: F.pad(a, (2, 2, 2, 2), mode="circular"),
        (4, 16, 64, 64),
    )
    case("slice steps", moved, lambda a: a[:, ::2].clone(), (512, 1024))
    case(
        "pixel_shuffle", moved, lambda a: F.pixel_shuffle(a, 2), (4, 64, 32, 32)
    )
    case("unfold", FLOATS, lambda a: F.unfold(a, 3, padding=1), (4, 16, 32, 32))
    case(
        "fold",
        FLOATS,
        lambda a: F.fold(a, (32, 32), 3, padding=1),
        (4, 144, 1024),
    )
    case(
        "unfold windows",
        FLOATS,
        lambda a: a.unfold(1, 16, 8).contiguous(),
        (64, 4096),
    )
    case(
        "diagonal",
        moved,
        lambda a: a.diagonal(dim1=1, dim2=2).clone(),
        (512, 64, 64),
    )
    unary("diff", FLOATS + " i64", lambda a: a.diff())
    case(
        "meshgrid",
        FLOATS,
        lambda a, b: torch.meshgrid(a, b, indexing="ij")[0].contiguous(),
        (512,),
        (512,),
    )


def indexing():
    moved = "f32 bf16 f64 i64"
    index = lambda dtype: places(512, 512)  # noqa: E731
    table = lambda dtype: places(512, 512, 512)  # noqa: E731
    mask = lambda dtype: places(2, 512, 512) > 0  # noqa: E731
    case(
        "index_select 0",
        moved,
        lambda a, i: a.index_select(0, i),
        (512, 512),
        index,
    )
    case(
        "index_select 1",
        moved,
        lambda a, i: a.index_select(1, i),
        (512, 512),
        index,
    )
    case("index rows", moved, lambda a, i: a[i], (512, 512), index)
    case(
        "index pairs",
        moved,
        lambda a, i: a[i, i.flip(0)],
        (512, 512),
        lambda dtype: places(512, 32768),
    )
    case("gather 0", moved, lambda a, i: a.gather(0, i), (512, 512), table)
    case("gather 1", moved, lambda a, i: a.gather(1, i), (512, 512), table)
    case(
        "take_along last",
        moved,
        lambda a, i: a.gather(1, i),
        (4096, 512),
        lambda dtype: places(512, 4096, 1),
    )
    case(
        "scatter 1",
        moved,
        lambda a, i, b: a.scatter(1, i, b),
        (512, 512),
        table,
        (512, 512),
    )
    case(
        "scatter value",
        moved,
        lambda a, i: a.scatter(1, i, 1),
        (512, 512),
        lambda dtype: places(512, 512, 1),
    )
    case(
        "scatter_add 0",
        moved,
        lambda a, i, b: a.scatter_add(0, i, b),
        (512, 512),
        table,
        (512, 512),
    )
    case(
        "scatter_add 1",
        moved,
        lambda a, i, b: a.scatter_add(1, i, b),
        (512, 512),
        table,
        (512, 512),
    )
    case(
        "scatter_reduce amax",
        moved,
        lambda a, i, b: a.scatter_reduce(0, i, b, "amax"),
        (512, 512),
        table,
        (512, 512),
    )
    case(
        "index_add",
        moved,
        lambda a, i, b: a.index_add(0, i, b),
        (512, 512),
        index,
        (512, 512),
    )
    case(
        "index_copy",
        moved,
        lambda a, i, b: a.index_copy(0, i, b),
        (512, 512),
        index,
        (512, 512),
    )
    case(
        "index_put",
        moved,
        lambda a, i, b: a.index_put((i,), b),
        (512, 512),
        index,
        (512, 512),
    )
    case(
        "index_put accumulate",
        moved,
        lambda a, i, b: a.index_put((i,), b, True),
        (512, 512),
        index,
        (512, 512),
    )
    case(
        "index_fill",
        moved,
        lambda a, i: a.index_fill(0, i, 1),
        (512, 512),
        lambda dtype: places(512, 64),
    )
    case(
        "masked_select",
        moved,
        lambda a, m: a.masked_select(m),
        (512, 512),
        mask,
    )
    case("nonzero", "f32 i64 bool", lambda a: a.nonzero(), (256, 256))
    case(
        "embedding",
        "f32 bf16",
        lambda a, i: F.embedding(i, a),
        (1000, 256),
        lambda dtype: places(1000, 1024),
    )
    case(
        "embedding_bag",
        "f32",
        lambda a, i: F.embedding_bag(i, a),
        (1000, 64),
        lambda dtype: places(1000, 256, 8),
    )
    case(
        "one_hot",
        "i64",
        lambda i: F.one_hot(i, 100),
        lambda dtype: places(100, 4096),
    )
    case(
        "bincount",
        "i64",
        lambda i: torch.bincount(i, minlength=100),
        lambda dtype: places(100, 65536),
    )
    case("unique", "i64 f32", lambda a: a.unique(), (65536,))
    case("sort", "f32 bf16 i64", lambda a: a.sort(), (512, 512))
    case("sort 0", "f32 i64", lambda a: a.sort(0), (512, 512))
    case("argsort small", "f32 i64", lambda a: a.argsort(), (4096, 16))
    case("topk 8", "f32 bf16 i64", lambda a: a.topk(8), (512, 512))
    case("topk 2 of 8", "f32 bf16", lambda a: a.topk(2), (4096, 8))
    case("kthvalue", "f32", lambda a: a.kthvalue(5), (512, 512))
    case("median", "f32", lambda a: a.median(1), (512, 512))
    case(
        "searchsorted",
        "f32 i64",
        lambda a, b: torch.searchsorted(a.sort()[0], b),
        (1024,),
        (65536,),
    )
    case(
        "bucketize",
        "f32",
        lambda a, b: torch.bucketize(a, b.sort()[0]),
        (512, 512),
        (32,),
    )
    case("isin", "i64", lambda a, b: torch.isin(a, b), (512, 512), (8,))


def maps():
    for dtype in FLOATS.split():
        for size in (28, 56):
            name = f"{size}"
            case(
                f"max_pool 2 {name}",
                dtype,
                lambda a: F.max_pool2d(a, 2),
                (2, 32, size, size),
            )
            case(
                f"max_pool 3 by 2 {name}",
                dtype,
                lambda a: F.max_pool2d(a, 3, 2, 1),
                (2, 32, size, size),
            )
            case(
                f"avg_pool 2 {name}",
                dtype,
                lambda a: F.avg_pool2d(a, 2),
                (2, 32, size, size),
            )
            case(
                f"adaptive_avg_pool 7 {name}",
                dtype,
                lambda a: F.adaptive_avg_pool2d(a, 7),
                (2, 32, size, size),
            )
            for mode in ("nearest", "bilinear", "bicubic"):
                case(
                    f"interpolate {mode} {name}",
                    dtype,
                    lambda a, m=mode: F.interpolate(a, scale_factor=2, mode=m),
                    (2, 32, size, size),
                )
            case(
                f"interpolate bilinear down {name}",
                dtype,
                lambda a: F.interpolate(a, scale_factor=0.5, mode="bilinear"),
                (2, 32, size, size),
            )
        case(
            "max_pool1d",
            dtype,
            lambda a: F.max_pool1d(a, 3, 2, 1),
            (4, 64, 1024),
        )
        case("avg_pool1d", dtype, lambda a: F.avg_pool1d(a, 4), (4, 64, 1024))
        case(
            "max_pool3d",
            dtype,
            lambda a: F.max_pool3d(a, 2),
            (1, 16, 16, 32, 32),
        )
        case(
            "grid_sample",
            dtype,
            lambda a, g: F.grid_sample(a, g.tanh(), align_corners=False),
            (2, 16, 64, 64),
            (2, 64, 64, 2),
        )
    for dtype in ("f32", "bf16"):
        for name, channels, out, kernel, size, keywords in LAYERS:
            case(
                f"conv {name}",
                dtype,
                lambda a, w, k=keywords: F.conv2d(a, w, **k),
                (1, channels, size, size),
                (out, channels // keywords.get("groups", 1), kernel, kernel),
            )
        case(
            "conv1d 3",
            dtype,
            lambda a, w: F.conv1d(a, w, padding=1),
            (1, 128, 512),
            (128, 128, 3),
        )
        case(
            "conv1d depthwise 4",
            dtype,
            lambda a, w: F.conv1d(a, w, padding=3, groups=512),
            (1, 512, 512),
            (512, 1, 4),
        )
        case(
            "conv3d 3",
            dtype,
            lambda a, w: F.conv3d(a, w, padding=1),
            (1, 16, 8, 28, 28),
            (32, 16, 3, 3, 3),
        )
        case(
            "conv_transpose 2 by 2",
            dtype,
            lambda a, w: F.conv_transpose2d(a, w, stride=2),
            (1, 64, 28, 28),
            (64, 32, 2, 2),
        )
        case(
            "conv_transpose 4 by 2",
            dtype,
            lambda a, w: F.conv_transpose2d(a, w, stride=2, padding=1),
            (1, 64, 28, 28),
            (64, 32, 4, 4),
        )


# name, channels in and out, kernel, size, keywords
LAYERS = [
    ("3-64 7x7 by 2, 224", 3, 64, 7, 224, {"padding": 3, "stride": 2}),
    ("3-32 3x3 by 2, 224", 3, 32, 3, 224, {"padding": 1, "stride": 2}),
    ("3-96 4x4 by 4, 224", 3, 96, 4, 224, {"stride": 4}),
    ("3-768 16x16 by 16, 224", 3, 768, 16, 224, {"stride": 16}),
    ("64-64 3x3, 56", 64, 64, 3, 56, {"padding": 1}),
    ("128-128 3x3, 28", 128, 128, 3, 28, {"padding": 1}),
    ("128-128 3x3 by 2, 56", 128, 128, 3, 56, {"padding": 1, "stride": 2}),
    ("256-256 3x3, 14", 256, 256, 3, 14, {"padding": 1}),
    ("512-512 3x3, 7", 512, 512, 3, 7, {"padding": 1}),
    ("64-256 1x1, 56", 64, 256, 1, 56, {}),
    ("256-64 1x1, 56", 256, 64, 1, 56, {}),
    ("256-512 1x1 by 2, 56", 256, 512, 1, 56, {"stride": 2}),
    ("1024-256 1x1, 14", 1024, 256, 1, 14, {}),
    ("512-2048 1x1, 7", 512, 2048, 1, 7, {}),
    ("64-32 3x3, 128", 64, 32, 3, 128, {"padding": 1}),
    ("64-64 3x3 dilated, 28", 64, 64, 3, 28, {"padding": 2, "dilation": 2}),
    ("144 depthwise 3x3, 56", 144, 144, 3, 56, {"padding": 1, "groups": 144}),
    (
        "144 depthwise 3x3 by 2, 56",
        144,
        144,
        3,
        56,
        {"padding": 1, "groups": 144, "stride": 2},
    ),
    ("96 depthwise 7x7, 56", 96, 96, 7, 56, {"padding": 3, "groups": 96}),
    ("384 depthwise 7x7, 14", 384, 384, 7, 14, {"padding": 3, "groups": 384}),
    ("768 depthwise 7x7, 7", 768, 768, 7, 7, {"padding": 3, "groups": 768}),
    ("960 depthwise 3x3, 7", 960, 960, 3, 7, {"padding": 1, "groups": 960}),
    ("576 depthwise 3x3, 14", 576, 576, 3, 14, {"padding": 1, "groups": 576}),
    ("672 depthwise 5x5, 14", 672, 672, 5, 14, {"padding": 2, "groups": 672}),
    (
        "672 depthwise 5x5 by 2, 14",
        672,
        672,
        5,
        14,
        {"padding": 2, "groups": 672, "stride": 2},
    ),
    ("128 of 32 groups 3x3, 56", 128, 128, 3, 56, {"padding": 1, "groups": 32}),
    ("512 of 32 groups 3x3, 14", 512, 512, 3, 14, {"padding": 1, "groups": 32}),
    (
        "1024 of 32 groups 3x3, 7",
        1024,
        1024,
        3,
        7,
        {"padding": 1, "groups": 32},
    ),
]


def make(name):
    dtype, function, shapes = CASES[name]
    torch.manual_seed(0)
    return function, [
        shape(dtype) if callable(shape) else tensor(dtype, *shape)
        for shape in shapes
    ]


def repeated(call, inputs, seconds):
    """How many calls take about so long."""
    start = time.process_time()
    call(*inputs)
    once = time.process_time() - start
    return max(1, min(1000, int(seconds / max(once, 1e-6))))


def medians(calls, inputs, seconds, turns=11):
    """CPU seconds of a call of each, in turns."""
    count = repeated(calls[0], inputs, seconds / turns / len(calls))
    rows = [[] for _ in calls]
    for _ in range(turns):
        for call, row in zip(calls, rows, strict=True):
            start = time.process_time()
            for _ in range(count):
                call(*inputs)
            row.append((time.process_time() - start) / count)
    return [statistics.median(row) for row in rows]


@torch.no_grad()
def measure(name, backend, seconds):
    """(eager's microseconds, times its speed)"""
    torch._dynamo.reset()
    function, inputs = make(name)
    compiled = BACKENDS[backend](function, dynamic=False)
    for _ in range(3):
        function(*inputs), compiled(*inputs)
    eager, ours = medians((function, compiled), inputs, seconds)
    return eager * 1e6, eager / ours


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--backend", default=OURS[1])
    parser.add_argument("--below", type=float, default=0.95)
    parser.add_argument("--seconds", type=float, default=0.2)
    options = parser.parse_args()
    for add in (pointwise, reductions, movements, indexing, maps):
        add()
    names = [
        name
        for name in CASES
        if not options.cases or any(re.search(c, name) for c in options.cases)
    ]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    speeds = []
    print("| case | eager µs | speed |\n|---|--:|--:|")
    for name in names:
        eager, speed = measure(name, options.backend, options.seconds)
        speeds.append(speed)
        if speed < options.below:
            print(f"| {name} | {eager:.0f} | {speed:.2f} × |", flush=True)
    mean = math.exp(statistics.mean(map(math.log, speeds)))
    slow = sum(speed < options.below for speed in speeds)
    print(f"{len(speeds)} cases, {slow} slower; mean {mean:.2f} ×")


if __name__ == "__main__":
    main()
