"""Streams, events and limits: identity, order, and what is refused."""

import threading

import pytest

from torchair import npu
from torchair.npu import streams


def test_identity():
    a, b = npu.Stream(), npu.Stream(priority=-1)
    again = npu.Stream(
        stream_id=a.stream_id,
        device_index=a.device_index,
        device_type=a.device_type,
    )
    assert a == again and hash(a) == hash(again) and a != b
    assert b.priority == -1 and a.device_index == 0
    assert a.stream_id != npu.default_stream().stream_id
    assert a != "stream" and repr(a).startswith("<torchair.npu.Stream")


def test_the_current_stream_is_of_the_thread():
    side = npu.Stream()
    assert npu.current_stream() == npu.default_stream()
    with npu.stream(side) as inner:
        assert inner is side and npu.current_stream() is side
        with npu.stream(None):
            assert npu.current_stream() is side
        seen = []
        t = threading.Thread(target=lambda: seen.append(npu.current_stream()))
        t.start()
        t.join()
        assert seen == [npu.default_stream()]
    assert npu.current_stream() == npu.default_stream()
    npu.set_stream(side)
    assert npu.current_stream() is side
    npu.set_stream(npu.default_stream())


def test_a_context_is_left_after_an_exception():
    with pytest.raises(KeyError), npu.stream(npu.Stream()):
        raise KeyError
    assert npu.current_stream() == npu.default_stream()


@pytest.mark.parametrize("device", [None, 0, "npu", "npu:0"])
def test_names_of_the_device(device):
    assert npu.current_stream(device) == npu.default_stream(0)


def test_events():
    a, b = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    assert a.query()
    a.synchronize()
    s = npu.Stream()
    a.record(s)
    b.record()
    assert a.query() and b.query() and s.query()
    assert a.elapsed_time(b) >= 0
    s.wait_event(b)
    s.wait_stream(npu.default_stream())
    assert s.record_event().query()
    s.synchronize()
    npu.synchronize()


def test_elapsed_time_needs_timed_and_recorded_events():
    a, b = npu.Event(enable_timing=True), npu.Event()
    with pytest.raises(RuntimeError, match="enable_timing"):
        a.elapsed_time(b)
    with pytest.raises(RuntimeError, match="recorded"):
        a.elapsed_time(npu.Event(enable_timing=True))


def test_wait_before_record():
    e, s = npu.ExternalEvent(), npu.Stream()
    done = npu.Event(enable_timing=True)
    e.wait(s)
    done.record(s)
    assert not s.query() and not done.query()
    e.record(npu.Stream())
    assert s.query() and done.query()


def test_a_chain_of_streams_waits():
    e = npu.ExternalEvent()
    a, b, c = npu.Stream(), npu.Stream(), npu.Stream()
    e.wait(a)
    b.wait_stream(a)
    c.wait_stream(b)
    assert [s.query() for s in (a, b, c)] == [False] * 3
    e.record(npu.Stream())
    assert [s.query() for s in (a, b, c)] == [True] * 3


def test_a_queue_outlives_its_stream():
    e, done = npu.ExternalEvent(), npu.Event()
    s = npu.Stream()
    e.wait(s)
    done.record(s)
    del s
    e.record(npu.Stream())
    assert done.query() and not streams._busy


def test_reset_makes_the_next_wait_wait():
    e, s = npu.ExternalEvent(), npu.Stream()
    e.record(s)
    e.wait(s)
    assert s.query()
    e.reset(s)
    e.wait(s)
    assert not s.query()
    e.record(npu.Stream())
    assert s.query()


def test_one_record_is_for_one_wait():
    e, s = npu.ExternalEvent(), npu.Stream()
    e.wait(s)
    with pytest.raises(RuntimeError, match="multiple wait operations"):
        e.wait(npu.Stream())
    e.record(npu.Stream())


def test_waiting_for_ever_is_refused():
    e, s, event = npu.ExternalEvent(), npu.Stream(), npu.Event()
    e.wait(s)
    event.record(s)
    for wait in (s.synchronize, event.synchronize, npu.synchronize):
        with pytest.raises(RuntimeError, match="nobody has recorded"):
            wait()
    e.record(npu.Stream())
    npu.synchronize()
    event.synchronize()


# ---- captures ----


def capturing(body):
    g = npu.NPUGraph()
    with npu.graph(g):
        body(npu.current_stream())
    return g


def test_side_streams_join_and_come_back():
    import torch

    side, x = npu.Stream(), torch.ones(3)
    g = npu.NPUGraph()
    with npu.graph(g):
        y = x + 1
        side.wait_stream(npu.current_stream())
        with npu.stream(side):
            assert npu.is_current_stream_capturing()
            z = y * 2
        npu.current_stream().wait_stream(side)
        w = z + 1
    assert not npu.is_current_stream_capturing()
    g.replay()
    assert w.tolist() == [5.0] * 3
    assert {e.stream for e in g._work.log} == {
        side.stream_id,
        npu.graph.default_capture_stream.stream_id,
    }


def test_work_of_a_side_stream_must_be_joined():
    import torch

    side, x = npu.Stream(), torch.ones(3)

    def body(main):
        side.wait_stream(main)
        with npu.stream(side):
            x + 1

    with pytest.raises(RuntimeError, match="not joined"):
        capturing(body)
    assert side.state.capture is None


def test_a_stream_that_only_waited_need_not_be_joined():
    side = npu.Stream()
    capturing(lambda main: side.wait_stream(main))


def test_joining_through_a_third_stream():
    import torch

    a, b, x = npu.Stream(), npu.Stream(), torch.ones(3)

    def body(main):
        a.wait_stream(main)
        with npu.stream(a):
            x + 1
        b.wait_stream(a)
        main.wait_stream(b)

    capturing(body)


def test_a_stream_outside_the_capture_works_at_once():
    import torch

    x = torch.ones(3)

    def body(_main):
        with npu.stream(npu.Stream()):
            assert (x + 1).tolist() == [2.0] * 3

    capturing(body)


def test_the_default_stream_cannot_join():
    with pytest.raises(RuntimeError, match="default stream"):
        capturing(lambda main: npu.default_stream().wait_stream(main))


def test_events_of_a_capture_stay_in_it():
    event = npu.Event()
    capturing(lambda main: event.record(main))
    with pytest.raises(RuntimeError, match="capture"):
        event.query()
    with pytest.raises(RuntimeError, match="has ended"):
        event.wait(npu.Stream())
    event.record(npu.Stream())
    assert event.query()


def test_a_capture_does_not_wait_for_work_outside():
    external, side, event = npu.ExternalEvent(), npu.Stream(), npu.Event()
    external.wait(side)
    event.record(side)
    g = npu.NPUGraph()
    with npu.stream(npu.Stream()):
        g.capture_begin()
        with pytest.raises(RuntimeError, match="work outside of it"):
            event.wait()
        with pytest.raises(RuntimeError, match="work outside of it"):
            g.capture_end()
    external.record(npu.Stream())
    npu.synchronize()


def test_two_waits_in_one_capture():
    def body(main):
        e = npu.ExternalEvent()
        e.wait(main)
        e.wait(main)

    with pytest.raises(RuntimeError, match="multiple wait operations"):
        capturing(body)


# ---- limits ----


def test_limits_are_kept():
    s = npu.Stream()
    full = npu.get_device_limit(0)
    assert npu.get_stream_limit(s) == full
    assert set(full) == {"cube_core_num", "vector_core_num"}
    npu.set_stream_limit(s, cube_num=3)
    npu.set_stream_limit(s, vector_num=5)
    want = {"cube_core_num": 3, "vector_core_num": 5}
    assert npu.get_stream_limit(s) == want
    again = npu.Stream(stream_id=s.stream_id, device_index=0)
    assert npu.get_stream_limit(again) == want
    npu.reset_stream_limit(s)
    assert npu.get_stream_limit(s) == full


def test_the_device_limit_is_that_of_its_streams():
    full = npu.get_device_limit(0)
    npu.set_device_limit("npu:0", 12, 24)
    try:
        got = npu.get_stream_limit(npu.Stream())
        assert got == {"cube_core_num": 12, "vector_core_num": 24}
    finally:
        npu.set_device_limit(0, *full.values())


@pytest.mark.parametrize("value", [0, -2, 1000])
def test_limits_out_of_range(value):
    s = npu.Stream()
    with pytest.raises(ValueError, match="allowed are 1 to"):
        npu.set_stream_limit(s, cube_num=value)
    with pytest.raises(ValueError, match="vector_num"):
        npu.set_device_limit(0, vector_num=value)


@pytest.mark.parametrize("device", [99, -1, "npu:99"])
def test_limits_of_a_device_that_is_not_there(device):
    with pytest.raises(RuntimeError, match=f"invalid device .*{device}"):
        npu.set_device_limit(device, 1, 1)


def test_limits_are_integers():
    with pytest.raises(TypeError, match="cube_num must be an int"):
        npu.set_stream_limit(npu.Stream(), cube_num=2.0)
