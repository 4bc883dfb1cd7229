"""Products of groups of rows (experts), and of batches of small matrices."""

import pytest
import torch
from helpers import compiled, seeded

import torchair

GROUPS, DEPTH, OUT = 4, 64, 48
ENDS = [[10, 10, 33, 40], [0, 40, 40, 40], [1, 2, 3, 40], [5, 9, 20, 31]]

library = torch.library.Library("transformers", "FRAGMENT")


def _product(a, weight, offs):
    """As transformers 5 has it, where it is not there to say so."""
    y = a.new_zeros(a.shape[0], weight.shape[2])
    begin = 0
    for i, end in enumerate(offs.tolist()):
        y[begin:end] = a[begin:end] @ weight[i]
        begin = max(begin, end)
    return y


def _gradients(a, weight, offs, grad):
    parts = [torch.zeros_like(a), torch.zeros_like(weight)]
    begin = 0
    for i, end in enumerate(offs.tolist()):
        parts[0][begin:end] = grad[begin:end] @ weight[i].T
        parts[1][i] = a[begin:end].T @ grad[begin:end]
        begin = max(begin, end)
    return tuple(parts)


def _define():
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return
    args = "Tensor input, Tensor weight, Tensor offs"
    for name, rest, results, run, fake in (
        ("", "", "Tensor", _product, lambda a, w, o: a @ w[0]),
        (
            "_backward",
            ", Tensor grad_output",
            "(Tensor, Tensor)",
            _gradients,
            lambda a, w, o, g: (torch.empty_like(a), torch.empty_like(w)),
        ),
    ):
        full = f"grouped_mm_fallback{name}"
        library.define(f"{full}({args}{rest}) -> {results}")
        for key in ("CPU", "CUDA"):
            library.impl(full, run, key)
        torch.library.register_fake(f"transformers::{full}", fake)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def back(ctx, grad):
        run = torch.ops.transformers.grouped_mm_fallback_backward
        return (*run(*ctx.saved_tensors, grad), None)

    torch.library.register_autograd(
        "transformers::grouped_mm_fallback", back, setup_context=save
    )


_define()
fallback = torch.ops.transformers.grouped_mm_fallback


def numbers(*size, dtype=torch.float32, seed=0):
    return torch.randn(*size, generator=seeded(seed)).to(dtype)


def no_host(function, *args):
    report = str(torchair.explain(function, *args))
    assert "HOST" not in report, report


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_rows(mode, ends, threads):
    torch.set_num_threads(threads)
    a, w = numbers(40, DEPTH), numbers(GROUPS, OUT, DEPTH, seed=1).mT
    offs = torch.tensor(ends, dtype=torch.int32)
    run = torch.compile(
        lambda *args: fallback(*args) + 1, backend="torchair", mode=mode
    )
    wanted = _product(a.double(), w.double(), offs) + 1
    torch.testing.assert_close(
        run(a, w, offs).double(), wanted, atol=1e-4, rtol=0
    )


@pytest.mark.host("a product of groups is a HOST node of a GPU")
def test_experts_are_the_engine_s():
    offs = torch.tensor(ENDS[0])
    args = numbers(40, DEPTH), numbers(GROUPS, DEPTH, OUT, seed=1), offs
    no_host(fallback, *args)


@pytest.mark.host("a product of groups is a HOST node of a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16])
@pytest.mark.parametrize("ends", ENDS[:3])
def test_torch_s_own_operator(dtype, ends):
    a = numbers(40, DEPTH, dtype=dtype)
    w = numbers(GROUPS, OUT, DEPTH, dtype=dtype, seed=1).mT
    offs = torch.tensor(ends, dtype=torch.int32)

    def experts(a, w, offs):
        return torch._grouped_mm(a, w, offs=offs)

    wanted = _product(a.double(), w.double(), offs)
    torch._dynamo.reset()
    no_host(experts, a, w, offs)
    found = torch.compile(experts, backend="torchair")(a, w, offs)
    torch.testing.assert_close(found.double(), wanted, atol=0.2, rtol=0.02)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("as_columns", [False, True])
def test_gradients(ends, as_columns):
    a = numbers(40, DEPTH).requires_grad_()
    size = (GROUPS, OUT, DEPTH) if as_columns else (GROUPS, DEPTH, OUT)
    w = numbers(*size, seed=1).requires_grad_()
    offs = torch.tensor(ends)

    def experts(a, w):
        return fallback(a, w.mT if as_columns else w, offs).sin()

    grads = []
    compiled = torch.compile(experts, backend="torchair")
    for run, double in ((experts, True), (compiled, False)):
        x, y = (t.detach() for t in (a, w))
        x, y = (t.double() if double else t for t in (x, y))
        x, y = x.requires_grad_(), y.requires_grad_()
        run(x, y).square().sum().backward()
        grads.append((x.grad.double(), y.grad.double()))
    for found, wanted in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(found, wanted, atol=2e-3, rtol=1e-4)


@pytest.mark.host("a product of groups is a HOST node of a GPU")
def test_a_wrong_end_is_refused():
    run = torch.compile(lambda *args: fallback(*args) + 1, backend="torchair")
    a, w = numbers(40, DEPTH), numbers(GROUPS, DEPTH, OUT)
    with pytest.raises(IndexError, match="41"):
        run(a, w, torch.tensor([1, 2, 3, 41]))
    assert run(a, w, torch.tensor([1, 2, 3, 40])).shape == (40, OUT)


def test_rows_of_any_number():
    run = torch.compile(
        lambda *args: fallback(*args) * 2, backend="torchair", dynamic=True
    )
    w = numbers(GROUPS, DEPTH, OUT)
    for rows in (2, 9, 70, 0):
        a = numbers(rows, DEPTH)
        offs = torch.tensor([0, rows // 2, rows // 2, rows])
        wanted = _product(a, w, offs) * 2
        torch.testing.assert_close(run(a, w, offs), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "size",
    [
        (1, 1, 7),
        (3, 1, 4),
        (3, 3, 3),
        (1, 4, 6),
        (1, 20, 50),
        (1, 17, 16),
        (1, 33, 8),
    ],
)
def test_batches_of_small_products(size, mode):
    """Rows, depth, columns: in eager's numbers, with gradients."""
    rows, depth, cols = size
    torch.manual_seed(0)
    x = torch.randn(37, rows, depth, requires_grad=True)
    y = torch.randn(37, depth, cols, requires_grad=True)

    def fn(x, y):
        z = (x @ y).relu() + 1
        return z, z @ z.mT, (z.sum(1, keepdim=True) @ z.mean(1)[..., None])

    want, got = fn(x, y), compiled(fn, mode)(x, y)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    grads = [
        torch.autograd.grad(sum(t.sum() for t in out), (x, y))
        for out in (want, got)
    ]
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4)
