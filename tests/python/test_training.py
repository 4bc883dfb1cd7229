"""Forward and backward graphs."""

import copy
import gc
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from helpers import (
    BEFORE_213,
    DEVICE,
    assert_same,
    compiled,
    fallbacks,
    hosts,
    recorded,
)
from torch import nn

import torchair
from torchair import _native


def gradients(fn, *args):
    leaves = [
        a.detach().clone().requires_grad_()
        if isinstance(a, torch.Tensor) and a.is_floating_point()
        else a
        for a in args
    ]
    out = fn(*leaves)
    outs = out if isinstance(out, tuple) else (out,)
    torch.manual_seed(1)
    total = sum((o * torch.randn_like(o)).sum() for o in outs)
    total.backward()
    return outs, [a.grad for a in leaves if isinstance(a, torch.Tensor)]


def classes(*numbers):
    return torch.tensor(numbers, device=DEVICE)


EVERY = torch.linspace(0.5, 1.5, 7, device=DEVICE)  # weights of classes
FUNCTIONS = {
    "pointwise": (lambda x, y: torch.tanh(x) * y + torch.exp(-x), (6,), (6,)),
    "broadcast": (lambda x, y: x * y, (4, 5), (5,)),
    "matmul": (lambda x, y: x @ y, (4, 5), (5, 3)),
    "linear_gelu": (
        lambda x, w, b: F.gelu(F.linear(x, w, b)),
        (4, 8),
        (6, 8),
        (6,),
    ),
    "softmax": (lambda x: torch.softmax(x, -1), (4, 7)),
    "log_softmax": (lambda x: torch.log_softmax(x, 1), (4, 7)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (8,), w, b),
        (5, 8),
        (8,),
        (8,),
    ),
    "layer_norm_long": (
        lambda x, w, b: F.layer_norm(x, (130,), w, b) * 1.5,
        (3, 37, 130),
        (130,),
        (130,),
    ),
    "rms_norm_long": (
        lambda x, w: F.rms_norm(x, (100,), w, 1e-5),
        (70, 100),
        (100,),
    ),
    "batch_norm": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        (6, 5, 7, 7),
        (5,),
        (5,),
    ),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, classes(2, 0, -100, 6), EVERY),
        (4, 7),
    ),
    "cross_entropy_sum": (
        lambda x: F.cross_entropy(
            x, classes(2, 0, 5, 6), ignore_index=5, reduction="sum"
        ),
        (4, 7),
    ),
    "cross_entropy_none": (
        lambda x: F.cross_entropy(
            x, classes([2, 0, 1], [1, 1, 0]), reduction="none"
        ),
        (2, 3, 3),
    ),
    "cross_entropy_smooth": (
        lambda x: F.cross_entropy(x, classes(2, 0, 5, 6), label_smoothing=0.1),
        (4, 7),
    ),
    "mean_var": (lambda x: (x.mean(0), x.var(1)), (4, 6)),
    "amax": (lambda x: x.amax(1), (4, 6)),
    "views": (lambda x: x.t()[1:].reshape(-1) * 2, (4, 6)),
    "index": (lambda x: x[torch.tensor([0, 2, 2])], (4, 3)),
    "cat": (lambda x, y: torch.cat([x, y * 2]), (2, 3), (4, 3)),
    "conv": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (2, 3, 6, 6),
        (4, 3, 3, 3),
        (4,),
    ),
    "max_pool": (lambda x: F.max_pool2d(x, 2), (1, 2, 6, 6)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (1, 2, 8, 16),
        (1, 2, 8, 16),
        (1, 2, 8, 16),
    ),
    "where": (lambda x, y: torch.where(x > 0, x * y, y), (9,), (9,)),
    "cumsum": (lambda x: x.cumsum(0), (7,)),
    "silu_mul": (lambda x, y: F.silu(x) * y, (8,), (8,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient(name):
    fn, *shapes = FUNCTIONS[name]
    args = [torch.randn(s) for s in shapes]
    with recorded() as records:
        got = gradients(compiled(fn), *args)
    assert_same(got, gradients(fn, *args))
    assert not fallbacks(records)
    assert [r.kind for r in records] == ["forward", "backward"]


def test_only_some_inputs_need_gradients():
    def fn(x, w, i):
        return (x * w)[i].sum()

    x, i = torch.randn(4, 3), torch.tensor([1, 2])
    w = torch.randn(3, requires_grad=True)
    v = w.detach().clone().requires_grad_()
    compiled(fn)(x, w, i).backward()
    fn(x, v, i).backward()
    assert_same(w.grad, v.grad)
    assert x.grad is None


def test_unused_result_and_none_gradient():
    def fn(x, y):
        return x * 2, y.detach() + 1, (x * y).sum()

    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    got = compiled(fn)(x, y)
    got[0].sum().backward()
    assert_same(x.grad, torch.full((3,), 2.0))


def test_backward_twice():
    run = compiled(lambda x: (x * x).sum())
    x = torch.randn(4, requires_grad=True)
    y = run(x)
    y.backward(retain_graph=True)
    y.backward()
    assert_same(x.grad, 4 * x.detach())


def test_backward_in_other_order():
    run = compiled(lambda x: torch.exp(x) * 2)
    xs = [torch.randn(50, requires_grad=True) for _ in range(3)]
    ys = [run(x) for x in xs]
    for y in ys:
        y.sum().backward()
    for x in xs:
        assert_same(x.grad, 2 * torch.exp(x.detach()))


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

    def fn(x):
        return checkpoint(net, x, use_reentrant=False)

    x = torch.randn(4, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    compiled(fn)(x).sum().backward()
    net(y).sum().backward()
    assert_same(x.grad, y.grad)


def test_dropout_equals_eager():
    def fn(x):
        return F.dropout(x, 0.4, training=True) * 2

    x = torch.randn(64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    run = compiled(fn)
    torch.manual_seed(3)
    got = run(x)
    got.sum().backward()
    torch.manual_seed(3)
    want = fn(y)
    want.sum().backward()
    assert_same(got, want)
    assert_same(x.grad, y.grad)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 64), nn.Linear(64, 64)
        self.c = nn.Linear(64, 10)

    def forward(self, x, y):
        h = F.relu(self.b(F.relu(self.a(x))))
        return F.cross_entropy(self.c(h), y)


class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(x).split(d, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class GPT(nn.Module):
    def __init__(self, vocab=31, d=32, layers=4, heads=4, length=16):
        super().__init__()
        self.tokens = nn.Embedding(vocab, d)
        self.places = nn.Embedding(length, d)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(d),
                    "a": Attention(d, heads),
                    "n2": nn.LayerNorm(d),
                    "m": nn.Sequential(
                        nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)
                    ),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, x, y):
        h = self.tokens(x) + self.places(
            torch.arange(x.shape[1], device=x.device)
        )
        for layer in self.layers:
            h = h + layer["a"](layer["n1"](h))
            h = h + layer["m"](layer["n2"](h))
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def train(net, run, batches, make):
    optimizer = make(net.parameters())
    losses = []
    for x, y in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = run(x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mlp_batch():
    return torch.randn(16, 32), torch.randint(0, 10, (16,))


def gpt_batch():
    x = torch.randint(0, 31, (4, 17))
    return x[:, :-1], x[:, 1:]


CASES = {
    "mlp_adam": (MLP, mlp_batch, lambda p: torch.optim.Adam(p, 1e-3)),
    "mlp_sgd": (MLP, mlp_batch, lambda p: torch.optim.SGD(p, 0.1)),
    "gpt_adamw": (GPT, gpt_batch, lambda p: torch.optim.AdamW(p, 1e-3)),
    "gpt_adamw_fused": (
        GPT,
        gpt_batch,
        lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    ),
}


MODES = ["max-autotune", "reduce-overhead"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_fifty_steps(name, mode):
    """Each loss within 1e-4 of eager's, relative; one compile."""
    make, batch, optimizer = CASES[name]
    mine = make()
    theirs = copy.deepcopy(mine)
    batches = [batch() for _ in range(50)]
    with recorded() as records:
        got = train(mine, compiled(mine, mode), batches, optimizer)
    want = train(theirs, theirs, batches, optimizer)
    torch.testing.assert_close(
        torch.tensor(got), torch.tensor(want), rtol=1e-4, atol=0
    )
    assert not fallbacks(records)
    assert not hosts(records)
    assert len(records) == 2


def resident():
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mlp_adam", "gpt_adamw"])
def test_memory_does_not_grow(name, mode):
    """Neither blocks of the pool nor the process, over 100 steps."""
    make, batch, optimizer = CASES[name]
    net = make()
    run = compiled(net, mode)
    batches = [batch() for _ in range(50)]

    def measure(rounds):
        train(net, run, batches * rounds, optimizer)
        net.zero_grad(set_to_none=True)
        gc.collect()
        return _native.pool_stats(), resident()

    before, size = measure(1)
    after, grown = measure(2)
    assert after["live_blocks"] == before["live_blocks"]
    assert after["kept_bytes"] <= before["kept_bytes"] + (1 << 20)
    assert grown - size < 8 << 20


def normalised(x, w, b, mean, var):
    """Of an input whose mean is many deviations: saved in bfloat16, it would
    be off by a good part of one."""
    y = F.batch_norm(x, mean, var, w, b, True)
    return (torch.tanh(y.float()) ** 2).sum()


@pytest.mark.parametrize(
    "statistics",
    [
        torch.float32,
        pytest.param(
            torch.bfloat16,
            marks=pytest.mark.host("eager of a GPU saves them in float32"),
        ),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_batch_norm_of_low_precision(mode, statistics):
    """Statistics are saved and kept in the dtypes that eager gives them."""
    torch.manual_seed(0)
    x = (torch.randn(8, 4, 5, 5) + 12).bfloat16()

    def step(fn, dtype):
        wide = dtype == torch.float64
        like = x.double() if wide else x.clone()
        like.requires_grad_()
        w, b = torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        kept = torch.zeros(4, dtype=dtype), torch.ones(4, dtype=dtype)
        fn(like, w, b, *kept).backward()
        return [like.grad, *kept]

    with recorded() as records:
        got = step(compiled(normalised, mode), statistics)
    want, exact = step(normalised, statistics), step(normalised, torch.float64)
    assert not fallbacks(records)
    assert not hosts(records)
    for mine, theirs, true in zip(got, want, exact, strict=True):
        assert mine.dtype == theirs.dtype
        error, eager = ((t.double() - true).norm() for t in (mine, theirs))
        assert error <= 1.1 * eager + 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_backward_inside_of_a_compiled_function(mode):
    """Dynamo breaks the graph there, and compiles nothing of ours."""
    from torch._dynamo.utils import counters

    net, (x, y) = MLP(), mlp_batch()

    def fn(x, y):
        loss = net(x, y)
        loss.backward()
        return loss.detach() + 1

    torch._dynamo.reset()
    counters.clear()
    with recorded() as records:
        got = compiled(fn, mode)(x, y)
    grads = [p.grad for p in net.parameters()]
    net.zero_grad(set_to_none=True)
    assert_same(got, fn(x, y))
    assert_same(grads, [p.grad for p in net.parameters()])
    assert [r.kind for r in records] == ["forward", "backward", "inference"]
    assert not fallbacks(records)
    assert len(counters["graph_break"]) == 1


FIRST_OF_A_PROCESS = """
import torch, torchair
net = torch.nn.Linear(3, 2)
def fn(x):
    loss = net(x).sum()
    loss.backward()
    return loss.detach()
def setting():
    return getattr(torch._dynamo.config, "record_runtime_overhead", None)
before = setting()
for _ in range(2):
    torch.compile(fn, backend="torchair")(torch.randn(4, 3))
    assert setting() == before
    torch._dynamo.reset()
"""


def test_backward_inside_of_the_first_function():
    """Dynamo calls us back under a lock when it has compiled the backward."""
    subprocess.run(
        [sys.executable, "-c", FIRST_OF_A_PROCESS],
        check=True,
        timeout=300,
        cwd=os.path.dirname(os.path.dirname(torchair.__file__)),
    )


@pytest.mark.skipif(BEFORE_213, reason="Dynamo traces no backward")
@pytest.mark.parametrize("mode", MODES)
def test_forward_and_backward_as_one_graph(mode):
    """Two micro-batches, whose gradients are added in it."""
    mine, (x, y) = MLP(), mlp_batch()
    theirs = copy.deepcopy(mine)

    def step(net):
        for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = net(part, labels)
            loss.backward()
        return loss.detach()

    traced = torch._dynamo.config.patch(trace_autograd_ops=True)
    with traced, recorded() as records:
        run = compiled(lambda: step(mine), mode, fullgraph=True)
        for _ in range(2):  # without gradients, then on top of them
            assert_same(run(), step(theirs))
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_same(p.grad, q.grad)
    assert {r.kind for r in records} == {"inference"}
    assert not fallbacks(records)
    assert not hosts(records)


def test_what_is_cheap_is_computed_again_and_not_kept():
    def chain(x):
        return (F.gelu(torch.sin(x * 2 + 1)) * torch.sigmoid(x)).sum()

    x, kept = torch.randn(8, 6), []
    c = compiled(chain)
    assert_same(gradients(c, x), gradients(chain, x))
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.append(t.shape) or t, lambda t: t
    ):
        c(x.requires_grad_())
    assert len(kept) <= 2  # of the five that the derivatives name


class Tied(nn.Module):
    """A table that is looked up and multiplied by."""

    def __init__(self, padding):
        super().__init__()
        self.table = nn.Embedding(50, 16, padding_idx=padding)

    def forward(self, ids):
        x = torch.tanh(self.table(ids))
        return (x @ self.table.weight.t()).square().sum()


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("padding", [None, 3])
def test_the_gradient_of_a_tied_table(padding, mode):
    torch.manual_seed(0)
    eager = Tied(padding).to(DEVICE)
    ours, exact = copy.deepcopy(eager), copy.deepcopy(eager).double()
    run = compiled(ours, mode)
    for rows in (4, 7):  # the second time of any number
        ids = torch.randint(0, 5, (2, rows), device=DEVICE)
        for model in (eager, ours, exact):
            model.zero_grad()
            (run if model is ours else model)(ids).backward()
        want = exact.table.weight.grad
        error, theirs = (
            (m.table.weight.grad.double() - want).norm() for m in (ours, eager)
        )
        assert error <= 2 * theirs + 1e-6 * want.norm()
