"""Arguments that the engine does not compute with: what eager gives, or an
error that names what is wrong; after it the function works as before."""

import pytest
import torch
from helpers import assert_same, compiled, make_backend, seeded
from torch.testing._internal.two_tensor import TwoTensor

import torchair

modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
X, W = torch.randn(4, 8), torch.randn(8, 3)


def product(x, w):
    return (x @ w).relu()


WRONG = {
    "dtype": ((X.double(), W), "dtype"),
    "shape": ((torch.randn(4, 7), W), "7"),
    "device": ((X.to("meta"), W), "meta"),
    "device of the other": ((X, W.to("meta")), "meta"),
    "none": ((None, W), "NoneType"),
    "number": ((3.0, W), "unsupported operand"),
    "complex": ((X.cfloat(), W.cfloat()), "omplex"),
    "bits": ((X.to(torch.uint16), W.to(torch.uint16)), "UInt16"),
}


@modes
@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(mode, name):
    run = compiled(product, mode)
    with torch.no_grad():
        assert_same(run(X, W), product(X, W))
        args, text = WRONG[name]
        with pytest.raises(Exception, match=text):
            run(*args)
        assert_same(run(X, W), product(X, W))


UNUSUAL = {
    "sparse": (product, (X.to_sparse(), W)),
    "rows of sparse": (lambda a, x: a @ x, (torch.eye(4).to_sparse_csr(), X)),
    "complex": (lambda a: a * 2 + 1j, (X.cfloat(),)),
    "quantised": (
        lambda a: a.dequantize() + 1,
        (torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),),
    ),
    "float8": (
        lambda a: a.to(torch.float32) * 2,
        (X.to(torch.float8_e4m3fn),),
    ),
    "uint16": (
        lambda a: a.to(torch.int32) * 2,
        (torch.arange(4).to(torch.uint16),),
    ),
    "subclass": (lambda a: (a + 1).sin(), (TwoTensor(X, X.clone()),)),
    "one of meta": (lambda a: a * 2 + 1, (X.to("meta"),)),
}


@modes
@pytest.mark.parametrize("name", UNUSUAL)
def test_what_eager_computes(mode, name):
    fn, args = UNUSUAL[name]
    with torch.no_grad():
        got, want = compiled(fn, mode)(*args), fn(*args)
    assert type(got) is type(want) and got.device == want.device
    if want.device.type != "meta":
        assert_same(got, want)


def test_a_mode_that_is_none():
    for backend in ("torchair", make_backend()):
        run = torch.compile(product, backend=backend, mode="nope")
        with pytest.raises(Exception, match="mode.*nope|nope.*mode"):
            run(X, W)


@modes
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest", "bicubic"])
def test_samples_of_a_grid(mode, padding, interpolation):
    """torch's kernels, with their gradients."""

    def fn(x, grid):
        return torch.nn.functional.grid_sample(
            x * 2,
            grid.tanh(),
            mode=interpolation,
            padding_mode=padding,
            align_corners=False,
        ).sin()

    grads = []
    x, grid = torch.randn(2, 3, 5, 6), torch.randn(2, 4, 7, 2)
    for call in (compiled(fn, mode), fn):
        leaves = [t.clone().requires_grad_() for t in (x, grid)]
        y = call(*leaves)
        grads.append([y.detach(), *torch.autograd.grad(y.cos().sum(), leaves)])
    assert_same(*grads)


def _by_tensor(x):
    return torch.quantize_per_tensor(x, 0.1, 3, torch.qint8).dequantize() * 2


def _stored(x):
    q = torch.quantize_per_tensor(x + 1, 0.1, 3, torch.quint8)
    return q, q.int_repr(), q.q_zero_point()


def _by_channel(x):
    scales, zeros = x.new_full((4,), 0.1), x.new_zeros(4, dtype=torch.long)
    q = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    return torch.dequantize(q) + x


def _measured(x):
    q = torch.quantize_per_tensor_dynamic(x, torch.qint8, False)
    return q.dequantize() - x


@modes
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("fn", [_by_tensor, _stored, _by_channel, _measured])
def test_quantised_tensors_are_torchs(mode, fn):
    """Traced, they have the dtype of their integers."""
    with torch.no_grad():
        got, want = compiled(fn, mode)(X), fn(X)
        assert str(got) == str(want)
        for graph in torchair.explain(fn, X).graphs:
            assert "makes a quantized tensor" in graph.fallback or not (
                graph.fallback or graph.hosts
            )


def test_what_explain_says_of_a_quantised_tensor():
    graphs = torchair.explain(_by_tensor, X).graphs
    if not graphs:
        pytest.skip("Dynamo of this torch traces no such function")
    (graph,) = graphs
    assert "quantize_per_tensor.default makes a quantized" in graph.fallback


CHOICES = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max of rows": lambda x: x.max(0),
    "min of rows": lambda x: x.min(0, keepdim=True),
    "median of rows": lambda x: x.median(0),
    "nanmedian of rows": lambda x: x.nanmedian(0),
    "mode of rows": lambda x: x.mode(0),
}


@modes
@pytest.mark.parametrize("name", CHOICES)
def test_an_element_of_nothing(mode, name):
    """torch says what is wrong, also where a part is empty by its size."""

    def fn(x):
        return CHOICES[name](x[2:].relu())

    run = compiled(fn, mode, dynamic=True)
    for n in 7, 2, 5:
        x = torch.rand(n, 3, generator=seeded(n))
        if n > 2:
            assert_same(tuple_of(run(x)), tuple_of(fn(x)))
            continue
        with pytest.raises(Exception) as eager:
            fn(x)
        with pytest.raises(eager.type) as got:
            run(x)
        assert str(got.value) == str(eager.value)


def tuple_of(x):
    return x if isinstance(x, torch.Tensor) else tuple(x)
