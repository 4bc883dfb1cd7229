"""Captured eager code against the same code run eagerly."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, copy_of

from torchair import npu


def capture(fn, *args, **kwargs):
    """(graph, what fn returned in the capture)"""
    g = npu.NPUGraph()
    with npu.graph(g, **kwargs):
        out = fn(*args)
    return g, out


def compare(fn, *args, replays=3):
    """Each replay does what one more eager call does, to results and to the
    arguments; the capture does nothing."""
    mine, theirs = copy_of(args), copy_of(args)
    state = torch.get_rng_state()
    g, got = capture(fn, *mine)
    assert_same(mine, theirs)
    assert torch.equal(torch.get_rng_state(), state)
    for _ in range(replays):
        torch.set_rng_state(state)
        want = fn(*theirs)
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        g.replay()
        assert torch.equal(torch.get_rng_state(), after)
        assert_same(got, want)
        assert_same(mine, theirs)
        state = after
    return g, got


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def swap(x, y):
    t = x.clone()
    x.copy_(y)
    y.copy_(t)


def shifted(x):
    x[1:].copy_(x[:-1].clone())
    x.narrow(0, 0, 2).add_(1)
    return x.sum(0)


def overlapping(x):
    a, b = x[0:3], x[2:5]
    a.mul_(2)
    b.add_(a.clone())
    return a + 1, x * 2


def out_arguments(x, y):
    o = torch.empty(4, 3)
    torch.add(x, 1, out=o)
    torch.mul(o, 2, out=y)
    return o


def view_of_result(x):
    y = torch.sin(x)
    v = y.t()[1:]
    w = y.view(-1)[2:5]
    w.zero_()
    return v, y


def cache(kv, x, index):
    kv[1].index_copy_(0, index, x)
    kv[0, 2:4].fill_(7)
    return kv[1].sum(0)


def in_inference_mode(x, w):
    with torch.inference_mode():
        return F.linear(x, w).relu().clone()


def constant(x):
    c = torch.tensor([1.0, 2.0, 3.0])
    n = int(torch.tensor(3))
    c.add_(x.mean())
    return c * n


def batch_norm(x, mean, var):
    return F.batch_norm(x, mean, var, training=True)


def foreach(a, b, c):
    torch._foreach_add_([a, b], [c, c], alpha=2)
    return torch._foreach_mul([a, b], 3)


def metadata_in_place(x):
    y = x.exp()
    y.t_()
    y.unsqueeze_(0)
    return y * 2, y


def unused(x):
    x.sin().cos()
    return x + 1


def results_twice(x):
    y = x * 2
    return y, y, y.view(-1), x


def strided(x):
    return torch.empty_strided((3, 4), (1, 3)).copy_(x).relu_()


def views_after_strided_writes(x):
    t = x.t()
    t.masked_fill_(t > 0.5, 0.5)
    y = x.exp()
    y.copy_(torch.full((3, 2), 0.5).t() + y)
    torch.sub(y.t().contiguous().t(), 1, out=y)
    return x.view(-1), y.view(-1)


def whole_and_part(x):
    x.mul_(2)
    row = x[1]
    row.add_(1)
    x.sub_(row.clone())
    return x.view(-1)[3:]


def integers(i, mask):
    return torch.where(mask, i // 2, i % 3), i.to(torch.bool), i.cumsum(0)


FUNCTIONS = {
    "swap": (swap, r(4), r(4)),
    "shifted": (shifted, r(6, 3)),
    "overlapping": (overlapping, r(5, 2)),
    "out_arguments": (out_arguments, r(4, 3), r(4, 3)),
    "view_of_result": (view_of_result, r(3, 4)),
    "cache": (cache, r(2, 6, 3), r(2, 3), torch.tensor([4, 1])),
    "inference_mode": (in_inference_mode, r(2, 3), r(4, 3)),
    "constant": (constant, r(3)),
    "batch_norm": (batch_norm, r(4, 3), torch.zeros(3), torch.ones(3)),
    "foreach": (foreach, r(3), r(3), r(3)),
    "metadata_in_place": (metadata_in_place, r(2, 3)),
    "unused": (unused, r(3)),
    "results_twice": (results_twice, r(2, 3)),
    "strided": (strided, r(3, 4)),
    "views_after_strided_writes": (views_after_strided_writes, r(2, 3)),
    "whole_and_part": (whole_and_part, r(3, 3)),
    "integers": (
        integers,
        torch.arange(6),
        torch.tensor([True, False] * 3),
    ),
    "nothing": (lambda x: None, r(2)),
    "identity": (lambda x: x, r(2)),
    "empty": (lambda x: x[:0] * 2, r(2, 3)),
    "scalar": (lambda x: x.sum() + x.max(), r(3)),
    "complex": (lambda x: torch.fft.rfft(x).conj() * 2, r(8)),
    "expanded": (lambda x, y: y.add_(x.expand(3, 3)), r(3), r(3, 3)),
    "split": (lambda x: [p.neg() for p in x.chunk(3, 1)], r(2, 6)),
    "softmax": (lambda x: F.softmax(x, -1).to(torch.bfloat16), r(4, 9)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        r(1, 2, 5, 8),
        r(1, 2, 5, 8),
        r(1, 2, 5, 8),
    ),
    "conv": (lambda x, w: F.conv2d(x, w).relu(), r(1, 3, 8, 8), r(4, 3, 3, 3)),
    "where_": (lambda x: x.masked_fill_(x < 0, 0.5), r(4, 4)),
    "sort": (lambda x: torch.sort(x, dim=0), r(6, 2)),
    "reduced_out": (lambda x, o: torch.sum(x, 0, out=o), r(3, 4), r(4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_replays_what_eager_does(name):
    compare(*FUNCTIONS[name])


RANDOM = {
    "rand": lambda x: torch.rand(3) + x,
    "dropout": lambda x: F.dropout(x, 0.5),
    "in_place": lambda x: x.uniform_(0, 2),
    "normal": lambda x: (torch.randn(2), torch.normal(x, 1.0)),
    "twice": lambda x: (torch.rand(2), torch.rand(2), torch.rand(2)),
    "unused": lambda x: (torch.rand(5), x + torch.rand(3))[1],
    "randint": lambda x: torch.randint(0, 9, (4,)),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "multinomial": lambda x: torch.multinomial(x.sigmoid(), 2),
    "randperm": lambda x: torch.randperm(6),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_eager(name):
    compare(RANDOM[name], r(3))


def test_in_inference_mode():
    x = torch.randn(8)
    with torch.inference_mode():
        g, (y, z) = capture(lambda: (x * 2, torch.fft.rfft(x).abs()))
    x.normal_()
    g.replay()
    assert y.is_inference()
    assert_same([y, z], [x * 2, torch.fft.rfft(x).abs()])


def test_under_autocast():
    layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        g, y = capture(lambda: layer(x))
        x.normal_()
        g.replay()
        assert y.dtype == torch.bfloat16
        assert_same(y, layer(x))


def test_a_generator_of_its_own():
    mine, theirs = torch.Generator(), torch.Generator()
    mine.manual_seed(7)
    theirs.manual_seed(7)
    x = torch.zeros(3)
    g, (got, x2) = capture(
        lambda: (torch.rand(4, generator=mine), x.normal_(generator=mine))
    )
    for _ in range(2):
        g.replay()
        assert torch.equal(got, torch.rand(4, generator=theirs))
        assert torch.equal(x, torch.zeros(3).normal_(generator=theirs))


def test_seeding_between_replays():
    g, out = capture(lambda: torch.rand(4))
    torch.manual_seed(3)
    g.replay()
    first = out.clone()
    g.replay()
    assert not torch.equal(out, first)
    torch.manual_seed(3)
    g.replay()
    assert torch.equal(out, first)


def test_inputs_are_read_at_replay():
    x = torch.ones(3)
    g, y = capture(lambda: x * 2)
    for value in (1.0, 5.0):
        x.fill_(value)
        g.replay()
        assert y.tolist() == [2 * value] * 3


def test_the_graph_keeps_memory_of_before():
    g, y = capture(lambda x: x * 2, torch.ones(1000))
    junk = [torch.full((1000,), 9.0) for _ in range(20)]
    g.replay()
    assert y.sum() == 2000 and len(junk) == 20


def test_slices_of_a_cache_are_written_in_place():
    kv = torch.zeros(4, 8, 3)
    row = torch.ones(3)

    def write():
        for layer in kv.unbind(0):
            layer[5].copy_(row)

    g, _ = capture(write)
    targets = [n.target for n in g._work.captured.graph.graph.nodes]
    assert torch.ops.aten.select_scatter.default not in targets
    assert torch.ops.aten.as_strided_scatter.default not in targets
    g.replay()
    want = torch.zeros(4, 8, 3)
    want[:, 5] = 1
    assert torch.equal(kv, want)


def test_autograd_inside_a_capture():
    w = torch.randn(3, 3, requires_grad=True)
    x = torch.randn(2, 3)

    def step():
        loss = (x @ w).tanh().sum()
        (grad,) = torch.autograd.grad(loss, [w])
        return loss, grad

    g, (loss, grad) = capture(step)
    for _ in range(2):
        x.normal_()
        g.replay()
        want_loss, want_grad = step()
        assert_same(loss.detach(), want_loss.detach())
        assert_same(grad, want_grad)


def test_a_training_step_with_its_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    theirs.load_state_dict(model.state_dict())
    x, y = torch.randn(5, 4), torch.randn(5, 2)

    def stepper(module):
        opt = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

        def step():
            opt.zero_grad(set_to_none=False)
            loss = F.mse_loss(module(x), y)
            loss.backward()
            opt.step()
            return loss

        return step

    mine_step, their_step = stepper(model), stepper(theirs)
    for step in (mine_step, their_step):
        step()
    g, loss = capture(mine_step)
    for _ in range(3):
        g.replay()
        assert_same(loss.detach(), their_step().detach())
    assert_same(
        list(model.state_dict().values()), list(theirs.state_dict().values())
    )


def test_a_compiled_function_inside_a_capture():
    from helpers import make_backend

    fn = torch.compile(
        lambda x: (x * 2).relu() + 1, backend=make_backend("reduce-overhead")
    )
    x = torch.randn(5)
    fn(x)  # compiled before
    g, y = capture(fn, x)
    x.copy_(torch.arange(5.0) - 2)
    g.replay()
    assert_same(y, (x * 2).relu() + 1)


def test_a_program_called_inside_a_capture():
    from torch.fx.experimental.proxy_tensor import make_fx

    import torchair

    x = torch.randn(5)
    gm = make_fx(lambda x: ((x * 2).relu() + 1,))(x)
    program = torchair.get_compiler()(gm, [x])
    assert_same(program([x])[0], (x * 2).relu() + 1)
    g, (y,) = capture(lambda: program([x]))
    x.copy_(torch.arange(5.0) - 2)
    assert program([x])[0].tolist() == [1.0, 1.0, 1.0, 3.0, 5.0]
    g.replay()
    assert_same(y, (x * 2).relu() + 1)
    assert "aten.relu.default" in [str(e.func) for e in g._work.log]


def test_operators_of_another_thread_run():
    import threading

    x, seen = torch.ones(3), []
    g = npu.NPUGraph()
    with npu.graph(g):
        y = x * 2
        t = threading.Thread(target=lambda: seen.append((x + 1).tolist()))
        t.start()
        t.join()
    assert seen == [[2.0] * 3]
    g.replay()
    assert y.tolist() == [2.0] * 3


# ---- what is refused ----

REFUSED = {
    "item": (lambda x: (x * 2)[0].item(), "host"),
    "branch": (lambda x: x if (x.sum() > 0) else -x, "host"),
    "tolist": (lambda x: (x * 2).tolist(), "host"),
    "numpy": (lambda x: (x * 2).numpy(), "host"),
    "cpu": (lambda x: (x * 2).cpu(), "host"),
    "print": (lambda x: str(x * 2), "host"),
    "equal": (lambda x: torch.equal(x, x * 2), "host"),
    "nonzero": (lambda x: torch.nonzero(x), "depend on data"),
    "mask": (lambda x: x[x > 0], "depend on data"),
    "resize": (lambda x: (x * 2).resize_(9), "resizes"),
    "resize_out": (
        lambda x: torch.add(x, 1, out=torch.empty(0)),
        "resizes its out",
    ),
    "set": (lambda x: x.set_(torch.ones(2)), "other memory"),
    "sparse": (lambda x: x.to_sparse(), "layout"),
    "sync": (lambda x: npu.synchronize(), "not permitted"),
    "stream_sync": (
        lambda x: npu.current_stream().synchronize(),
        "not permitted",
    ),
    "query": (lambda x: npu.current_stream().query(), "not permitted"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_inside_a_capture(name):
    fn, message = REFUSED[name]
    g = npu.NPUGraph()
    x = torch.randn(3)
    with pytest.raises(RuntimeError, match=message), npu.graph(g):
        fn(x)
    assert not npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.replay()
    g, y = capture(lambda: x + 1)  # the machinery is as before
    g.replay()
    assert_same(y, x + 1)


def test_a_refusal_that_is_caught_still_spoils_the_capture():
    g = npu.NPUGraph()

    def body():
        with pytest.raises(RuntimeError, match="host"):
            torch.ones(1).mul(2).item()

    with (
        pytest.raises(RuntimeError, match="capture has failed.*host"),
        npu.graph(g),
    ):
        body()


def test_an_ordinary_error_does_not():
    x = torch.ones(3)
    g = npu.NPUGraph()
    with npu.graph(g):
        with pytest.raises(RuntimeError):
            x + torch.ones(4)
        y = x + 1
    g.replay()
    assert y.tolist() == [2.0] * 3
