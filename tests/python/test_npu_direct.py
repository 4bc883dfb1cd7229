"""Logs written down as graphs, against the same logs traced; and the sizes of
results, found out once."""

import pytest
import torch
from test_npu_fuzz import program
from test_npu_record import FUNCTIONS, capture, compare

from torchair import compat
from torchair.npu import record, trace
from torchair.npu.sizes import Known, key_of, leaves, mapped

# not row-major; lazily conjugated; a functional form of another name
TRACED = {"strided", "complex", "batch_norm"}


@pytest.fixture
def refuse(monkeypatch):
    def trace_functional(*_):
        raise AssertionError("traced")

    monkeypatch.setattr(compat, "trace_functional", trace_functional)


@pytest.fixture
def traced(monkeypatch):
    monkeypatch.setattr(trace, "graph_of", lambda *_: None)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - TRACED))
def test_plain_logs_are_not_traced(name, refuse):
    compare(*FUNCTIONS[name], replays=1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tracing_does_the_same(name, traced):
    compare(*FUNCTIONS[name], replays=2)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_traced(seed, traced):
    args = torch.randn(4, 6), torch.randn(4, 6), torch.randn(3, 4, 6)
    compare(program(seed), *args, replays=2)


def test_a_model_with_a_cache_is_not_traced(refuse):
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    layer = layer.eval().requires_grad_(False)

    def step(cache, x, at):
        y = layer(x)
        cache[:, 2:4].copy_(y[:, :2])
        cache.index_copy_(1, at, y[:, :1])
        torch.cumsum(cache, 1, out=x.new_empty(2, 6, 8))
        return cache.sum(1).relu_()

    args = torch.zeros(2, 6, 8), torch.randn(2, 3, 8), torch.tensor([5])
    compare(step, *args)


def test_writes_through_every_view(refuse):
    def views(x):
        x.select(1, 0).add_(1)
        x.diagonal().mul_(2)
        x.t().unsqueeze(0).squeeze(0)[1].fill_(3)
        x.permute(1, 0).transpose(0, 1).narrow(0, 1, 2).neg_()
        x.view(2, 8).detach()[1, ::2].zero_()
        a, b = x.split(2)
        return a + b

    compare(views, torch.randn(4, 4))


def test_results_of_another_type_are_traced():
    """lt_ leaves floats, its functional form gives bools."""
    compare(lambda x, y: x.lt_(y), torch.randn(5), torch.randn(5))
    out = torch.zeros(3)
    compare(lambda x, o: torch.gt(x, 0, out=o), torch.randn(3), out)


# ---- sizes ----


def test_sizes_are_found_out_once(monkeypatch):
    found = []
    plain = record.Recorder._made
    monkeypatch.setattr(record, "_known", Known())
    monkeypatch.setattr(
        record.Recorder,
        "_made",
        lambda self, func, *rest: (
            found.append(func) or plain(self, func, *rest)
        ),
    )
    x = torch.randn(3)
    capture(lambda: x.sin().sin() + 1)
    capture(lambda: x.sin() + 1)
    capture(lambda: torch.randn(4).sin())
    assert [str(f) for f in found].count("aten.sin.default") == 2
    assert [str(f) for f in found].count("aten.add.Tensor") == 1


def test_a_refused_call_is_refused_again():
    for _ in range(2):
        with pytest.raises(RuntimeError, match="depend on data"):
            capture(lambda: torch.ones(3).nonzero())


def test_keys_tell_calls_apart():
    x, y = torch.ones(2), torch.ones(2)
    calls = [
        ((x, 1), {}),
        ((x, 1.0), {}),
        ((x, True), {}),
        ((x, x), {}),
        ((x, y), {}),
        ((x, torch.ones(2, 1)), {}),
        ((x, torch.ones(2).half()), {}),
        (([1, 2], [3]), {}),
        (([1], [2, 3]), {}),
        ((x,), {"dim": 1}),
        ((x,), {"axis": 1}),
        ((torch.ones(4)[::2], 1), {}),
    ]
    keys = {key_of(torch.add, *c) for c in calls}
    assert len(keys) == len(calls)
    assert key_of(torch.add, (torch.zeros(2), 1), {}) in keys
    assert key_of(torch.add, (torch.Generator(),), {}) is None


def test_the_default_type_is_part_of_a_key():
    x = torch.arange(3)
    compare(lambda x: x * 0.5, x)
    torch.set_default_dtype(torch.float64)
    try:
        compare(lambda x: x * 0.5, x)
    finally:
        torch.set_default_dtype(torch.float32)


def test_old_sizes_go(monkeypatch):
    monkeypatch.setattr(Known, "_LIMIT", 2)
    known = Known()
    for i in range(3):
        known.keep(i, str(i))
    known.keep(None, "nobody")
    assert known.find(2) == "2" and known.find(0) is None
    assert known.find(None) is None


def test_trees():
    tree = (1, [2.0, {"a": 3, "b": (4.0,)}])
    assert list(leaves(tree)) == [1, 2.0, 3, 4.0]
    assert mapped(tree, float, str) == (1, ["2.0", {"a": 3, "b": ("4.0",)}])
