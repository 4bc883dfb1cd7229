"""Attention and rotary positions of torch_npu, on its device."""

import math

import pytest
import torch
from fused_reference import reference
from helpers import compiled
from torch.testing import assert_close

import torch_npu

MASK = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def hidden(mode, rows, keys, pre=2**31, following=2**31):
    i = torch.arange(rows)[:, None]
    j = torch.arange(keys)[None]
    more = keys - rows
    if mode == 4:
        return (j - i < more - pre) | (j - i > more + following)
    return j - i > (0 if mode == 2 else more)


def plain(q, k, v, scale, mask=None):
    """[batch, heads, rows, width] in float64."""
    q, k, v = (t.double() for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = q @ k.mT * scale
    if mask is not None:
        s = s.masked_fill(mask, -math.inf)
    top = s.amax(-1, keepdim=True)
    w = (s - top).exp()
    total = w.sum(-1, keepdim=True)
    return w / total @ v, top[..., 0], total[..., 0]


def bnsd(t, layout, heads):
    if layout in ("BSH", "SBH"):
        t = t.unflatten(-1, (heads, -1))
    order = {"SBH": (1, 2, 0, 3), "BNSD": (0, 1, 2, 3)}
    return t.permute(order.get(layout, (0, 2, 1, 3)))


def tensors(layout, heads, rows, b=2, d=16):
    shape = {
        "BSH": (b, rows, heads * d),
        "SBH": (rows, b, heads * d),
        "BSND": (b, rows, heads, d),
        "BNSD": (b, heads, rows, d),
    }[layout]
    return torch.randn(shape)


@pytest.mark.parametrize("layout", ("BSH", "SBH", "BSND", "BNSD"))
@pytest.mark.parametrize("mode", (0, 1, 2, 3, 4))
def test_fusion_attention(layout, mode):
    q = tensors(layout, 4, 5)
    k, v = (tensors(layout, 2, 9) for _ in "kv")
    kw = {"scale": 0.3, "sparse_mode": mode, "atten_mask": MASK.npu()}
    seen = {0: None}.get(mode)
    if mode == 0:
        kw["atten_mask"] = None
    elif mode == 1:
        seen = torch.rand(5, 9) < 0.3
        seen[:, 0] = False
        kw["atten_mask"] = seen.npu()
    elif mode == 4:
        kw |= {"pre_tockens": 3, "next_tockens": 1}
        seen = hidden(4, 5, 9, 3, 1)
    else:
        seen = hidden(mode, 5, 9)
    found = torch_npu.npu_fusion_attention(
        q.npu(), k.npu(), v.npu(), 4, layout, **kw
    )
    want = plain(
        bnsd(q, layout, 4), bnsd(k, layout, 2), bnsd(v, layout, 2), 0.3, seen
    )
    out = found[0].cpu()
    assert out.shape == q.shape and found[0].is_npu
    assert_close(bnsd(out, layout, 4).double(), want[0], rtol=0, atol=1e-5)
    for got, value in zip(found[1:3], want[1:], strict=True):
        assert got.shape == (2, 4, 5, 8) and got.dtype is torch.float32
        for i in (0, 7):
            assert_close(got[..., i].cpu().double(), value, rtol=0, atol=1e-4)
    assert found[3].numel() == 0 and found[4:] == (0, 0, 0)


def test_fusion_attention_band_of_a_full_mask():
    q = torch.randn(1, 2, 6, 8)
    mask = torch.rand(6, 6) < 0.2
    mask.fill_diagonal_(False)
    i, j = torch.arange(6)[:, None], torch.arange(6)[None]
    seen = mask | (j - i < -2) | (j - i > 1)
    out = torch_npu.npu_fusion_attention(
        q, q, q, 2, "BNSD", atten_mask=mask, pre_tockens=2, next_tockens=1
    )[0]
    assert_close(out.double(), plain(q, q, q, 1.0, seen)[0], rtol=0, atol=1e-5)


def test_fusion_attention_of_rows_that_follow_each_other():
    q, k = torch.randn(7, 4, 8), torch.randn(9, 2, 8)
    out, top, total, *_ = torch_npu.npu_fusion_attention(
        q.npu(),
        k.npu(),
        k.npu(),
        4,
        "TND",
        scale=0.5,
        sparse_mode=3,
        atten_mask=MASK.npu(),
        actual_seq_qlen=(3, 7),
        actual_seq_kvlen=[4, 9],
    )
    assert top.shape == total.shape == (7, 4, 8)
    for (a, b), (c, d) in (((0, 3), (0, 4)), ((3, 7), (4, 9))):
        x, y = (t.transpose(0, 1)[None] for t in (q[a:b], k[c:d]))
        want = plain(x, y, y, 0.5, hidden(3, b - a, d - c))
        got = out[a:b].cpu().double().transpose(0, 1)[None]
        assert_close(got, want[0], rtol=0, atol=1e-5)
        got = top[a:b, :, 0].cpu().double().T[None]
        assert_close(got, want[1], rtol=0, atol=1e-5)


def test_fusion_attention_gradients():
    given = [torch.randn(1, 2, 4, 8, dtype=torch.float64) for _ in "qkv"]
    given = [t.requires_grad_() for t in given]

    def attend(q, k, v):
        return torch.ops.npu.npu_fusion_attention(
            q, k, v, 2, "BNSD", scale=0.4, sparse_mode=2, atten_mask=MASK
        )[0]

    assert torch.autograd.gradcheck(attend, given)


def test_fusion_attention_dropout():
    q = torch.randn(1, 2, 64, 8)
    v = torch.ones(1, 2, 64, 8)
    found = torch_npu.npu_fusion_attention(q, q, v, 2, "BNSD", keep_prob=0.5)
    assert abs(found[0].mean().item() - 1) < 0.1  # what is kept is doubled
    assert found[0].std() > 0.01


def test_fusion_attention_compiled():
    def layer(q, k, v):
        return torch_npu.npu_fusion_attention(
            q * 2, k, v, 4, "BSND", scale=0.25, sparse_mode=3, atten_mask=MASK
        )[0].relu()

    q, k, v = (torch.randn(2, 6, 4, 16) for _ in "qkv")
    assert_close(
        compiled(layer, fullgraph=True)(q, k, v),
        layer(q, k, v),
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("change", "text"),
    (
        ({"input_layout": "NDS"}, "input_layout is 'NDS'"),
        ({"head_num": 0}, "head_num is 0"),
        ({"sparse_mode": 6}, "sparse_mode is 6"),
        ({"sparse_mode": 2}, "atten_mask with sparse_mode 2"),
        ({"sparse_mode": 1}, "atten_mask is missing"),
        ({"pse": torch.ones(1)}, "pse is not supported"),
        ({"padding_mask": torch.ones(1)}, "padding_mask is not supported"),
        ({"keep_prob": 0.0}, "keep_prob must be"),
        ({"key": torch.ones(1, 3, 4, 8)}, "key has 3 heads"),
        ({"input_layout": "TND"}, "query has 4 dimensions"),
    ),
)
def test_fusion_attention_refuses(change, text):
    q = torch.randn(1, 4, 5, 8)
    call = {"query": q, "key": q, "value": q}
    call |= {"head_num": 4, "input_layout": "BNSD", **change}
    with pytest.raises(RuntimeError, match=text):
        torch_npu.npu_fusion_attention(**call)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_rotary_mul(dtype):
    x = torch.randn(2, 3, 4, 8).to(dtype)
    angle = torch.randn(1, 3, 1, 4).double()
    half, each = torch.cat([angle] * 2, -1), angle.repeat_interleave(2, -1)
    for mode, a in (("half", half), ("interleave", each)):
        cos, sin = a.cos().to(dtype), a.sin().to(dtype)
        got = torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode)
        pairs = x.double().unflatten(-1, (2, 4) if mode == "half" else (4, 2))
        axis = -2 if mode == "half" else -1
        z = torch.complex(*pairs.unbind(axis)) * torch.polar(
            torch.ones_like(angle), angle
        )
        want = torch.stack((z.real, z.imag), axis).flatten(-2)
        assert got.dtype is dtype and got.is_npu
        close = 1e-5 if dtype is torch.float32 else 5e-2
        assert_close(got.cpu().double(), want, rtol=0, atol=close)
    with pytest.raises(RuntimeError, match="rotary_mode is 'quarter'"):
        torch_npu.npu_rotary_mul(x, x, x, "quarter")
    with pytest.raises(RuntimeError, match="odd last size"):
        torch_npu.npu_rotary_mul(x[..., :7], x[..., :7], x[..., :7])


def test_rotary_mul_gradients():
    given = [torch.randn(2, 6, dtype=torch.float64) for _ in "xcs"]
    for mode in ("half", "interleave"):
        assert torch.autograd.gradcheck(
            lambda *a, mode=mode: torch.ops.npu.npu_rotary_mul(*a, mode),
            [t.requires_grad_() for t in given],
        )


def test_fused_attention_of_the_device():
    """The operator for inference: lengths are lists, results the device's."""
    q = torch.randn(2, 3, 4, 16)
    k, v = (torch.randn(2, 7, 2, 16) for _ in "kv")
    kw = {
        "num_heads": 4,
        "num_key_value_heads": 2,
        "input_layout": "BSND",
        "scale": 0.25,
        "softmax_lse_flag": True,
    }
    want = reference(q, k, v, actual_seq_lengths_kv=[3, 7], **kw)
    op = torch_npu.npu_fused_infer_attention_score

    def call(q, k, v):
        return op(q, k, v, actual_seq_lengths_kv=[3, 7], **kw)

    given = [t.npu() for t in (q, k, v)]
    for found in (call(*given), compiled(call)(*given)):
        for got, value in zip(found, want, strict=True):
            assert got.is_npu
            assert_close(got.cpu().double(), value, rtol=0, atol=1e-5)
    size = torch_npu._npu_fused_infer_attention_score_get_max_workspace(
        *given, **kw
    )
    assert size.is_npu and size.numel() == 0


# ---- the names that scripts of language models use ----


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_prompt_and_incre_attention(mode):
    b, rows, heads, groups, width, longest = 2, 5, 4, 2, 16, 12
    kw = {"num_heads": heads, "num_key_value_heads": groups}
    kw |= {"input_layout": "BSND", "scale_value": 0.25}
    q, q1 = torch.randn(b, rows, heads, width), torch.randn(b, 1, heads, width)
    k, v = (torch.randn(b, rows, groups, width) for _ in "kv")
    cache = [torch.randn(b, longest, groups, width) for _ in "kv"]
    later = torch.ones(rows, rows, dtype=torch.bool).triu(1)

    def prompt(q, k, v, mask):
        return torch_npu.npu_prompt_flash_attention(
            q, k, v, atten_mask=mask, next_tokens=65535, **kw
        )

    def incre(q, k, v):
        return torch_npu.npu_incre_flash_attention(
            q, k, v, actual_seq_lengths=[7, 9], **kw
        )

    kw_fused = {"scale" if n == "scale_value" else n: x for n, x in kw.items()}
    whole, _ = reference(q, k, v, atten_mask=later, **kw_fused)
    one, _ = reference(q1, *cache, actual_seq_lengths_kv=[7, 9], **kw_fused)
    for fn, given, want in (
        (prompt, (q, k, v, later), whole),
        (incre, (q1, *cache), one),
    ):
        given = [t.npu() for t in given]
        for run in (fn, compiled(fn, mode=mode)):
            found = run(*given)
            assert found.is_npu and found.shape == want.shape
            assert_close(found.cpu().double(), want, rtol=0, atol=1e-5)
    with pytest.raises(RuntimeError, match="padding_mask must be None"):
        torch_npu.npu_prompt_flash_attention(q, k, v, padding_mask=later, **kw)


def test_rotary_of_query_and_key():
    q, k = torch.randn(2, 3, 4, 8).npu(), torch.randn(2, 3, 2, 8).npu()
    cos, sin = torch.randn(2, 3, 1, 8).npu(), torch.randn(2, 3, 1, 8).npu()

    def turn(q, k):
        return torch_npu.npu_apply_rotary_pos_emb(q, k, cos, sin, "BSND")

    want = [torch_npu.npu_rotary_mul(t, cos, sin) for t in (q, k)]
    assert_close(turn(q, k), tuple(want), rtol=0, atol=0)
    assert_close(compiled(turn)(q, k), tuple(want))
    with pytest.raises(RuntimeError, match="layout is 'TND'"):
        torch_npu.npu_apply_rotary_pos_emb(q, k, cos, sin, "TND")
