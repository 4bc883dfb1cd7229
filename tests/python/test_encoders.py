"""nn.TransformerEncoderLayer and nn.MultiheadAttention for inference, which
torch runs as one operator each."""

import helpers
import pytest
import torch
from helpers import assert_same, compiled
from torch import nn

from torchair import backend

WIDTH, HEADS, BATCH, TOKENS = 16, 4, 2, 5
MODES = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
ATEN = torch.ops.aten


def tensor(*shape, dtype=torch.float32):
    made = torch.randn(shape, generator=helpers.seeded(5))
    return made.to(helpers.DEVICE, dtype)


def filled(module, dtype=torch.float32):
    """Norms and biases, too, are numbers of their own."""
    made = helpers.seeded(7)
    for parameter in module.parameters():
        value = torch.randn(parameter.shape, generator=made) * 0.3
        parameter.data = value.to(helpers.DEVICE, dtype)
    return module.eval()


def layer(dtype=torch.float32, **how):
    made = nn.TransformerEncoderLayer(WIDTH, HEADS, 24, batch_first=True, **how)
    return filled(made, dtype)


def padding():
    mask = torch.zeros(BATCH, TOKENS, dtype=torch.bool, device=helpers.DEVICE)
    mask[0, 3:] = True
    return mask


def later():
    """Of pairs: keys behind the query do not count."""
    return torch.ones(
        TOKENS, TOKENS, dtype=torch.bool, device=helpers.DEVICE
    ).triu(1)


MASKS = {
    "none": {},
    "keys": {"src_key_padding_mask": padding},
    "pairs": {"src_mask": later},
    "both": {"src_mask": later, "src_key_padding_mask": padding},
}


def checked(run, *args, mode="max-autotune", **keywords):
    """The call's numbers are eager's, and the engine's own."""
    with torch.no_grad():
        want = run(*args, **keywords)
        got = compiled(run, mode)(*args, **keywords)
    assert_same(got, want)
    assert not backend.records[-1].hosts
    return got


@MODES
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer(mode, masks, norm_first):
    how = {name: make() for name, make in MASKS[masks].items()}
    run = layer(norm_first=norm_first)
    checked(run, tensor(BATCH, TOKENS, WIDTH), mode=mode, **how)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_dtypes(dtype):
    run = layer(dtype, activation="gelu")
    checked(run, tensor(BATCH, TOKENS, WIDTH, dtype=dtype))


def test_layers_of_an_encoder():
    run = nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)
    run = filled(run)
    checked(run, tensor(BATCH, TOKENS, WIDTH), src_key_padding_mask=padding())


class Attention(nn.Module):
    """The operator as nn.MultiheadAttention calls it outside of Dynamo."""

    def __init__(self):
        super().__init__()
        self.of = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, query, key, value, *how):
        of, out = self.of, self.of.out_proj
        return ATEN._native_multi_head_attention.default(
            query,
            key,
            value,
            WIDTH,
            HEADS,
            of.in_proj_weight,
            of.in_proj_bias,
            out.weight,
            out.bias,
            *how,
        )


@MODES
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_attention(mode, weights, average):
    x = tensor(BATCH, TOKENS, WIDTH)
    how = padding(), weights, average, 1
    found, found_weights = checked(
        filled(Attention()), x, x, x, *how, mode=mode
    )
    assert found.shape == x.shape and (found_weights is not None) == weights


@pytest.mark.parametrize(
    "mask, kind",
    [
        (later, 0),
        (lambda: later().float() * -3, 0),
        (lambda: later().expand(BATCH, HEADS, TOKENS, TOKENS), 2),
        (lambda: later().expand(BATCH, HEADS, TOKENS, TOKENS), None),
    ],
)
def test_masks_of_attention(mask, kind):
    if kind is None and torch.device(helpers.DEVICE).type == "cuda":
        pytest.skip("eager of a GPU wants a kind of mask")
    x = tensor(BATCH, TOKENS, WIDTH)
    checked(filled(Attention()), x, x, x, mask(), True, False, kind)


def test_other_keys_than_queries():
    query = tensor(BATCH, TOKENS, WIDTH)
    run = filled(Attention())
    checked(run, query, query.flip(0), query.flip(1) * 2)


@pytest.mark.parametrize("weights", [False, True])
def test_a_row_without_keys_is_zero(weights):
    """As scaled_dot_product_attention has it; the operator gives NaN."""
    run, x = filled(Attention()), tensor(BATCH, TOKENS, WIDTH)
    mask = padding()
    mask[1] = True
    args = x, x, x, mask, weights, True, 1
    with torch.no_grad():
        want, _ = run(*args)
        got, found = compiled(run)(*args)
    assert want[1].isnan().all()
    assert_same(got[0], want[0])
    bias = run.of.out_proj.bias.detach()
    assert_same(got[1], bias.expand(TOKENS, WIDTH).contiguous())
    assert not weights or not found[1].any()


def test_the_module():
    run = filled(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    x = tensor(BATCH, TOKENS, WIDTH)
    checked(run, x, x, x, key_padding_mask=padding(), attn_mask=later())
