"""What the application captures on a GPU (`torch.cuda.graph`): the engine's
program is in its graph, or torch's operators are."""

import gc
import threading
import time
from contextlib import nullcontext

import pytest
import torch
from helpers import compiled as compile_with
from helpers import recorded
from torch import nn
from torch.nn import functional

from torchair import recorded as host_nodes

gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU that torch sees"
)
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def warm(compiled, *args, calls=3):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(calls):
            compiled(*args)
    torch.cuda.synchronize()


def capture(compiled, *args, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = compiled(*args)
    return graph, result


def runs(records):
    return sum(r.program().stats()["runs"] for r in records)


class Gated(nn.Module):
    """The MLP of a Llama block, with its norm and its residual."""

    def __init__(self, width=256, hidden=512):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def near(got, want, tolerance=2e-2):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def check_replay(graph, y, fn, x):
    """Of other numbers in the captured input."""
    x.normal_()
    graph.replay()
    near(y, fn(x))


def test_which_host_nodes_may_be_recorded():
    node = ("call", "name", (), (), 2)
    assert host_nodes.repeats([])
    assert host_nodes.repeats([(*node, ""), (*node, host_nodes.DRAWS)])
    assert host_nodes.repeats([(*node, host_nodes.CUSTOM)])
    assert not host_nodes.repeats([(*node, ""), (*node, "it is a collective")])
    assert not host_nodes.repeats([node])


class Pool:
    """A private pool that is none: what is made inside counts."""

    index, inside = 0, False

    def begin(self):
        self.inside = True

    def end(self):
        self.inside = False


@pytest.mark.host("it plays a GPU on the CPU")
def test_views_are_copied_where_they_are_recorded(monkeypatch):
    """What the engine copied behind the recording was copied once."""
    pool, copied = Pool(), []
    clone = torch.Tensor.clone
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(
        torch.Tensor, "clone", lambda x: copied.append(pool.inside) or clone(x)
    )

    def call(_args, tensors):
        (x,) = tensors
        return torch.view_as_real(x), x.abs(), 3

    x = torch.randn(4, dtype=torch.complex64)
    parts, size, n = host_nodes.record(call, (), (x,), 0, pool)
    assert copied == [True] and n == 3
    assert torch.equal(parts, torch.view_as_real(x))
    assert torch.equal(size, x.abs())
    x.zero_()
    assert parts.abs().sum() > 0


@gpu
@modes
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_the_program_is_in_the_graph(mode, rows):
    block = Gated().cuda().bfloat16().requires_grad_(False)
    x = torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()
    with recorded() as records:
        compiled = compile_with(block, mode)
        warm(compiled, x)
        before = runs(records)
        graph, y = capture(compiled, x)
        assert runs(records) == before + 1
        for i in range(4):
            other = torch.randn_like(x)
            kept = [compiled(other) for _ in range(2)]
            copies = [k.clone() for k in kept]
            x.copy_(other * (i + 1))
            graph.replay()
            near(y, block(x))
            assert all(map(torch.equal, kept, copies))
    assert [r.by_torch for r in records] == [0] * len(records)


@gpu
@modes
def test_sizes_that_are_new_are_torchs(mode):
    block = Gated().cuda().requires_grad_(False)
    torch._dynamo.reset()
    compiled = compile_with(block, mode, dynamic=True)
    warm(compiled, torch.randn(4, 256, device="cuda"))
    x = torch.randn(9, 256, device="cuda")
    graph, y = capture(compiled, x)
    for _ in range(2):
        check_replay(graph, y, block, x)
    near(compiled(x), block(x))


@gpu
@modes
def test_several_sizes_share_a_pool(mode):
    block = Gated().cuda().requires_grad_(False)
    torch._dynamo.reset()
    compiled = compile_with(block, mode, dynamic=True)
    found, pool = [], None
    for rows in (64, 32, 8, 2):
        x = torch.randn(rows, 256, device="cuda")
        warm(compiled, x)
        graph, y = capture(compiled, x, pool=pool)
        pool = graph.pool()
        found.append((x, graph, y))
    for x, graph, y in found:
        check_replay(graph, y, block, x)


@gpu
@modes
def test_a_cache_is_written_at_each_replay(mode):
    cache = torch.zeros(16, 64, device="cuda")

    def fn(x, at, cache):
        cache.index_copy_(0, at, x * 2)
        return cache.sum(0) + x

    x = torch.randn(1, 64, device="cuda")
    at = torch.tensor([3], device="cuda")
    torch._dynamo.reset()
    compiled = compile_with(fn, mode)
    warm(compiled, x, at, cache)
    graph, y = capture(compiled, x, at, cache)
    cache.zero_()
    want = torch.zeros_like(cache)
    for i in range(4):
        at.fill_(i)
        x.normal_()
        graph.replay()
        near(y, fn(x, at, want), 1e-5)
        near(cache, want, 1e-5)


@gpu
@modes
def test_a_first_call_inside_is_torchs(mode):
    """Dynamo compiles, handles of libraries are made while it records."""
    conv = nn.Conv2d(4, 4, 3).cuda().requires_grad_(False)

    def fn(x, w):
        return conv(x).flatten(1) @ w

    x = torch.randn(2, 4, 10, 10, device="cuda")
    w = torch.randn(256, 8, device="cuda")
    torch._dynamo.reset()
    compiled = compile_with(fn, mode)
    warm(compiled, x, w, calls=1)
    graph, y = capture(compiled, x, w)
    x.normal_()
    graph.replay()
    near(y, fn(x, w), 5e-2)


@gpu
@modes
def test_what_is_recorded_stays(mode):
    """The function goes, the graph does not."""
    block = Gated().cuda().requires_grad_(False)
    x = torch.randn(8, 256, device="cuda")
    torch._dynamo.reset()
    compiled = compile_with(block, mode)
    warm(compiled, x)
    graph, y = capture(compiled, x)
    del compiled
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    check_replay(graph, y, block, x)


@gpu
@modes
def test_what_is_recorded_goes_with_its_graph(mode):
    block = Gated().cuda().requires_grad_(False)
    x = torch.randn(8, 256, device="cuda")
    torch._dynamo.reset()
    with recorded() as records:
        compiled = compile_with(block, mode)
        warm(compiled, x)
        graphs = [capture(compiled, x) for _ in range(40)]
    (program,) = {r.program for r in records}
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert program() is not None
    for graph, y in graphs[1:]:
        check_replay(graph, y, block, x)
    del graphs, graph, y
    for _ in range(1000):
        if program() is None:
            return
        gc.collect()
        time.sleep(0.01)  # CUDA tells when it likes to
    pytest.fail("no graph is there, but the program")


@gpu
@modes
def test_graphed_callables_train(mode):
    torch.manual_seed(0)
    eager = Gated().cuda()
    ours = Gated().cuda()
    ours.load_state_dict(eager.state_dict())
    x = torch.randn(32, 256, device="cuda", requires_grad=True)
    torch._dynamo.reset()
    compiled = compile_with(ours, mode)
    graphed = torch.cuda.make_graphed_callables(compiled, (x,))
    for _ in range(3):
        at = torch.randn(32, 256, device="cuda", requires_grad=True)
        other = at.detach().clone().requires_grad_()
        for module in (eager, ours):
            module.zero_grad()
        want, got = eager(at), graphed(other)
        near(got, want)
        want.square().sum().backward()
        got.square().sum().backward()
        near(other.grad, at.grad, 5e-2)
        for a, b in zip(eager.parameters(), ours.parameters(), strict=True):
            assert (a.grad - b.grad).norm() <= 1e-2 * a.grad.norm()


@gpu
@modes
def test_another_thread_may_run_meanwhile(mode):
    """Its runs wait for streams and free memory: no capture ends by that."""
    block = Gated().cuda().requires_grad_(False)
    x = torch.randn(8, 256, device="cuda")
    ones, stream = torch.ones_like(x), torch.cuda.Stream()
    torch._dynamo.reset()
    compiled = compile_with(block, mode)
    warm(compiled, x)
    begun, done, failed = threading.Event(), threading.Event(), []

    def work():
        try:
            begun.wait(30)
            with torch.cuda.stream(stream):
                for _ in range(20):
                    compiled(ones)
        except Exception as error:
            failed.append(error)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        begun.set()
        done.wait(30)
        y = compiled(x)
    thread.join()
    assert not failed, failed
    check_replay(graph, y, block, x)
