"""Masks of attention that are broadcast along keys."""

import pytest
import torch
from helpers import compiled, recorded
from torch._subclasses import FakeTensorMode

from torchair import masks

attend = torch.nn.functional.scaled_dot_product_attention
# [batch, 1, queries, keys] before they are expanded
KEYS, QUERIES = (2, 1, 4, 1), (2, 1, 1, 4)


def layers(mask_of, device):
    """Two calls that look at one mask."""
    graph = torch.fx.Graph()
    q, mask = graph.placeholder("q"), graph.placeholder("mask")
    with FakeTensorMode():
        fake = torch.empty(mask_of, device=device).expand(2, 1, 4, 4)
    mask.meta["example_value"] = fake
    first = graph.call_function(attend, (q, q, q, mask))
    last = graph.call_function(attend, (first, q, q), {"attn_mask": mask})
    graph.output(last)
    return torch.fx.GraphModule(torch.nn.Module(), graph), first, last


def test_a_mask_is_copied_once():
    gm, first, last = layers(KEYS, "cuda")
    masks.lay(gm)
    (copy,) = gm.graph.find_nodes(op="call_method", target="contiguous")
    assert first.args[3] is copy and last.kwargs["attn_mask"] is copy


@pytest.mark.parametrize(
    "mask_of, device", [(KEYS, "cpu"), (QUERIES, "cpu"), (QUERIES, "cuda")]
)
def test_others_stay(mask_of, device):
    gm, *_ = layers(mask_of, device)
    masks.lay(gm)
    assert not gm.graph.find_nodes(op="call_method", target="contiguous")


def step(q, k, v):
    rows = torch.arange(q.shape[2], device=q.device)[None, None, :, None]
    mask = (rows >= 0).expand(q.shape[0], -1, -1, k.shape[2])
    return attend(q, k, v, mask).square().sum()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gradients_are_those_of_a_fused_kernel():
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    torch._dynamo.reset()
    with recorded() as records:
        run = compiled(step)
        for _ in range(3):
            grads = torch.autograd.grad(run(*ours), ours)
    hosts = " ".join(h.op for r in records for h in r.hosts)
    assert "attention_backward" in hosts
    for got, want in zip(
        grads, torch.autograd.grad(step(*exact), exact), strict=True
    ):
        error = (got.double() - want).norm() / want.norm()
        assert error < 2e-2
