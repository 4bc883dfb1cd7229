"""npu_fused_infer_attention_score, both versions, against float64."""

import pytest
import torch
from fused_reference import reference
from fused_samples import Sample

from torchair import attention

attention.register("npu")
npu = torch.ops.npu
SAMPLES = 400


def names(version):
    return "npu_fused_infer_attention_score" + ("_v2" if version == 2 else "")


def check(s, got):
    """Exact but for one rounding of the result, sums of scores in floats, and
    for results of 8 bits."""
    want, lse = reference(s.q, s.k, s.v, **s.named)
    out, sums = got
    assert out.shape == want.shape
    if want.dtype is torch.int8:
        assert out.dtype is torch.int8
        assert (out.int() - want.int()).abs().max() <= 1
        return
    half = torch.float16 if s.kind == "full" else s.dtype
    assert out.dtype is half
    eps = torch.finfo(half).eps
    slack = 3e-5 if s.kind != "full" else 2e-2  # a weight rounded up or down
    torch.testing.assert_close(out.double(), want, rtol=eps + 1e-5, atol=slack)
    if not s.kw.get("softmax_lse_flag"):
        assert tuple(sums.shape) == (0,)
        return
    assert sums.dtype is torch.float32 and sums.shape == lse.shape
    torch.testing.assert_close(sums.double(), lse, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(SAMPLES))
def test_eager(seed):
    s = Sample(seed)
    op = getattr(npu, names(s.version))
    check(s, op(s.q, s.k, s.v, **s.named))
