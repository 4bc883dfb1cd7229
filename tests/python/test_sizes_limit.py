"""Specialisations for sizes of a dynamic graph: a limit, and what is said."""

import pytest
import torch
from helpers import in_threads
from torch import nn

import torchair


def _compiled(limit=None):
    config = torchair.CompilerConfig()
    if limit is not None:
        config.sizes.limit = limit
    backend = torchair.get_npu_backend(compiler_config=config)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    return model, torch.compile(model, backend=backend, dynamic=True)


def _stats(fn):
    (graph,) = torchair.explain(fn).graphs
    return graph.stats


@torch.no_grad()
@pytest.mark.parametrize("limit, kept, dropped", [(None, 20, 0), (5, 5, 15)])
def test_the_longest_unused_goes(limit, kept, dropped):
    model, fn = _compiled(limit)
    for n in range(2, 22):
        x = torch.randn(n, 8)
        torch.testing.assert_close(fn(x), model(x))
    stats = _stats(fn)
    assert (stats["specialisations"], stats["dropped"]) == (kept, dropped)
    said = str(torchair.explain(fn))
    assert f"sizes: {kept} classes are kept" in said
    assert ("15 went, the longest unused first" in said) == (dropped > 0)


@torch.no_grad()
def test_results_of_dropped_sizes_stay():
    model, fn = _compiled(2)
    inputs = [torch.randn(n, 8) for n in range(2, 32)]
    results = [fn(x) for x in inputs]
    for x, y in zip(inputs, results, strict=True):
        torch.testing.assert_close(y, model(x))


@torch.no_grad()
def test_threads_drop_what_others_run():
    model, fn = _compiled(2)
    fn(torch.randn(2, 8)), fn(torch.randn(3, 8))

    def work(seed):
        inputs = [torch.randn(2 + (seed * 7 + i) % 9, 8) for i in range(9)]
        with torch.no_grad():
            want = [model(x) for x in inputs]
            for _ in range(30):
                for x, y in zip(inputs, want, strict=True):
                    torch.testing.assert_close(fn(x), y)

    in_threads(range(4), work)
    # graphs: threads that compile at once may each have made one
    graphs = torchair.explain(fn).graphs
    assert sum(g.stats["dropped"] for g in graphs) > 100


@pytest.mark.parametrize("wrong", [-1, "many", True, 2.0])
def test_a_wrong_limit_is_refused(wrong):
    with pytest.raises(ValueError, match=r"sizes\.limit"):
        torchair.CompilerConfig().sizes.limit = wrong
