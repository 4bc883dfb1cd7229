"""Log lines and counters of captures."""

import logging
import warnings

import pytest
import torch
from helpers import assert_same

import torchair
from torchair import backend, events
from torchair.capture import CaptureOptions


@pytest.fixture
def counters():
    """The counters of the graphs compiled from here on, by their last part."""
    from torch._dynamo.utils import counters as all_counters

    all_counters["npugraph_ex"].clear()

    def read():
        return {
            name.rsplit("_graph_", 1)[0]: n
            for name, n in all_counters["npugraph_ex"].items()
        }

    yield read
    all_counters["npugraph_ex"].clear()


@pytest.fixture
def lines(caplog):
    with caplog.at_level(logging.DEBUG, logger="torchair"):
        yield lambda: [
            r.getMessage() for r in caplog.records if r.name == "torchair"
        ]


def compile_with(fn, dynamic=None, **chosen):
    return torch.compile(
        fn, backend=backend.npugraph_ex, options=chosen, dynamic=dynamic
    )


def has(lines, text):
    return any(text in line for line in lines)


def test_a_capture_and_a_replay(lines, counters):
    run = compile_with(lambda x: x * 2 + 1)
    x = torch.randn(4)
    for _ in range(3):
        assert_same(run(x), x * 2 + 1)
    assert counters() == {"captured": 1}
    said = lines()
    for text in (
        "No find captured AclGraph",
        "memory pool reuse is enable",
        "Success to capture fx_graph graph_",
        "After capturing fx_graph",
        "with the updated node num {0}",
        "Replay AclGraph and update input params successfully",
        "no need to reconstruct output tensors for",
        "The current AclGraph no needs to be recaptured",
        "[remove_cat_ops] Found 0 cat node(s)",
    ):
        assert has(said, text), text
    assert sum("Find captured AclGraph{id: " in line for line in said) == 2


def test_several_sizes(lines, counters):
    run = compile_with(lambda x: x * 2 + 1, dynamic=True)
    for size in (3, 5, 3):
        run(torch.ones(size))
    assert counters() == {"captured": 2}
    for text in (
        "Start setting to original memory state",
        "When mempool reuse is enabled in fx_graph",
        "After reconstructing fx_graph",
    ):
        assert has(lines(), text), text


def test_reuse_is_switched_off(lines):
    run = compile_with(lambda x: x + 1, reuse_graph_pool_in_same_fx=False)
    run(torch.ones(2))
    assert has(lines(), "memory pool reuse is disable")


def test_force_recapture(lines, counters):
    run = compile_with(lambda x: x + 1, force_recapture=True, capture_limit=1)
    for _ in range(3):
        assert_same(run(torch.ones(2)), torch.full((2,), 2.0))
    found = counters()
    assert found["captured"] == 1
    assert found["recapture_due_to_force_recapture"] == 2
    assert has(lines(), "The current AclGraph needs to be recaptured")


def test_a_mutated_input_that_moves(counters):
    run = compile_with(lambda cache, x: cache.add_(x).sum())
    x = torch.ones(3)
    held = [torch.zeros(3), torch.zeros(3)]
    for cache in held:
        run(cache, x)
    found = counters()
    assert found["captured"] == 1
    assert found["recapture_due_to_mutated_input_change"] == 1
    assert_same(held[1], x)


def test_a_key_beyond_the_limit(counters):
    run = compile_with(lambda x: x + 1, dynamic=True, capture_limit=1)
    run(torch.ones(3))
    with pytest.warns(UserWarning, match="capture_limit reached"):
        assert_same(run(torch.ones(5)), torch.full((5,), 2.0))
    assert_same(run(torch.ones(3)), torch.full((3,), 2.0))
    assert counters() == {"captured": 1}


@pytest.mark.parametrize("reuse", [True, False])
def test_memory_that_captures_share(reuse, lines):
    run = compile_with(
        lambda x: x + 1, dynamic=True, reuse_graph_pool_in_same_fx=reuse
    )
    for size in (3, 5):
        run(torch.ones(size))
    said = lines()
    assert has(said, "memory pool reuse is enable") is reuse
    assert has(said, "memory pool reuse is disable") is not reuse
    assert has(said, "Start setting to original memory state") is reuse
    assert has(said, "After reconstructing fx_graph") is reuse


def test_overwritten_results_are_announced_once():
    run = compile_with(lambda x: x + 1, dynamic=True, clone_output=False)
    run(torch.ones(3))
    with pytest.warns(UserWarning, match="Because acl graph fixes memory"):
        run(torch.ones(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(torch.ones(7))


def test_a_quiet_log_is_not_told_of_replays():
    level = events.logger.level
    events.logger.setLevel(logging.ERROR)
    try:
        assert not events.report(CaptureOptions()).trace
        events.logger.setLevel(logging.DEBUG)
        assert events.report(CaptureOptions()).trace
    finally:
        events.logger.setLevel(level)


def test_cats_are_counted(lines):
    run = compile_with(lambda x: torch.cat([x, x + 1]) * 2)
    run(torch.ones(2))
    assert has(lines(), "[remove_cat_ops] Found 1 cat node(s)")


def test_one_logger_by_three_names():
    from npugraph_ex.core.utils import logger

    assert logger is torchair.logger is events.logger
