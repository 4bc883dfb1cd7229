"""Captures of tensors of device npu, by the names of torch.npu."""

import copy
import gc

import pytest
import torch
from torch.testing import assert_close

import torch_npu
import torchair
import torchair.npu
from torchair.npu import pools


def capture(fn):
    g = torch.npu.NPUGraph()
    with torch.no_grad(), torch.npu.graph(g):
        out = fn()
    return g, out


def test_the_names_are_those_of_torchair():
    for name in torchair.npu.__all__:
        if hasattr(torch.npu, name) and name != "synchronize":
            assert getattr(torch.npu, name) is getattr(torchair.npu, name)
    for name in ("print_npugraph_tensor", "save_npugraph_tensor"):
        assert getattr(torch_npu, name) is getattr(torchair.npu, name)
    assert torch_npu._C._weak_ref_tensor
    with pytest.raises(AttributeError, match="no attribute 'x'"):
        torch_npu.x  # noqa: B018


def test_capture_and_replay():
    x = torch.randn(4, 8).npu()
    layer = torch.nn.Linear(8, 8).npu()

    def fn():
        y = torch.relu(layer(x)) * torch.arange(8, device="npu")
        v = y.view(-1)
        v.add_(1)
        return y, v

    g, (y, v) = capture(fn)
    assert y.device.type == "npu" and v.data_ptr() == y.data_ptr()
    for _ in range(2):
        x.copy_(torch.randn(4, 8))
        g.replay()
        with torch.no_grad():
            assert_close((y, v), fn())


def test_random_numbers():
    g, got = capture(lambda: torch.rand(3, device="npu"))
    torch.npu.manual_seed(1)
    g.replay()
    first = got.clone()
    g.replay()
    torch.npu.manual_seed(1)
    for want in (first, got):
        assert torch.equal(torch.rand(3, device="npu"), want)


def test_memory_returns():
    x = torch.ones(1000, device="npu")
    g, y = capture(lambda: (x * 2).sin() + 1)
    handle = g.pool()
    assert pools.statistics()[handle]["active_bytes"] >= 4000
    del y
    g.reset()
    gc.collect()
    assert handle not in pools.statistics()


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x[0].item(),
        lambda x: x.tolist(),
        lambda x: bool(x[0]),
    ],
)
def test_reads_are_refused(read):
    x = torch.ones(3, device="npu")
    with pytest.raises(RuntimeError, match="host cannot read"):
        capture(lambda: read(x * 2))


def test_seeding_and_waiting_are_refused():
    for call in (
        lambda: torch.npu.manual_seed(1),
        torch.npu.seed,
        torch.npu.synchronize,
    ):
        with pytest.raises(RuntimeError, match="not permitted"):
            capture(call)


def test_the_host_goes_on_inside_a_capture():
    """Operators on CPU tensors are not the device's."""
    lengths, x = torch.tensor([1, 2, 3]), torch.ones(3, device="npu")

    def fn():
        n = lengths.cumsum(0).tolist()
        host = torch.tensor(n, dtype=torch.float32)
        return x * host.npu() + n[-1]

    g, y = capture(fn)
    g.replay()
    assert y.tolist() == [7.0, 9.0, 12.0]


def test_a_capture_of_the_host_alone():
    with pytest.warns(UserWarning, match="2 operators were on CPU tensors"):
        _, y = capture(lambda: torch.ones(3) + 1)
    assert y.tolist() == [2.0] * 3


def test_autograd_works_for_the_capturing_thread():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ).npu()
    theirs = copy.deepcopy(model)
    sample = torch.randn(3, 4, device="npu")
    graphed = torch.npu.make_graphed_callables(model, (sample,))
    for _ in range(2):
        x = torch.randn(3, 4).npu()
        for m in (graphed, theirs):
            m.zero_grad(set_to_none=True)
            m(x).square().sum().backward()
        for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
            assert p.grad.is_npu
            assert_close(p.grad, q.grad)


def test_a_compiled_backward_is_recorded():
    w = torch.randn(4, 4, device="npu", requires_grad=True)
    x = torch.randn(2, 4).npu()
    backend = torchair.get_npu_backend()
    fn = torch.compile(lambda x: (x @ w).tanh().sum(), backend=backend)
    torch.autograd.grad(fn(x), [w])
    g = torch.npu.NPUGraph()
    with torch.npu.graph(g):
        (grad,) = torch.autograd.grad(fn(x), [w])
    x.normal_()
    g.replay()
    want = torch.autograd.grad((x @ w).tanh().sum(), [w])[0]
    assert_close(grad, want)


def test_weak_references():
    x = torch.ones(100, device="npu")
    g, y = capture(lambda: torch_npu._C._weak_ref_tensor(x * 2))
    assert y.is_npu
    x.fill_(4)
    g.replay()
    assert y.sum().item() == 800


def test_the_graph_of_torch_accelerator():
    x = torch.zeros(3, device="npu")
    g = torch.accelerator.Graph(pool=torch.npu.graph_pool_handle())
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.instantiate()
    with g:
        x += 1
    g.instantiate()
    g.replay()
    g.replay()
    assert x.tolist() == [2.0] * 3 and g.pool() == g.graph_pool
    g.reset()
    side = torch.npu.Stream()
    with torch.npu.stream(side), g:
        assert torch.npu.current_stream() is side
        x += 5
    with torch.npu.stream(side):
        g.replay()
    assert x.tolist() == [7.0] * 3
    with pytest.raises(KeyError), torch.accelerator.Graph():
        raise KeyError
    assert not torch.npu.is_current_stream_capturing()
    g = torch.accelerator.Graph(capture_error_mode="x")
    with pytest.raises(RuntimeError, match="Unknown capture error mode"), g:
        pass
