"""Training graphs called without AOTAutograd's wrappers: eager, torch's way and
ours run the same steps and must be told apart by nothing; where ours cannot
be, torch's way stays, with a reason."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import types
import weakref

import pytest
import torch
import torch.nn.functional as F
from helpers import BEFORE_213, assert_same, compiled, recorded
from torch import nn

from torchair import _native, compat_training, dispatch, trained


class Logits(nn.Module):
    """Its result is a reshaped product; the mask is no number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x):
        out = self.layer(x)
        return out, out > 0, x.shape[0]


class Normed(nn.Module):
    """Writes its running statistics."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return F.gelu(self.norm(self.layer(x[:, 0]))).sum()


class Counted(nn.Module):
    """Writes a buffer that its gradient does not need."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        self.seen.add_(x.detach().sum((0, 1)))
        return (self.layer(x) ** 2).mean()


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x):
        return F.dropout(self.layer(x), 0.5).square().sum()


class Three(nn.Module):
    """Three results, of which the step differentiates one more each time."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(1, 2, 6))

    def forward(self, x):
        y = x * self.scale
        return y.sin().sum(), y.cos().t(), y.exp()[:, ::2] * 1


MODELS = [Logits, Normed, Counted, Dropped, Three]


def steps(call, model, x):
    """What three and more steps give."""
    rule = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    seen = []
    first = [b._version for b in model.buffers()]
    torch.manual_seed(3)
    for step in range(6):
        mine = (x + step).requires_grad_()
        results = call(mine)
        several = results if isinstance(results, tuple) else (results,)
        floats = [
            r
            for r in several
            if isinstance(r, torch.Tensor) and r.requires_grad
        ]
        sum(r.sin().sum() for r in floats[: step + 1]).backward()
        rule.step()
        grads = [p.grad.clone() for p in model.parameters()]
        seen.append([*several, mine.grad, *grads])
        seen.append([b.clone() for b in model.buffers()])
        buffers = zip(model.buffers(), first, strict=True)
        seen.append([b._version - was for b, was in buffers])
        rule.zero_grad()
    return seen


@contextlib.contextmanager
def torchs_way(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(trained, "_kept_when_compiled", lambda: "a test")
        yield


def exactly(got, want):
    for g, w in zip(got, want, strict=True):
        for a, b in zip(g, w, strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, rtol=0, atol=0)
            else:
                assert a == b


def forward_of(records):
    (found,) = (r for r in records if r.kind == "forward")
    return found


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("kind", MODELS)
def test_steps_are_those_of_torchs_way(kind, mode, monkeypatch):
    torch.manual_seed(0)
    models = [kind()]
    models.append(copy.deepcopy(models[0]))
    x = torch.randn(8, 3, 6) if kind is not Three else torch.randn(4, 6)
    torch._dynamo.reset()
    with torchs_way(monkeypatch), recorded() as theirs:
        want = steps(compiled(models[0], mode), models[0], x)
    torch._dynamo.reset()
    with recorded() as mine:
        got = steps(compiled(models[1], mode), models[1], x)
    exactly(got, want)
    assert forward_of(theirs).wrapper == "a test"
    assert forward_of(mine).wrapper == ""


class Broken(nn.Module):
    """Two graphs, the first of which writes a buffer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        self.seen.add_(x.detach().sum((0, 1)))
        y = self.first(x).relu()
        torch._dynamo.graph_break()
        return (self.second(y) ** 2).mean()


def test_around_a_graph_break_too(monkeypatch):
    torch.manual_seed(0)
    model, x = Broken(), torch.randn(8, 3, 6)
    other = copy.deepcopy(model)
    torch._dynamo.reset()
    with torchs_way(monkeypatch):
        want = steps(compiled(model), model, x)
    torch._dynamo.reset()
    with recorded() as mine:
        got = steps(compiled(other), other, x)
    exactly(got, want)
    assert [r.wrapper for r in mine] == [""] * 4


def product(x, w):
    return (x @ w).relu().sum()


def weight():
    torch.manual_seed(1)
    return torch.randn(6, 6, requires_grad=True)


def warm(fn, *args, **options):
    """fn compiled, its programs called directly; the record too."""
    torch._dynamo.reset()
    with recorded() as records:
        c = compiled(fn, **options)
        for _ in range(4):
            results = c(*args)
            several = results if isinstance(results, tuple) else (results,)
            sum(r.sum() for r in several).backward()
    for x in args:
        x.grad = None
    return c, forward_of(records)


@pytest.mark.parametrize("ours", [True, False])
def test_a_retained_graph_runs_twice(ours, monkeypatch):
    x, w = weight(), weight()
    way = contextlib.nullcontext() if ours else torchs_way(monkeypatch)
    with way:
        c, record = warm(product, x, w)
    loss = c(x, w)
    loss.backward(retain_graph=True)
    once = w.grad.clone()
    loss.backward()
    assert_same(w.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    assert (record.wrapper == "") == ours


class EffectTokensWrapper:
    """Of torch 2.11: around every forward graph."""

    @staticmethod
    def post_compile(compiled):
        @functools.wraps(compiled)
        def inner_fn(args):
            return compiled(args)

        return inner_fn


def test_wrappers_that_do_nothing_are_seen_through():
    wrap, plain = EffectTokensWrapper.post_compile, sum
    assert compat_training.without_idle(wrap(wrap(plain))) is plain
    other = functools.wraps(plain)(lambda args: plain(args))
    assert compat_training.without_idle(other) is other


def test_a_second_derivative_is_refused_as_torch_does():
    x, w = weight(), weight()
    c, _ = warm(product, x, w)
    (grad,) = torch.autograd.grad(c(x, w), w, create_graph=True)
    why = "does not require grad" if BEFORE_213 else "double backward"
    with pytest.raises(RuntimeError, match=why):
        grad.sum().backward()


def test_a_saved_tensor_that_is_written_is_noticed():
    x, w = weight(), weight()
    c, _ = warm(product, x, w)
    loss = c(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        loss.backward()


def saves_its_output(x, w):
    return (x @ w).exp(), x * w


def saves_a_view_of_its_output(x, w):
    y = (x @ w).exp()
    return y, y.t() @ w


def shows_a_view_of_what_it_saves(x, w):
    return (x @ w).relu().view(3, 12)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "fn",
    [
        saves_its_output,
        saves_a_view_of_its_output,
        shows_a_view_of_what_it_saves,
    ],
)
def test_an_output_that_is_saved_and_written_is_noticed(fn, mode):
    x, w = weight(), weight()
    c, record = warm(fn, x, w, mode=mode)
    for call in (fn, c):
        results = call(x, w)
        first = results[0] if isinstance(results, tuple) else results
        first.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            first.sum().backward()
    assert record.wrapper == ""


def test_an_output_that_is_not_saved_may_be_written():
    def fn(x, w):
        return x @ w, (x * w).sin()

    x, w = weight(), weight()
    c, _ = warm(fn, x, w)
    grads = []
    for call in (fn, c):
        y, z = call(x, w)
        y.mul_(2), z.add_(1)
        grads.append(torch.autograd.grad(y.sum() + z.sum(), (x, w)))
    assert_same(grads[1], grads[0])


def test_gradients_may_come_in_a_batch():
    def fn(x, w):
        return (x * w).sin()[0]

    x, w = weight(), weight()
    c, _ = warm(fn, x, w)
    found = [
        torch.autograd.grad(f(x, w), x, torch.eye(6), is_grads_batched=True)
        for f in (fn, c)
    ]
    assert_same(found[1], found[0])


def test_a_gradient_may_lie_in_any_way():
    def scaled(x, w):
        return (x @ w).sin()

    x, w = weight(), weight()
    c, _ = warm(scaled, x, w)
    for grad in (torch.ones(()).expand(6, 6), torch.randn(6, 6).t()):
        want = torch.autograd.grad(scaled(x, w), (x, w), grad)
        assert_same(torch.autograd.grad(c(x, w), (x, w), grad), want)


def test_an_input_without_a_gradient_is_no_part_of_the_graph():
    def partly(x, w):
        return (x * w.detach()).sum()

    c, record = warm(partly, weight(), weight())
    leaf = weight()
    w = leaf * 2
    w.sum().backward()  # what made w cannot run again
    c(weight(), w).backward()
    assert record.wrapper == ""


def test_hooks_of_saved_tensors_see_them():
    x, w = weight(), weight()
    c, _ = warm(product, x, w)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: packed.append(t) or t, lambda t: t
    ):
        loss = c(x, w)
    loss.backward()
    assert packed


def test_a_deterministic_run_is_refused_as_torch_does():
    x, w = weight(), weight()
    c, _ = warm(product, x, w)
    loss = c(x, w)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            loss.backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_sizes_that_change_have_their_symbols_saved():
    def total(x, w):
        return (x @ w / x.shape[0]).sin().sum()

    x, w = torch.randn(5, 6, requires_grad=True), weight()
    c, record = warm(total, x, w, dynamic=True)
    for rows in (5, 7, 9):
        x = torch.randn(rows, 6, requires_grad=True)
        got = torch.autograd.grad(c(x, w), (x, w))
        assert_same(got, torch.autograd.grad(total(x, w), (x, w)))
    assert record.wrapper == ""


def test_compiled_autograd_finds_what_it_looks_for():
    x, w = weight(), weight()
    c, record = warm(product, x, w)
    enable = torch._dynamo.compiled_autograd._enable
    with enable(torch.compile(backend="eager")):
        c(x, w).backward()
    want = torch.autograd.grad(product(x, w), (x, w))
    assert_same((x.grad, w.grad), want)
    assert record.wrapper == ""


def views(x, w):
    y = x * w
    return y, y[1:]


def outputs_grow(x, w):
    return x * w


KEPT = [
    (views, {}, "an output is "),
    (outputs_grow, {"dynamic": True}, "outputs have dynamic sizes"),
]


@pytest.mark.parametrize("fn,options,why", KEPT)
def test_these_keep_torchs_way_and_say_why(fn, options, why):
    x, w = weight(), weight()
    c, record = warm(fn, x, w, **options)
    assert record.wrapper.startswith(why)
    assert_same(c(x, w), fn(x, w))


def test_autocast_keeps_it():
    x, w = weight(), weight()
    with torch.autocast("cpu", torch.bfloat16):
        _, record = warm(product, x, w)
    assert record.wrapper == "autocast is on"


def test_a_call_within_a_transform_is_torchs():
    x, w = weight(), weight()
    c, _ = warm(product, x, w)
    want = torch.func.grad(product)(x, w)
    assert_same(torch.func.grad(c)(x, w), want)
    assert_same(torch.autograd.grad(c(x, w), x)[0], want)


def test_what_is_dropped_is_freed():
    before = dispatch.stats()
    x, w = weight(), weight()
    c, record = warm(product, x, w)
    found = [t for t in gc.get_objects() if type(t) is trained.Trained]
    mine = [weakref.ref(t) for t in found if t.forward.record is record]
    assert len(mine) == 1
    assert dispatch.stats() != before
    del found, c
    torch._dynamo.reset()
    gc.collect()
    assert mine[0]() is None


def test_copies_of_a_model_train_apart():
    torch.manual_seed(0)
    first = Dropped()
    second = copy.deepcopy(first)
    torch._dynamo.reset()
    a, b = compiled(first), compiled(second)
    x = torch.randn(2, 3, 6)
    for _ in range(4):
        for call, model in ((a, first), (b, second)):
            torch.manual_seed(5)
            model.zero_grad()
            call(x).backward()
        assert_same(first.layer.weight.grad, second.layer.weight.grad)


def test_what_autograd_calls_refuses_other_arguments():
    def echo(values):
        return tuple(values)

    with pytest.raises(ValueError, match="must not be negative"):
        _native.Forward(echo, -1, 0, ())
    with pytest.raises(IndexError, match="not shown"):
        _native.Forward(echo, 1, 0, (1,))
    forward = _native.Forward(echo, 2, 0, ())
    with pytest.raises(TypeError, match="missing or named"):
        forward()
    with pytest.raises(SystemError, match="lost an output"):
        forward(types.SimpleNamespace(), torch.ones(1))
    with pytest.raises(TypeError):
        _native.Backward(echo, (), echo, ((0, None),), echo, True)
    boxed = _native.Backward(echo, (), echo, (), echo, True)
    with pytest.raises(TypeError, match="missing or named"):
        boxed(types.SimpleNamespace(), torch.ones(1))
    with pytest.raises(IndexError):
        node = types.SimpleNamespace(symints=(), saved_tensors=())
        _native.Backward(echo, (), echo, ((1, None, True),), echo, False)(
            node, torch.ones(1)
        )


def test_what_autograd_calls_keeps_and_gives():
    class Node(types.SimpleNamespace):
        symints, saved_tensors = (3,), (torch.zeros(2),)

        def maybe_clear_saved_tensors(self):
            self.cleared = True

    node = Node()
    forward = _native.Forward(lambda all: [*all, 3], 2, 1, (1,))
    x, y, z = torch.ones(4).split([2, 1, 1])
    shown = forward(node, x, y, z)
    assert [t._is_view() for t in shown] == [False, False]
    assert shown[0].data_ptr() == x.data_ptr() and node.symints == (3,)
    assert node.non_differentiable[0] is shown[1]
    assert [t.data_ptr() for t in node.to_save] == [z.data_ptr()]
    seen = []

    def run(values):
        seen.append(list(values))
        return [values[-1]]

    backward = _native.Backward(
        run,
        (torch.is_grad_enabled,),
        lambda node, *grads: "torch's",
        ((0, None, True), (1, "layout", False)),
        lambda grad, layout: (grad, layout),
        False,
    )
    assert backward(node, x, y) == "torch's"  # gradients of gradients
    with torch.no_grad():
        assert backward(node, x, y) == ((y, "layout"),)
        assert seen[0][:2] == [3, Node.saved_tensors[0]] and node.cleared
        assert backward(node, torch.nn.Parameter(x), y) == "torch's"
        Node.call = backward
        assert node.call(None, None) == (None,)
