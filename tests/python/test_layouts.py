"""Reductions of tensors whose elements lie in another order than their axes."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, compiled

from torchair import backend

SIZES = [(40, 130), (3, 70, 90), (2, 5, 66, 33), (128, 20)]
ROWS = {
    "sum": lambda x: x.sum(-1),
    "sum of the first": lambda x: x.sum(0),
    "amax": lambda x: (x * 2).amax(-1, keepdim=True),
    "mean and value": lambda x: (x.mean(-1), x + 1),
    "minus the largest": lambda x: x - x.amax(-1, keepdim=True),
    "minus a sum, and a sum": lambda x: (
        x * 2 - (x + 1).sum(-1, keepdim=True),
        x.sum(-1),
    ),
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of the first": lambda x: F.softmax(x, 0),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "var of all but one": lambda x: x.var(list(range(x.dim() - 1))),
}


def close(got, want):
    torch.testing.assert_close(got, want)


def layouts(size, dtype):
    x = torch.randn(size).to(dtype)
    turned = torch.randn((*size[:-2], size[-1], size[-2])).to(dtype)
    yield x
    yield turned.transpose(-1, -2)
    yield torch.randn(size[::-1]).to(dtype).permute(*range(len(size))[::-1])
    yield torch.randn((*size[:-1], 2 * size[-1])).to(dtype)[..., ::2]
    yield x[:1].expand(size)


@pytest.mark.parametrize("fn", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_any_layout(fn, dtype):
    run = compiled(fn)
    for size in SIZES:
        for x in layouts(size, dtype):
            close(run(x), fn(x))


def test_a_row_that_meets_both_layouts():
    def fn(x, y):
        z = x.t() + y
        return z.sum(1), z, (x.t() * y).softmax(1)

    args = torch.randn(200, 100), torch.randn(100, 200)
    close(compiled(fn)(*args), fn(*args))


class Turned(torch.nn.Module):
    """The sequence comes second, attention wants it first."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(24)
        self.attention = torch.nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_sequence_that_is_turned(mode, dynamic):
    model = Turned().eval()
    fn = compiled(model, mode, dynamic=dynamic)
    with torch.no_grad():
        for n, length in ((2, 7), (3, 5)):
            x = torch.randn(n, length, 24)
            assert_same(fn(x), model(x))


def test_a_sequence_that_is_turned_is_not_copied():
    """Attention writes its result, whose rows are of other heads, so."""
    model = Turned().eval()
    backend.records.clear()
    with torch.no_grad():
        compiled(model)(torch.randn(2, 7, 24))
    text = backend.records[-1].program().text(2)
    assert text.count("\ncopy: ") == 0, text


def test_gradients_of_a_sequence_that_is_turned():
    model, x = Turned(), torch.randn(2, 7, 24)
    found = []
    for fn in (compiled(model), model):
        model.zero_grad()
        fn(x).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found)
