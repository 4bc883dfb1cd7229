"""What models of Transformers and timm write in ways of their own, on a GPU:
the engine computes all of it, with errors like eager's."""

import pytest
import torch
from helpers import compiled, recorded, seeded
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU that torch sees"
)
DTYPES = [torch.float32, torch.bfloat16]


def numbers(*size, seed=0, dtype=torch.float32):
    made = torch.randn(*size, generator=seeded(seed, "cuda"), device="cuda")
    return made.to(dtype)


def without_hosts(fn, *args):
    """What fn gives, compiled; no operator of it is torch's."""
    torch._dynamo.reset()
    with recorded() as records:
        found = compiled(fn)(*args)
    assert records
    for record in records:
        assert record.fallback == ""
        assert [h.op for h in record.hosts] == []
    return found


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [32, 48])
@pytest.mark.parametrize("turned", [False, True])
def test_attention_that_is_written_out(dtype, width, turned):
    """Keys column by column, values of another width than keys."""
    q = numbers(2, 4, 40, 32, dtype=dtype)
    k = numbers(2, 4, 40, 32, seed=1, dtype=dtype)
    v = numbers(2, 4, 40, width, seed=2, dtype=dtype)

    def fn(q, k, v):
        keys = k.transpose(-1, -2) * 0.5
        if turned:
            keys = keys.contiguous()
        weights = torch.matmul(q, keys).softmax(-1)
        return nn.functional.layer_norm(torch.matmul(weights, v), [width])

    got, want = without_hosts(fn, q, k, v), fn(q, k, v)
    exact = fn(*(t.double() for t in (q, k, v)))
    error = (want - exact).square().mean().sqrt()
    assert (got - exact).square().mean().sqrt() <= 1.1 * error + 1e-7


@pytest.mark.parametrize("batch", [1, 8])
def test_patches_of_float32_are_exact(batch):
    """Not by 10 bits of mantissa, as cuDNN's channels-last kernels are."""
    conv = nn.Conv2d(3, 256, 16, 16).cuda()
    x = numbers(batch, 3, 112, 112)

    def step(conv, fn, x):
        conv.zero_grad()
        y = fn(x)
        y.square().sum().backward()
        return [y, conv.weight.grad, conv.bias.grad]

    exact = nn.Conv2d(3, 256, 16, 16).cuda().double()
    exact.load_state_dict(conv.state_dict())
    want = step(exact, exact, x.double())
    with recorded() as records:
        got = step(conv, compiled(conv), x)
    assert not any(record.hosts for record in records)
    for g, w in zip(got, want, strict=True):
        assert (g - w).norm() < 1e-5 * w.norm()


# ---- rows that are no multiples of 16 bytes ----

VOCABULARY = 50257
ODD = {  # of x [rows, 768], w [VOCABULARY, 768], g [rows, VOCABULARY]
    "logits": lambda x, w, g, b: x @ w.t(),
    "logits and a row": lambda x, w, g, b: torch.addmm(b, x, w.t()),
    "gradient": lambda x, w, g, b: g @ w,
    "gradient of the weight": lambda x, w, g, b: g.t() @ x,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("rows", [2048, 1500])
def test_products_by_parts_of_rows(rows, name):
    """1024 rows at once: twice, or with some left."""
    torch.manual_seed(0)
    given = [
        torch.randn(*size, device="cuda", dtype=torch.bfloat16)
        for size in (
            (rows, 768),
            (VOCABULARY, 768),
            (rows, VOCABULARY),
            (VOCABULARY,),
        )
    ]
    torch._dynamo.reset()
    run = compiled(ODD[name])
    want = ODD[name](*(x.double() for x in given))
    theirs = (ODD[name](*given).double() - want).norm()
    for _ in range(3):
        got = run(*given)
        assert (got.double() - want).norm() <= 1.1 * theirs
