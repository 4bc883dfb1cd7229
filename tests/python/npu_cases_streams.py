"""Ordinary streams and events of torch.npu inside compiled functions."""

import pytest
import torch
from helpers import assert_same

import torch_npu  # noqa: F401
import torchair
from torchair import backend, lanes


def check(fn):
    x = torch.randn(4, 4).npu()
    run = torch.compile(fn, backend=backend.npugraph_ex, fullgraph=True)
    want = fn(x)
    for _ in range(3):
        assert_same(run(x).cpu(), want.cpu())
    now = torch.npu.current_stream()
    assert now == torch.npu.default_stream()


def lane(gm, name):
    return lanes.lane_of(next(n for n in gm.graph.nodes if n.name == name))


def test_a_stream_of_the_module(graphs):
    side = torch.npu.Stream()

    def fn(x):
        y = x + 1
        with torch.npu.stream(side):
            z = y * 2
        return z - x

    check(fn)
    assert lane(graphs[0], "mul") == f"npu_0_{side.stream_id}"
    assert lane(graphs[0], "sub") == lanes.MAIN


def test_events(graphs):
    side, event = torch.npu.Stream(), torch.npu.Event()

    def fn(x):
        y = x.sin()
        event.record()
        with torch.npu.stream(side):
            event.wait()
            z = x.cos()
        torch.npu.current_stream().wait_stream(side)
        return x.exp() + y + z

    check(fn)
    after = {
        n.name: [str(a) for a in n.meta["after"]]
        for n in graphs[0].graph.nodes
        if "after" in n.meta
    }
    assert after == {"cos": ["sin"], "exp": ["cos"]}


def test_made_inside(graphs):
    def fn(x):
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            z = x * 2
        z.record_stream(side)
        done = side.record_event()
        torch.npu.current_stream().wait_event(done)
        return z - x

    check(fn)
    assert lane(graphs[0], "mul").startswith("npu_0_")


def test_set_stream_and_back(graphs):
    side = torch.npu.Stream()

    def fn(x):
        before = torch.npu.current_stream()
        torch.npu.set_stream(side)
        y = x * 2
        torch.npu.set_stream(before)
        return y - x

    check(fn)
    assert lane(graphs[0], "mul") == f"npu_0_{side.stream_id}"
    assert lane(graphs[0], "sub") == lanes.MAIN


def test_nested_streams(graphs):
    one, two = torch.npu.Stream(), torch.npu.Stream()

    def fn(x):
        with torch.npu.stream(one):
            a = x.sin()
            with torch.npu.stream(two):
                b = x.cos()
            c = a.exp()
        return a + b + c

    check(fn)
    assert lane(graphs[0], "exp") == lane(graphs[0], "sin")
    assert lane(graphs[0], "cos") == f"npu_0_{two.stream_id}"


def test_a_stream_that_stays_set():
    side = torch.npu.Stream()

    def fn(x):
        torch.npu.set_stream(side)
        return x * 2

    run = torch.compile(fn, backend=backend.npugraph_ex, fullgraph=True)
    with pytest.raises(Exception, match="restore the stream"):
        run(torch.ones(2).npu())


def test_tagged_streams_and_limits():
    def fn(x):
        npu = torch.npu.npugraph_ex
        with (
            torchair.scope.npu_stream_switch("a"),
            npu.scope.limit_core_num(2, 2),
        ):
            z = x * 2
        return z - x

    check(fn)


def test_torch_npu_has_npugraph_ex():
    assert torch.npu.npugraph_ex.compile_fx is torchair.npugraph_ex.compile_fx
