"""Attention with its gradient: against eager and float64."""

import math

import pytest
import torch
from helpers import BEFORE_213, compiled, hosts, recorded
from torch.nn import functional as F

CASES = {
    "plain": {},
    "causal": {"causal": True},
    "longer": {"rows": 70, "keys": 300, "depth": 24},
    "causal, other keys": {"rows": 33, "keys": 50, "causal": True},
    "float mask": {"mask": "float"},
    "bool mask": {"mask": "bool"},
    "grouped": {"kv_heads": 2},
    "grouped causal": {"kv_heads": 1, "causal": True, "rows": 19, "keys": 19},
    "scale": {"scale": 0.3},
    "one row": {"rows": 1},
}


def make(
    dtype,
    rows=40,
    keys=40,
    depth=16,
    heads=4,
    kv_heads=4,
    mask=None,
    causal=False,
    scale=None,
):
    torch.manual_seed(rows * keys)
    # the layout of a projection: heads lie side by side in a row
    q = torch.randn(2, rows, heads, depth, dtype=dtype).transpose(1, 2)
    k = torch.randn(2, keys, kv_heads, depth, dtype=dtype).transpose(1, 2)
    v = torch.randn(2, keys, kv_heads, depth, dtype=dtype).transpose(1, 2)
    grad = torch.randn(2, rows, heads, depth, dtype=dtype).transpose(1, 2)
    options = {
        "is_causal": causal,
        "scale": scale,
        "enable_gqa": heads != kv_heads,
    }
    if mask is not None:
        keep = torch.rand(2, 1, rows, keys) > 0.3
        keep[0, 0, 3] = False  # a row that sees nothing
        options["attn_mask"] = keep
        if mask == "float":
            options["attn_mask"] = torch.zeros(keep.shape, dtype=dtype)
            options["attn_mask"].masked_fill_(~keep, -math.inf)
    return (q, k, v), grad, options


def results(run, tensors, grad, options):
    """The result and the three gradients."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    out = run(*leaves, **options)
    return [out, *torch.autograd.grad(out, leaves, grad)]


def errors(got, exact):
    """For each, the root of the mean square."""
    return [
        (g.double() - e).square().mean().sqrt().item()
        for g, e in zip(got, exact, strict=True)
    ]


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_as_good_as_eager(case, dtype, mode):
    tensors, grad, options = make(dtype, **CASES[case])
    attention = F.scaled_dot_product_attention
    want = results(attention, tensors, grad, options)
    with recorded() as records:
        run = compiled(lambda q, k, v, **o: attention(q, k, v, **o), mode)
        got = results(run, tensors, grad, options)
    assert not hosts(records)
    wide = {
        k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
        for k, v in options.items()
    }
    exact = results(
        attention, [t.double() for t in tensors], grad.double(), wide
    )
    for g, w, mine, theirs in zip(
        got, want, errors(got, exact), errors(want, exact), strict=True
    ):
        assert g.dtype == w.dtype and g.shape == w.shape
        ulp = torch.finfo(dtype).eps * w.double().std().item()
        assert mine <= 1.1 * theirs + ulp, case


def by_the_formula(q, k, v, **_):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("masked", [False, True])
def test_attention_without_gradient_is_the_engines(masked):
    q, k, v = torch.randn(3, 1, 2, 5, 8)
    mask = torch.zeros(5, 5) if masked else None
    with recorded() as records:
        run = compiled(F.scaled_dot_product_attention)
        run(q, k, v, attn_mask=mask)
    assert records
    assert hosts(records) == []


@pytest.mark.skipif(BEFORE_213, reason="not in this torch")
def test_float64_takes_the_plain_kernel():
    tensors, grad, options = make(torch.float64, rows=9, keys=11, causal=True)
    attention = F.scaled_dot_product_attention
    want = results(by_the_formula, tensors, grad, options)
    got = results(compiled(attention), tensors, grad, options)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-12, atol=1e-13)


def test_rows_that_see_nothing_are_as_in_eager():
    """0 from scaled_dot_product_attention, NaN from a written softmax."""
    (q, k, v), _, options = make(torch.float32, mask="bool")
    keep = options["attn_mask"]

    def kernel(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)

    def written(q, k, v):
        scores = q @ k.transpose(-1, -2) / 4
        return scores.masked_fill(~keep, -math.inf).softmax(-1) @ v

    def added(q, k, v):
        bias = torch.zeros(keep.shape).masked_fill(~keep, -math.inf)
        return (q @ k.transpose(-1, -2) / 4 + bias).softmax(-1) @ v

    for fn, empty in ((kernel, False), (written, True), (added, True)):
        want, got = fn(q, k, v), compiled(fn)(q, k, v)
        assert want[0, 0, 3].isnan().all() == empty
        torch.testing.assert_close(got, want, equal_nan=True)


def test_scores_of_halves_cast_to_f32():
    """As GPT-J writes it: the kernel takes what q and k were cast from."""

    def written(q, k, v, mask):
        scores = q.float() @ k.float().mT / 4 + mask
        return scores.softmax(-1).to(v.dtype) @ v

    (q, k, v), _, _ = make(torch.bfloat16)
    hidden = torch.ones(40, 40, dtype=torch.bool).triu(1)
    mask = torch.zeros(40, 40).masked_fill(
        hidden, torch.finfo(torch.float32).min
    )
    with recorded() as records, torch.no_grad():
        got = compiled(written)(q, k, v, mask)
    text = records[-1].program().text(0)
    assert "scaled_dot_product_attention(%q, %k, %v" in text
    tensors = [t.double() for t in (q, k, v)]
    scores = tensors[0] @ tensors[1].mT / 4 + mask
    exact = [scores.softmax(-1) @ tensors[2]]
    mine = errors([got], exact)[0]
    theirs = errors([written(q, k, v, mask)], exact)[0]
    assert mine <= 1.1 * theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", ["added", "filled", "filled first"])
def test_a_bias_and_a_mask_become_one(how, dtype):
    """As T5 writes it: two layers share a bias by position and a mask."""
    hidden = torch.ones(40, 40, dtype=torch.bool).triu(1)
    lengths = torch.tensor([40, 33]).view(2, 1, 1, 1)
    hidden = hidden | (torch.arange(40) >= lengths)
    least = torch.finfo(dtype).min

    def layer(q, k, v, bias, keep, mask):
        scores = q @ k.mT / 4
        if how == "filled":
            scores = (scores + bias).masked_fill(hidden, -math.inf)
        elif how == "filled first":
            scores = torch.where(keep, scores, -math.inf) + bias
        else:
            scores = scores + bias + mask
        return scores.softmax(-1) @ v

    def written(q, k, v, bias):
        mask = torch.zeros(hidden.shape, dtype=q.dtype)
        masks = bias, ~hidden, mask.masked_fill(hidden, least)
        return layer(layer(q, k, v, *masks), k, v, *masks)

    tensors, _, _ = make(dtype)
    tensors = (*tensors, torch.randn(1, 4, 40, 40).to(dtype))
    with recorded() as records, torch.no_grad():
        got = compiled(written)(*tensors)
    text = records[-1].program().text(0)
    assert text.count("scaled_dot_product_attention(") == 2
    assert text.count("amax(") == 1  # of the mask, which is made once
    exact = [written(*(t.double() for t in tensors))]
    mine = errors([got], exact)[0]
    theirs = errors([written(*tensors)], exact)[0]
    assert mine <= 1.1 * theirs


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("how", ["least", "where", "1e9", "1e4", "added"])
def test_a_finite_fill_leaves_the_mean(how, dtype):
    """Of rows that see nothing; what others hide is as hidden as by -inf."""
    hidden = torch.ones(40, 40, dtype=torch.bool).triu(1)
    hidden = hidden.repeat(2, 1, 1, 1)
    hidden[1, :, :, :7] = True
    least = torch.finfo(dtype).min

    def written(q, k, v):
        scores = q @ k.mT / 4
        if how == "added":
            mask = torch.zeros(hidden.shape, dtype=q.dtype)
            scores = scores + mask.masked_fill(hidden, least)
        elif how == "where":
            fill = torch.full([], least, dtype=q.dtype)
            scores = torch.where(~hidden, scores, fill)
        else:
            fill = {"least": least, "1e9": -1e9, "1e4": -1e4}[how]
            if dtype == torch.float16:
                fill = max(fill, least)
            scores = scores.masked_fill(hidden, fill)
        return scores.softmax(-1) @ v

    tensors, _, _ = make(dtype)
    with recorded() as records, torch.no_grad():
        got = compiled(written)(*tensors)
    text = records[-1].program().text(0)
    assert "scaled_dot_product_attention(" in text
    exact = [written(*(t.double() for t in tensors))]
    mine = errors([got], exact)[0]
    theirs = errors([written(*tensors)], exact)[0]
    assert mine <= 1.1 * theirs
    if how == "added" and dtype == torch.float16:
        return  # the least number of f16 does not swallow a score in f32
    nothing = got[1, :, 0].double() - tensors[2][1].double().mean(-2)
    assert nothing.abs().max() < 4 * torch.finfo(dtype).eps
