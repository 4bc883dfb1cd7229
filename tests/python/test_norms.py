"""Norms of half precision whose statistics are float32."""

import pytest
import torch
from helpers import DEVICE, compiled, seeded
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from torchair import inlined, norms

ATEN = torch.ops.aten


def traced(fn, dtype, device="cuda"):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(4, 8, dtype=dtype, device=device)
        w = torch.empty(8, dtype=dtype, device=device)
        graph = make_fx(fn)(x, w)
    inlined.expand(graph)
    return graph


def dtypes(graph, op):
    (node,) = (n for n in graph.graph.nodes if n.target is op)
    return {v.dtype for v in node.meta["val"]}


def norm(x, w):
    return ATEN.native_layer_norm.default(x, [8], w, None, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_that_are_read_are_of_float32(dtype):
    graph = traced(norm, dtype)
    assert dtypes(graph, ATEN.native_layer_norm.default) == {torch.float32}
    (results,) = graph.graph.find_nodes(op="output")[0].args
    found = [r.meta["val"].dtype for r in results]
    assert found == [dtype, torch.float32, torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_others_stay(dtype):
    graph = traced(lambda x, w: norm(x, w)[0], dtype)
    assert dtype in dtypes(graph, ATEN.native_layer_norm.default)
    graph = traced(norm, torch.float32)
    assert dtypes(graph, ATEN.native_layer_norm.default) == {torch.float32}


def test_numbers_are_eagers():
    torch.manual_seed(0)
    x, w, b = torch.randn(16, 64), torch.randn(64), torch.randn(64)
    args = [t.bfloat16() for t in (x + 3, w, b)]
    body, _ = inlined._bodies[ATEN.native_layer_norm.default]
    got = body(args[0], [64], *args[1:], 1e-5)
    want = ATEN.native_layer_norm.default(args[0], [64], *args[1:], 1e-5)
    assert torch.equal(got[0], want[0])
    exact = args[0].double().mean(1, True)
    torch.testing.assert_close(got[1].double(), exact, rtol=1e-5, atol=0)


ONE_DTYPE = pytest.mark.host("kernels of a GPU want weights of one dtype")
MIXED = [
    pytest.param("group", marks=ONE_DTYPE),
    pytest.param("layer", marks=ONE_DTYPE),
    "instance",
    "batch",
    "rms",
]


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("norm", MIXED)
def test_gradients_of_half_precision_with_wide_weights(norm, mode):
    """As convolutions leave it under autocast; torch's kernels keep float32
    statistics, whatever their Meta functions say."""
    torch.manual_seed(0)
    made = {
        "group": lambda: nn.GroupNorm(4, 16),
        "instance": lambda: nn.InstanceNorm1d(16, affine=True),
        "batch": lambda: nn.BatchNorm1d(16),
        "layer": lambda: nn.LayerNorm(30),
        "rms": lambda: nn.RMSNorm(30),
    }
    module, other = made[norm]().to(DEVICE), made[norm]().double().to(DEVICE)
    x, weight = (torch.randn(8, 16, 30, device=DEVICE) for _ in range(2))

    def loss(m, x, dtype):
        return (m(x.to(dtype)) * weight).sum()

    def grads(call, m, dtype, wide):
        mine = x.to(wide, copy=True).requires_grad_()
        m.zero_grad()
        call(m, mine, dtype).backward()
        found = [mine.grad, *(p.grad for p in m.parameters())]
        return [g.double() for g in found]

    low, most = torch.bfloat16, 1.15
    if mode == "max-autotune":  # x is not rounded first, in which some luck is
        most = 1.5
    exact = grads(
        lambda m, y, d: loss(m, y.to(low), d), other, torch.float64, low
    )
    eager = grads(loss, module, low, torch.float32)
    ours = grads(compiled(loss, mode), module, low, torch.float32)
    for got, near, want in zip(ours, eager, exact, strict=True):
        error, allowed = (got - want).norm(), (near - want).norm()
        assert error <= most * allowed + 1e-6 * want.norm()


@pytest.mark.parametrize(
    ("device", "written"), [("cpu", True), ("cuda", False)]
)
def test_mixed_norms_of_a_gpu_are_its_own(device, written):
    op = ATEN.native_batch_norm_backward.default
    with FakeTensorMode():
        x = torch.empty(2, 4, 8, dtype=torch.bfloat16, device=device)
        w = torch.empty(4, device=device)
        rest = (w, None, None, w, w, True, 1e-5, [True, True, True])
        found = norms.DECOMPOSITIONS[op](x, x, *rest)
    assert (found is not NotImplemented) == written


def folds_of_a_square(x):
    """The distance of two sets of points, each to the nearest, has these."""
    near, far = x.amin(0) + x.amin(1), x.amax(0) - x.amax(1)
    return near, far, x.exp().amax(0) + x.exp().amax(1), x.prod(0) - x.prod(1)


def folds_of_one_row(x):
    y = x.half().amax(0, keepdim=True)
    return torch.maximum(nn.functional.layer_norm(y, y.shape[1:]), y)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    ("fn", "size"),
    [
        (folds_of_a_square, (17, 17)),
        (folds_of_a_square, (64, 64)),
        (folds_of_one_row, (1, 33)),
    ],
)
def test_rows_and_columns_of_one_value(fn, size, mode):
    """Where sizes do not tell which axis was folded columns were taken for
    rows."""
    x = torch.rand(size, generator=seeded(0)) + 0.5
    got = torch.compile(fn, backend="torchair", mode=mode)(x)
    torch.testing.assert_close(got, fn(x), rtol=1e-3, atol=1e-3)
