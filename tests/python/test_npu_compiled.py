"""Compiled functions inside a capture: what was compiled is what is recorded,
whoever compiled it, and whether that was before the capture or in it."""

import pytest
import torch
from helpers import assert_same, copy_of
from test_npu_record import capture, compare
from torch._dynamo.testing import CompileCounter

import torchair
from torchair import npu
from torchair.backend import npugraph_ex


def sines_for_cosines(gm, _inputs):
    """A backend whose code does something else than the function."""
    for node in gm.graph.nodes:
        if node.target is torch.cos:
            node.target = torch.sin
        if node.target == "cos":
            node.target = "sin"
    gm.recompile()
    return gm.forward


def force_eager(gm, inputs):
    options = {"force_eager": True, "clone_input": False}
    return npugraph_ex(gm, inputs, options=options)


BACKENDS = {
    "eager": "eager",
    "aot_eager": "aot_eager",
    "inductor": "inductor",
    "own": lambda gm, _inputs: gm.forward,
    "torchair": torchair.get_npu_backend(),
    "npugraph_ex": npugraph_ex,
    "force_eager": force_eager,
}
each_backend = pytest.mark.parametrize(
    "backend", BACKENDS.values(), ids=list(BACKENDS)
)
each_time = pytest.mark.parametrize("before", [True, False])


def compiled(fn, backend, **options):
    return torch.compile(fn, backend=backend, fullgraph=True, **options)


def step(x, cache):
    y = x.sin() + 1
    cache[1:3].mul_(2)
    x.add_(1)
    return y * cache.sum(), y.t()


@each_backend
@each_time
def test_full_graphs(backend, before):
    fn = compiled(step, backend)
    args = torch.randn(4, 3), torch.randn(5, 3)
    if before:
        fn(*copy_of(args))
    mine, theirs = copy_of(args), copy_of(args)
    g, got = capture(fn, *mine)
    assert_same(mine, args)
    for _ in range(3):
        want = step(*theirs)
        g.replay()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine, theirs)


@each_time
def test_the_compiled_code_is_recorded(before):
    fn = compiled(torch.cos, sines_for_cosines)
    x = torch.randn(6)
    if before:
        fn(x)
    g, y = capture(lambda: fn(x) * 2)
    g.replay()
    assert_same(y, x.sin() * 2)


def test_nothing_is_compiled_twice():
    counter = CompileCounter()
    fn = compiled(lambda x: x + 1, counter)
    x = torch.ones(3)
    fn(x)
    g, y = capture(fn, x)
    other, _ = capture(fn, x)
    fn(x)
    assert counter.frame_count == 1


def test_compiled_in_a_capture_called_after_it():
    counter = CompileCounter()
    fn = compiled(lambda x: x + 1, counter)
    x = torch.ones(3)
    capture(fn, x)
    assert fn(x).tolist() == [2.0] * 3
    assert counter.frame_count == 1


def test_a_wrapper_that_captures_each_size_in_one_pool():
    """One compiled model with a dynamic size, a graph for each batch."""
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    ).requires_grad_(False)
    model = compiled(net, force_eager, dynamic=True)
    pool, captured = npu.graph_pool_handle(), {}
    buffer = torch.zeros(16, 8)
    for n in (16, 8, 4):
        g = npu.NPUGraph()
        with npu.graph(g, pool=pool):
            captured[n] = g, npu.weak_ref_tensor(model(buffer[:n]))
    for n in (4, 16, 8, 16):
        buffer[:n] = torch.randn(n, 8)
        g, y = captured[n]
        g.replay()
        torch.testing.assert_close(y, net(buffer[:n]))


@each_backend
def test_host_reads_are_refused(backend):
    fn = torch.compile(lambda x: x * (2 if x.sum() > 0 else 3), backend=backend)
    with pytest.raises(RuntimeError, match="the host cannot read a tensor"):
        capture(fn, torch.ones(2))
    assert fn(torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@each_time
def test_training_steps(backend, before):
    def loss(w, x):
        return (x @ w).tanh().square().mean()

    fn = compiled(loss, backend)
    x, w = torch.randn(4, 3), torch.randn(3, 2, requires_grad=True)

    def train(w, f=fn):
        value = f(w, x)
        (grad,) = torch.autograd.grad(value, w)
        with torch.no_grad():
            w.sub_(grad)
        return value.detach()

    if before:
        train(copy_of([w])[0].requires_grad_())
    theirs = w.detach().clone().requires_grad_()
    g, value = capture(train, w)
    for _ in range(3):
        want = train(theirs, loss)
        g.replay()
        torch.testing.assert_close(value, want)
        torch.testing.assert_close(w, theirs)


# ---- Inductor, whose code the dispatcher does not see ----


def test_inductor_indices():
    """The trial call sees zeros, not what lies in memory."""

    def pick(table, i):
        return table[i.sort().indices], torch.full_like(i, 7)

    fn = compiled(pick, "inductor")
    compare(fn, torch.randn(5, 2), torch.randperm(5), replays=2)


def test_inductor_random_numbers():
    fn = compiled(lambda x: x + torch.rand_like(x), "inductor")
    x = torch.zeros(8)
    torch.manual_seed(3)
    first = fn(x)
    torch.manual_seed(3)
    g, y = capture(fn, x)
    g.replay()
    assert_same(y, first)
    g.replay()
    assert not torch.equal(y, first)


def test_inductor_outside_of_captures():
    fn = compiled(lambda x: x + 1, "inductor")
    x = torch.ones(3)
    g, y = capture(fn, x)
    assert fn(x).tolist() == [2.0] * 3
    with npu.graph(npu.NPUGraph()), npu.stream(npu.default_stream()):
        assert fn(x).tolist() == [2.0] * 3


def test_tensor_methods_are_as_before():
    names = ["tolist", "numpy", "cpu", "__array__", "__repr__", "__format__"]
    before = [getattr(torch.Tensor, n) for n in names]
    own = set(vars(torch.Tensor))
    capture(lambda x: x + 1, torch.ones(2))
    assert [getattr(torch.Tensor, n) for n in names] == before
    assert set(vars(torch.Tensor)) == own
