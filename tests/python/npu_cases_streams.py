"""Ordinary streams and events of torch.npu inside compiled functions."""

import gc

import pytest
import torch
from helpers import assert_same

import torch_npu  # noqa: F401
import torchair
from torchair import _native, backend, lanes
from torchair.npu import streams


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


def alive():
    """Streams that are known, queues and captures that are held, and bytes
    of tensors of the device."""
    gc.collect()
    known = len(streams._states), len(streams._busy), len(streams._captures)
    return *known, _native.npu_memory()["live"]


def captured_by_hand(x):
    main, side = torch.npu.Stream(), torch.npu.Stream()
    graph, event = torch.npu.NPUGraph(), torch.npu.Event()
    with torch.npu.graph(graph, stream=main):
        y = x + 1
        event.record()
        with torch.npu.stream(side):
            event.wait()
            z = y * 2
        main.wait_stream(side)
    graph.replay()
    return graph, event, z


def captured_badly(x):
    side, event = torch.npu.Stream(), torch.npu.Event()
    capture = torch.npu.graph(torch.npu.NPUGraph())
    with pytest.raises(RuntimeError, match="is not joined"), capture:
        event.record()
        with torch.npu.stream(side):
            event.wait()
            x.add_(1)
    return event


def compiled_with_streams(x):
    side, event = torch.npu.Stream(), torch.npu.Event()

    def fn(x):
        event.record()
        with torch.npu.stream(side):
            event.wait()
            z = x * 2
        with torch.npu.stream(torch.npu.Stream()):
            w = z + 1
        torch.npu.current_stream().wait_stream(side)
        return w

    run = torch.compile(fn, backend=backend.npugraph_ex, fullgraph=True)
    return run, run(x), run(x)


def waits_for_an_external_event(x):
    side, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    done = torch.npu.Event()
    event.wait(side)
    done.record(side)
    del side
    event.record()
    return done


@pytest.mark.parametrize(
    "use",
    [
        captured_by_hand,
        captured_badly,
        compiled_with_streams,
        waits_for_an_external_event,
    ],
)
def test_streams_go_with_their_last_user(use):
    """None is kept, and no memory, by a table of the process."""
    x = torch.ones(1000).npu()
    use(x)  # what is made once for all
    torch._dynamo.reset()
    before = alive()
    for _ in range(3):
        held = use(x)
    del held
    torch._dynamo.reset()
    assert alive() == before


def test_an_event_keeps_no_stream_of_its_capture():
    x = torch.ones(1000).npu()
    captured_badly(x)  # the default streams
    before = alive()[0]
    event = captured_by_hand(x)[1]
    other = captured_badly(x)
    assert alive()[0] == before
    del event, other


def test_streams_that_differ_between_calls():
    """Their numbers are none of the sizes that Dynamo makes symbols of."""

    def fn(x, side, event):
        event.record()
        with torch.npu.stream(side):
            event.wait()
            z = x * 2
        side.record_event(event)
        torch.npu.current_stream().wait_event(event)
        return z

    run = torch.compile(fn, backend=backend.npugraph_ex, fullgraph=True)
    x = torch.ones(3).npu()
    for _ in range(3):
        assert (
            run(x, torch.npu.Stream(), torch.npu.Event()).tolist() == [2.0] * 3
        )


def test_torch_npu_has_npugraph_ex():
    assert torch.npu.npugraph_ex.compile_fx is torchair.npugraph_ex.compile_fx
