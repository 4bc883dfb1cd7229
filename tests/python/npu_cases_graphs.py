"""torch.npu: graphs, streams and events with tensors of device npu."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torch_npu


def test_capture_and_replay():
    x = torch.ones(3).npu()
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        y = x * 2 + torch.full((3,), 4.0, device="npu")
        x.add_(1)
    assert y.is_npu and x.tolist() == [1] * 3
    for i in range(3):
        g.replay()
        assert y.tolist() == [6.0 + 2 * i] * 3
        assert x.tolist() == [2.0 + i] * 3


def test_views_and_moves_in_a_capture():
    x = torch.arange(6.0).npu()
    host = torch.ones(2)
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        y = x.view(2, 3).t()[1] * host.npu()
        x[0] = 9
    g.replay()
    assert y.tolist() == [1, 4] and x[0].item() == 9
    host.fill_(10)
    g.replay()
    assert y.tolist() == [10, 40]


def test_training_step_in_a_capture():
    torch.manual_seed(0)
    net, x = nn.Linear(4, 2), torch.randn(3, 4)
    other = copy.deepcopy(net).npu()
    net(x).square().sum().backward()
    place = x.npu()
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        loss = other(place).square().sum()
        loss.backward()
    g.replay()
    assert_close(other.weight.grad.cpu(), net.weight.grad)
    assert torch._C._is_multithreading_enabled()


def test_graphed_callables():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    other = copy.deepcopy(net).npu()
    sample = torch.randn(2, 3).npu().requires_grad_()
    graphed = torch.npu.make_graphed_callables(other, (sample,))
    for _ in range(3):
        x = torch.randn(2, 3)
        net.zero_grad()
        other.zero_grad()
        net(x).sum().backward()
        got = graphed(x.npu().requires_grad_())
        assert_close(got.cpu(), net(x))
        got.sum().backward()
        for p, q in zip(other.parameters(), net.parameters(), strict=True):
            assert p.grad.is_npu
            assert_close(p.grad.cpu(), q.grad)


def test_random_numbers_in_a_graph():
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        y = torch.randn(4, device="npu")
    state = torch.npu.get_rng_state()
    g.replay()
    first = y.clone()
    g.replay()
    assert not torch.equal(first, y)
    torch.npu.set_rng_state(state)
    g.replay()
    assert torch.equal(first, y)


def test_capture_on_the_default_stream():
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.npu.NPUGraph().capture_begin()
    assert not torch.npu.is_current_stream_capturing()


def test_streams_and_events():
    s = torch.npu.Stream()
    again = torch.npu.Stream(
        stream_id=s.stream_id,
        device_index=s.device_index,
        device_type=s.device_type,
    )
    assert again == s and s != torch.npu.default_stream()
    start = torch.npu.Event(enable_timing=True)
    end = torch.npu.Event(enable_timing=True)
    x = torch.ones(3).npu()
    with torch.npu.stream(s):
        assert torch.npu.current_stream() == s
        start.record()
        y = x + 1
        y.record_stream(s)
        end.record(s)
    end.wait(torch.npu.current_stream())
    s.wait_stream(torch.npu.current_stream())
    s.synchronize()
    assert s.query() and end.query() and start.elapsed_time(end) >= 0
    torch.npu.synchronize()
    torch.accelerator.synchronize()
    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_limits():
    torch.npu.set_device_limit(0, 12, 20)
    assert torch.npu.get_device_limit(0) == {
        "cube_core_num": 12,
        "vector_core_num": 20,
    }
    s = torch.npu.Stream()
    torch.npu.set_stream_limit(s, 4, 8)
    assert torch.npu.get_stream_limit(s)["cube_core_num"] == 4
    torch.npu.reset_stream_limit(s)
    assert torch.npu.get_stream_limit(s)["cube_core_num"] == 12


def test_one_object_under_both_names():
    assert torch.npu is torch_npu.npu
    assert torch.npu.NPUGraph is torch_npu.npu.NPUGraph
    with pytest.raises(AttributeError, match="no_such"):
        torch.npu.no_such  # noqa: B018


def test_pools_are_shared():
    pool = torch.npu.graph_pool_handle()
    x = torch.ones(4).npu()
    graphs = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for k in (2, 3):
            g = torch.npu.NPUGraph()
            with torch.npu.graph(g, pool=pool):
                y = x * k
            graphs.append((g, y, k))
    assert all(g.pool() == pool for g, _, _ in graphs)
    for g, y, k in graphs:
        g.replay()
        assert y.tolist() == [k] * 4
