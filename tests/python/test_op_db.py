"""PyTorch's own operator samples through the engine.

Each sample is traced to ATen ops by make_fx, imported and run; Dynamo has no
part in it. A result may be as far from a float64 evaluation as eager's is,
with some room; where float64 cannot be asked, it is compared with eager.

TORCHAIR_OP_DB=full runs every operator, dtype and sample; the default takes
few samples of each operator in one dtype, so that it ends in minutes.
"""

import os
import zlib

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from torchair import _native, backend
from torchair.importer import import_graph
from torchair.sizes import Unexpressible

FULL = os.environ.get("TORCHAIR_OP_DB") == "full"
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]
SAMPLES = 200 if FULL else 3
ROOM = {
    torch.float32: 2e-6,
    torch.bfloat16: 1.6e-2,
    torch.float16: 2e-3,
    torch.float64: 1e-12,
}

# Results that no two evaluations share, or that make_fx cannot record.
SKIP = {
    # writes into views of an intermediate, which AOTAutograd functionalises
    # and make_fx does not (test_functions.py has it)
    "nn.functional.pad.circular",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "tolist",
    "item",
    "to_sparse",
    "resize_",
    "resize_as_",
    "nonzero_static",
    "geqrf",
    "lu_factor",
    "sparse.mm",
    "sparse.sampled_addmm",
    "normal",
    "uniform",
    "bernoulli",
    "multinomial",
    "rand_like",
    "randn",
    "randn_like",
    "randint",
    "randint_like",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "svd_lowrank",
    "pca_lowrank",
    "linalg.eig",
    "linalg.svd",
    "linalg.eigh",
    "linalg.qr",
    "svd",
    "qr",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d",
    "bfloat16",
    "chalf",
    "nn.functional.fractional_max_pool3d",
    "triangular_solve",
    "nn.functional.gaussian_nll_loss",
    "linalg.householder_product",
    "ormqr",
    "torch.ops.aten._safe_softmax.default",
    "histogramdd",
    "nn.functional.multi_head_attention_forward",
    "jiterator_unary",
    "nn.functional.scaled_dot_product_attention",
    "linalg.lstsq",
    "linalg.tensorinv",
    "linalg.pinv",
    "pinverse",
    "argsort",
    "mode",
    "topk",  # equal values in any order; test_functions.py has it
}


@pytest.fixture(scope="module", autouse=True)
def _engine():
    torch.compile(lambda x: x + 1, backend=backend.torchair)(torch.ones(1))


def _cases():
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if (
            op.name in SKIP
            or name in SKIP
            or op.name.startswith(("jiterator", "special."))
            and "jiterator" in op.name
        ):
            continue
        supported = [d for d in DTYPES if d in op.supported_dtypes("cpu")]
        if not FULL and supported:  # one dtype, a fixed one for each operator
            key = zlib.crc32(name.encode())
            floats = [d for d in supported if d.is_floating_point]
            pick = floats if floats and key % 4 else supported
            supported = [pick[key % len(pick)]]
        for dtype in supported:
            yield pytest.param(op, dtype, id=f"{name}-{str(dtype)[6:]}")


def _tensors(tree):
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _closed(op, sample):
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

    return fn, [leaves[i] for i in places]


def _usable(tensors):
    return all(
        t.layout == torch.strided
        and not t.is_complex()
        and not t.is_quantized
        and t.dtype in backend_dtypes()
        for t in tensors
    )


def backend_dtypes():
    from torchair.schema import DTYPES as known

    return known


def build(fn, tensors):
    """(program, imported) of a function of tensors."""
    gm = make_fx(lambda *a: tuple(_tensors(fn(*a))), tracing_mode="fake")(
        *tensors
    )
    got = import_graph(gm, "sample", set())
    program = _native.Program(
        got.graph,
        tuple(got.args),
        tuple(got.consts),
        got.nresults,
        tuple(got.outs),
        tuple(got.hosts),
        None,
        exact=False,
    )
    return program, got


def _double(t):
    return t.double() if t.is_floating_point() else t


def assert_as_good(got, want, exact):
    """Is `got` as near to `exact` as `want`, eager's result, is?"""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if not want.is_floating_point():
        assert torch.equal(got, want)
        return
    room = ROOM[want.dtype]
    if exact is None or not exact.is_floating_point():
        torch.testing.assert_close(
            got, want, rtol=8 * room, atol=8 * room, equal_nan=True
        )
        return
    mine, theirs = _error(got, exact), _error(want, exact)
    assert mine <= 2 * theirs + 4 * room, (mine, theirs)


def _error(t, exact):
    """Largest error relative to the size of the values."""
    special = ~torch.isfinite(exact) | ~torch.isfinite(t.double())
    if special.any():
        torch.testing.assert_close(
            t.double()[special],
            exact[special].to(t.dtype).double(),
            equal_nan=True,
        )
    t, exact = t.double()[~special], exact[~special]
    if exact.numel() == 0:
        return 0.0
    return ((t - exact).abs() / exact.abs().clamp(min=1)).max().item()


def _exact(fn, tensors):
    try:
        return _tensors(fn(*map(_double, tensors)))
    except (RuntimeError, TypeError, IndexError, ValueError):
        return None


@pytest.mark.parametrize("op, dtype", list(_cases()))
def test_forward(op, dtype):
    samples = []
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        samples.append(sample)
        if len(samples) >= SAMPLES:
            break
    ran = 0
    for sample in samples:
        fn, tensors = _closed(op, sample)
        if not tensors or not _usable(tensors):
            continue
        try:
            want = _tensors(fn(*[t.clone() for t in tensors]))
            if not want or not _usable(want):
                continue
            program, _ = build(fn, tensors)
        except (Unexpressible, RuntimeError, NotImplementedError) as why:
            if isinstance(why, _native.AirError):
                raise
            continue  # sizes that depend on data, or make_fx refuses
        got = program([t.clone() for t in tensors])
        exact = _exact(fn, tensors) or [None] * len(want)
        assert len(got) == len(want)
        if len(exact) != len(want):
            exact = [None] * len(want)
        for g, w, e in zip(got, want, exact, strict=True):
            assert_as_good(g, w, e)
        ran += 1
    if not ran:
        pytest.skip("no sample that can be traced")


BACKWARD = [
    "add",
    "mul",
    "div",
    "sub",
    "matmul",
    "bmm",
    "softmax",
    "log_softmax",
    "nn.functional.layer_norm",
    "nn.functional.gelu",
    "nn.functional.silu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "sum",
    "mean",
    "var",
    "amax",
    "max",
    "cat",
    "stack",
    "gather",
    "index_select",
    "where",
    "clamp",
    "pow",
    "nn.functional.linear",
    "nn.functional.conv2d",
    "nn.functional.batch_norm",
    "cumsum",
    "nn.functional.embedding",
    "permute",
    "expand",
    "scatter_add",
    "nn.functional.nll_loss",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d",
    "norm",
    "prod",
    "rsqrt",
    "atan2",
]


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name):
    op = next(o for o in op_db if o.name == name)
    ran = 0
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True):
        fn, tensors = _closed(op, sample)
        if not _usable(tensors):
            continue
        places = [i for i, t in enumerate(tensors) if t.requires_grad]
        if not places:
            continue

        def grads(*args, fn=fn, places=places):
            leaves = [
                a.detach().requires_grad_(i in places)
                for i, a in enumerate(args)
            ]
            out = [t for t in _tensors(fn(*leaves)) if t.requires_grad]
            found = torch.autograd.grad(
                sum(t.sum() for t in out),
                [leaves[i] for i in places],
                allow_unused=True,
            )
            return [f for f in found if f is not None]

        plain = [t.detach() for t in tensors]
        want = grads(*plain)
        program, _ = build(grads, plain)
        got = program([t.clone() for t in plain])
        exact = _exact(grads, plain) or [None] * len(want)
        for g, w, e in zip(got, want, exact, strict=True):
            assert_as_good(g, w, e)
        ran += 1
        if ran >= SAMPLES:
            break
    assert ran
