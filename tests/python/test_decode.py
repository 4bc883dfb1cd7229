"""A Llama of 15 million parameters writes 200 tokens, as `make bench` times it:
after the second step nothing is captured, compiled or allocated. What others
have left in the memory that all captures share may go back to the system."""

import sys
from pathlib import Path

import pytest
import torch
from helpers import DEVICE
from torch._dynamo.utils import counters

from torchair import _native, backend

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import tiny_llama as llama  # noqa: E402

TOKENS = 200
SHAPE = llama.Config(32000, 288, 6, 6, 6, 768, 256, base=500000.0)


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    with DEVICE:
        return llama.Decoder(llama.Llama(SHAPE).eval())


def counts(program):
    """What may not change any more, and what may only become less."""
    calls = program.stats()
    capture = calls.pop("capture")
    pool = capture.pop("pool")
    everything = _native.pool_stats()
    same = {
        "compiled": counters["stats"]["unique_graphs"],
        "specialised": calls["specialisations"],
        **{w: capture[w] for w, _ in _native.call_classes() if w != "replayed"},
        "out": pool["live_blocks"],
    }
    kept = everything["kept_bytes"] + everything["live_bytes"]
    return same, {"mapped": pool["mapped_bytes"], "kept": kept}


def assert_no_more(program, before):
    same, memory = counts(program)
    assert same == before[0]
    assert all(memory[name] <= before[1][name] for name in memory), memory


@torch.no_grad()
def test_two_hundred_tokens(decoder):
    torch._dynamo.reset()
    torch.set_default_device(None)  # Dynamo breaks graphs at it: unflatten()
    programs = []
    step = torch.compile(
        decoder, backend=backend.torchair, mode="reduce-overhead"
    )
    tokens = torch.randint(0, SHAPE.vocabulary, (TOKENS, 1, 1), device=DEVICE)
    at = torch.arange(TOKENS, device=DEVICE).unsqueeze(1)
    with backend.collect([], programs):
        for i in range(2):
            logits = step(tokens[i], at[i])
        before = counts(programs[-1])
        for i in range(2, TOKENS):
            logits = step(tokens[i], at[i])
            if i % 50 == 0:
                assert_no_more(programs[-1], before)
    assert_no_more(programs[-1], before)
    assert len(programs) == 1
    calls = step.forward._torchair_dispatcher.stats()
    assert calls["dispatched"] == TOKENS - 1
    assert all(c._version >= TOKENS for c in caches(decoder))

    got = [logits, *(c.clone() for c in caches(decoder))]
    for c in caches(decoder):
        c.zero_()
    for i in range(TOKENS):
        logits = decoder(tokens[i], at[i])
    torch.testing.assert_close(got, [logits, *caches(decoder)])


def caches(decoder):
    named = decoder.named_buffers()
    return [b for name, b in named if name.startswith(("key", "value"))]
