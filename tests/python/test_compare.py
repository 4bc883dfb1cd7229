"""torchair.compare: names the first node that is worse than eager."""

import pytest
import torch

import torchair
from torchair import schema


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.b = torch.nn.Linear(32, 4)

    def forward(self, x):
        return torch.softmax(self.b(self.norm(torch.sin(self.a(x)))), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_nothing_is_worse(dtype, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    model = Small().to(dtype)
    with torch.no_grad():
        found = torchair.compare(
            model, torch.randn(8, 16, dtype=dtype), compiler_config=config
        )
    assert found.first_worse is None and not found.fallbacks
    by_node = {r.node: r for r in found.rows}
    sin = by_node["sin"]  # fused with what follows: seen all the same
    assert sin.step.startswith("region") and "+" in sin.step
    assert 0 < sin.compiled_error < 1e-2
    assert sin.shape == (8, 32) and sin.at.startswith("test_compare.py:")
    assert "no value is more than" in str(found)


def test_training_compares_both_graphs():
    found = torchair.compare(Small(), torch.randn(8, 16))
    graphs = {r.graph.split("_")[0] for r in found.rows}
    assert graphs == {"forward", "backward"}
    assert found.first_worse is None
    assert found.same_bits


def test_gradients_are_more_than_rounding_errors():
    """As they are where the sum of a normalised row is differentiated."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    found = torchair.compare(model, torch.randn(4, 8))
    assert len(found.rows) > 6
    assert max(r.eager_error or 0 for r in found.rows) < 1e-4


@pytest.fixture
def wrong_sine(monkeypatch):
    """The engine takes the row of cos for sin."""
    plain = schema.find_row

    def find(target):
        if target is torch.ops.aten.sin.default:
            target = torch.ops.aten.cos.default
        return plain(target)

    monkeypatch.setattr(schema, "find_row", find)


def test_the_first_wrong_node_is_named(wrong_sine, tmp_path):
    with torch.no_grad():
        found = torchair.compare(Small(), torch.randn(8, 16))
    first = found.first_worse
    assert first.node == "sin" and first.target == "aten.sin.default"
    assert first.compiled_error > 0.1 > first.eager_error
    assert first.dtype == "float32" and first.at.startswith("test_compare.py")
    assert "first worse than eager: sin" in str(found)
    assert "! sin" in str(found)
    assert found.as_dict()["first_worse"]["node"] == "sin"


def test_inputs_buffers_and_gradients_stay():
    model = torch.nn.BatchNorm1d(4).train()
    x = torch.randn(8, 4, requires_grad=True)
    before = model.running_mean.clone(), model.num_batches_tracked.clone()
    found = torchair.compare(model, x)
    assert found.rows
    assert torch.equal(model.running_mean, before[0])
    assert torch.equal(model.num_batches_tracked, before[1])
    assert x.grad is None and model.weight.grad is None


def test_written_inputs_are_compared():
    def fn(cache, x):
        cache[1:3] = torch.relu(x)
        return cache * 2

    cache = torch.zeros(4, 3)
    found = torchair.compare(fn, cache, torch.randn(2, 3))
    assert found.first_worse is None and found.same_bits
    assert not cache.any()


def test_results_of_host_nodes_are_given():
    def fn(x):
        return torch.linalg.inv(x.sin()), x * 2

    found = torchair.compare(fn, torch.randn(8, 8))
    assert found.same_bits and found.first_worse is None


def test_decisions_and_random_numbers_are_eagers():
    def fn(x):
        y = torch.dropout(x, 0.5, True)
        return x[torch.argmax(y)], (y > 0.1) & (x > 0)

    found = torchair.compare(fn, torch.randn(64))
    assert found.first_worse is None
    notes = [r.note for r in found.rows]
    assert any("random" in n for n in notes)
    assert all(
        r.compiled_error == 0
        for r in found.rows
        if r.dtype in ("bool", "int64") and r.compiled_error is not None
    )


@pytest.mark.host("torch's attention of a GPU has no float64")
def test_attention_that_drops_nothing_has_an_exact_value():
    """It is tagged as random; its error would be called worse than none."""

    def fn(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v).relu()

    with torch.no_grad():
        found = torchair.compare(fn, *torch.randn(3, 2, 4, 16, 8))
    assert not any("random" in r.note for r in found.rows)
    row = next(r for r in found.rows if "attention" in r.step)
    assert row.eager_error > 0 and row.compiled_error > 0
    assert found.first_worse is None


def test_what_torch_runs_is_said():
    def fn(x):
        return torch.nonzero(x), x + 1

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found = torchair.compare(fn, torch.ones(3))
    assert found.fallbacks and "torch ran graph" in str(found)


def test_the_program_is_not_watched_afterwards():
    x = torch.randn(8, 16)
    model = Small().eval()
    with torch.no_grad():
        torchair.compare(model, x)
        run = torch.compile(model, backend=torchair.get_npu_backend())
        from helpers import recorded

        with recorded() as found:
            run(x)
    assert found[0].program().watch is None
    assert found[0].program().stats()["runs"] == 1
