"""Operators of quantized_decomposed, of models that PT2E has quantised."""

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401 (defines them)
from helpers import compiled, hosts, recorded, seeded

ops = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
UINT8 = (0, 255, torch.uint8)
INT4 = (-8, 7, torch.int8)


def _tensors(x, s, z):
    q = ops.quantize_per_tensor(x, 0.03, 2, *INT8)
    return q, ops.dequantize_per_tensor(q, 0.03, 2, *INT8)


def _unsigned(x, s, z):
    q = ops.quantize_per_tensor(x, 0.05, 120, *UINT8)
    low = torch.bfloat16
    return q, ops.dequantize_per_tensor(q, 0.05, 120, *UINT8, out_dtype=low)


def _channels(x, s, z):
    q = ops.quantize_per_channel(x, s, z, 1, *INT8)
    return q, ops.dequantize_per_channel(q, s, z, 1, *INT8)


def _symmetric(x, s, z):
    q = ops.quantize_per_channel(x, s, torch.zeros_like(z), 1, *INT8)
    return x @ ops.dequantize_per_channel(q, s, None, 1, *INT8).t()


def _tokens(x, s, z):
    s, z = x.abs().amax(-1, keepdim=True) / 127, torch.zeros_like(x[:, :1])
    q = ops.quantize_per_token(x, s, z, *INT8)
    return q, ops.dequantize_per_token(q, s, z, *INT8, torch.float32)


def _groups(x, s, z):
    s = x.view(len(x), -1, 32).abs().amax(-1) / 7
    z = torch.zeros_like(s)
    q = ops.quantize_per_channel_group(x, s, z, *INT4, 32)
    return ops.dequantize_per_channel_group(q, s, z, *INT4, 32, torch.float32)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "fn", [_tensors, _unsigned, _channels, _symmetric, _tokens, _groups]
)
def test_what_pt2e_writes_is_part_of_the_graph(mode, fn):
    g = seeded(3)
    s = torch.rand(64, generator=g) * 0.05 + 0.01
    z = torch.randint(-9, 9, (64,), generator=g)
    run = compiled(lambda x: fn(x * 2, s, z), mode)
    with recorded() as found:
        for n in (6, 9, 4):
            x = torch.randn(n, 64, generator=g)
            torch.testing.assert_close(run(x), fn(x * 2, s, z))
    assert not hosts(found), hosts(found)
