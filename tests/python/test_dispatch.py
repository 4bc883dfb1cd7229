"""The own dispatcher: the short way is taken where it may be, and only there.

Every test compares with eager and looks at the dispatcher's counters.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import signal
import sys
import weakref

import pytest
import torch
from helpers import DEVICE, in_threads, seeded
from torch import nn

from torchair import dispatch
from torchair.backend import torchair as backend

HIT = "dispatched"
BARE = "of these, without the function that Dynamo generated"
WEIGHT = nn.Parameter(torch.ones(3, device=DEVICE))
SLOW = {
    "new": "nothing compiled that can be called directly",
    "guards": "no guards hold: sizes, types or globals are others",
    "state": "Dynamo is at work, a stance is set, or a trace is running",
    "hooks": "the module has hooks or another forward",
    "bind": "the arguments do not fit the function's parameters",
}


def compiled(fn, **kwargs):
    return torch.compile(fn, backend=backend, mode="reduce-overhead", **kwargs)


def hits(fn):
    return stats(fn)[HIT]


def stats(fn):
    forward = getattr(fn, "forward", fn)
    return forward._torchair_dispatcher.stats()


def same(got, want):
    torch.testing.assert_close(got, want)


def test_second_call_takes_the_short_way():
    def fn(x, y):
        return torch.relu(x + y) * 2

    c, x, y = compiled(fn), torch.randn(64), torch.randn(64)
    for i in range(5):
        same(c(x, y), fn(x, y))
        assert hits(c) == i
    assert stats(c)[SLOW["new"]] == 1


def test_looks_in_vain_become_seldom(monkeypatch):
    """A frame that a break has cut never gets an entry; another one of the
    function is found all the same."""
    looks, plainly = [], dispatch._Refresher.__call__

    def look(self, dispatcher):
        looks.append(self)
        plainly(self, dispatcher)

    monkeypatch.setattr(dispatch._Refresher, "__call__", look)

    def fn(x, cut):
        y = x * 2
        if cut:
            torch._dynamo.graph_break()
        return y + 1

    c, x = compiled(fn), torch.randn(8)
    for _ in range(100):
        same(c(x, True), x * 2 + 1)
    assert len(looks) < 20
    for _ in range(40):
        same(c(x, False), x * 2 + 1)
    assert hits(c) > 20


def plain(x):
    return x + 1


def changes(x):
    return x.add_(1)


def names(x):
    return {"y": x + 1}


def trains(x):
    return (x * WEIGHT).sum()


def calls_programs(fn):
    return {n for n in fn.__globals__ if n.startswith("__air_program_")}


@pytest.mark.parametrize(
    "fn,made,bare",
    [(plain, 0, 2), (changes, 0, 2), (names, 1, 0), (trains, 1, 0)],
    ids=lambda p: getattr(p, "__name__", str(p)),
)
def test_no_more_python_runs_than_has_to(fn, made, bare):
    gc.collect()
    before = calls_programs(fn)
    c = compiled(fn)
    for _ in range(3):
        c(torch.ones(3))
    assert hits(c) == 2
    assert stats(c)[BARE] == bare
    assert len(calls_programs(fn) - before) == made
    torch._dynamo.reset()
    del c
    gc.collect()
    assert calls_programs(fn) <= before


def test_entries_are_checked():
    c, x = compiled(plain), torch.ones(3)
    c(x)
    dispatcher, yes = c._torchair_dispatcher, lambda _locals: True

    class Owner:
        cache_entry = 1

    def entry(recipe):
        return ((yes, Owner, lambda *a: a, recipe),)

    for recipe, error in [
        ((("x",), "heap", ()), ValueError),
        ((("x",), "item"), TypeError),
        (("x", "item", ()), TypeError),
    ]:
        with pytest.raises(error):
            dispatcher.set_entries(entry(recipe))
    for wrong in ([], (3,), ((yes, Owner, yes),)):
        with pytest.raises(TypeError):
            dispatcher.set_entries(wrong)
    same(c(x), x + 1)  # the old entries are still there
    dispatcher.set_entries(entry((("x",), "list", ((0, None), (-1, 7)))))
    assert c(x) == [x, 7]
    dispatcher.set_entries(entry((("z",), "item", ((0, None),))))
    with pytest.raises(SystemError, match="parameter"):
        c(x)
    dispatcher.set_entries(entry((("x",), "item", ((5, None),))))
    with pytest.raises(IndexError):
        c(x)


def test_max_autotune_is_dispatched_too():
    c, x = torch.compile(lambda x: x + 1, backend=backend), torch.ones(3)
    for _ in range(3):
        same(c(x), x + 1)
    assert hits(c) == 2


def test_other_backends_are_left_alone():
    c = torch.compile(lambda x: x + 1, backend="eager")
    assert not hasattr(c, "_torchair_dispatcher")


def test_get_npu_backend_with_the_mode():
    import torchair

    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    npu = torchair.get_npu_backend(compiler_config=config)
    c = torch.compile(lambda x: x * 3, backend=npu)
    x = torch.randn(8)
    for _ in range(3):
        same(c(x), x * 3)
    assert hits(c) == 2


CALLS = [
    ((1, 2), {}),
    ((1,), {"b": 2}),
    ((), {"b": 2, "a": 1}),
    ((1,), {}),
    ((1, 2, 3, 4), {}),
    ((1, 2), {"k": 5}),
    ((1, 2, 3), {"k": 5, "extra": 6, "more": 7}),
]


@pytest.mark.parametrize("args,kwargs", CALLS)
def test_every_way_to_pass_arguments(args, kwargs):
    ten, one = torch.full((4,), 10.0), torch.ones(4)

    def fn(a, b=ten, *rest, k=one, **named):
        out = a - 2 * b + 3 * k
        for i, r in enumerate(rest):
            out = out + (i + 4) * r
        for name in sorted(named):
            out = out * 2 + named[name]
        return out

    def tensor(v):
        return torch.full((4,), float(v))

    args = [tensor(a) for a in args]
    kwargs = {k: tensor(v) for k, v in kwargs.items()}
    c = compiled(fn)
    for _ in range(3):
        same(c(*args, **kwargs), fn(*args, **kwargs))
    assert hits(c) == 2


def test_wrong_arguments_raise_what_python_raises():
    def fn(a, b):
        return a + b

    c, x = compiled(fn), torch.ones(3)
    c(x, x)
    for bad in (lambda: c(x), lambda: c(x, x, x), lambda: c(x, x, z=x)):
        with pytest.raises(TypeError, match="fn"):
            bad()
    with pytest.raises(TypeError, match="multiple values"):
        c(x, x, a=x)
    assert stats(c)[SLOW["bind"]] == 4
    same(c(x, x), x + x)
    assert hits(c) == 1


def test_guards_send_new_sizes_and_types_to_dynamo():
    def fn(x):
        return x * 2 + 1

    c = compiled(fn, dynamic=False)
    inputs = [torch.randn(4), torch.randn(5), torch.randn(4).double()]
    for x in inputs:
        same(c(x), fn(x))
    for x in inputs * 2:
        same(c(x), fn(x))
    assert hits(c) == 6
    assert stats(c)[SLOW["guards"]] == 2


def test_dynamic_sizes_share_one_entry():
    def fn(x):
        return x.sum(0) / x.shape[0]

    c = compiled(fn, dynamic=True)
    for n in range(3, 23):
        x = torch.randn(n, 2)
        torch.testing.assert_close(c(x), fn(x))
    assert hits(c) == 19


SCALE = 2.0


def test_globals_and_closures_are_guarded(monkeypatch):
    factor = 3.0

    def fn(x):
        return x * SCALE + factor

    c, x = compiled(fn), torch.ones(4)
    same(c(x), x * 2 + 3)
    same(c(x), x * 2 + 3)
    monkeypatch.setitem(fn.__globals__, "SCALE", 5.0)
    same(c(x), x * 5 + 3)
    factor = 7.0
    same(c(x), x * 5 + 7)
    same(c(x), x * 5 + 7)
    assert hits(c) >= 2


def test_inputs_changed_in_place():
    def fn(x, cache):
        cache[1:3] = x
        return cache.sum()

    c = compiled(fn)
    want, got = torch.zeros(4), torch.zeros(4)
    for i in range(4):
        x = torch.full((2,), float(i))
        same(c(x, got), fn(x, want))
        same(got, want)
    assert got._version >= 4
    assert hits(c) == 3


def test_results_that_are_inputs_or_views():
    def fn(x, y):
        z = x + y
        return x, x.view(-1)[1:], z, z.t()

    c, x, y = compiled(fn), torch.randn(3, 4), torch.randn(3, 4)
    for _ in range(3):
        got = c(x, y)
        same(got, fn(x, y))
        assert got[0] is x
        assert got[1]._base is x
    assert hits(c) == 2


def test_training_through_the_dispatcher():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    twin = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    twin.load_state_dict(model.state_dict())

    def loss(m, x):
        return m(x).square().mean()

    c = compiled(loss)
    for m, f in ((model, c), (twin, loss)):
        opt = torch.optim.SGD(m.parameters(), 0.1)
        torch.manual_seed(1)
        for _ in range(5):
            opt.zero_grad()
            f(m, torch.randn(4, 8)).backward()
            opt.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    assert hits(c) == 4


def test_grad_mode_is_guarded():
    w = nn.Parameter(torch.randn(4))

    def fn(x):
        return (x * w).sum()

    c, x = compiled(fn), torch.randn(4)
    with torch.no_grad():
        assert not c(x).requires_grad
        assert not c(x).requires_grad
    assert c(x).requires_grad
    c(x).backward()
    same(w.grad, x)
    with torch.no_grad():
        assert not c(x).requires_grad
    assert hits(c) == 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.scale = 1.0

    def forward(self, x, shift=0.5):
        out = self.lin(x) * self.scale + shift
        return out * 2 if self.training else out


def test_no_guard_is_skipped_by_tags_of_dicts(monkeypatch):
    """torch itself has left that off since 2.12: it read dicts that were gone,
    and with Python 3.13.0 a module's eval() was not noticed."""
    from torch._dynamo import guards

    asked = []
    monkeypatch.setattr(
        guards.GuardManagerWrapper, "find_tag_safe_roots", asked.append
    )
    net, x = Net(), torch.randn(2, 4)
    with torch.no_grad():
        same(compiled(net)(x), net(x))
    assert not asked


def test_modules_and_what_may_change_in_them():
    net, x = Net(), torch.randn(2, 4)
    c = compiled(net)
    with torch.no_grad():
        for _ in range(3):
            same(c(x), net(x))
        assert hits(c) == 2
        net.eval()
        same(c(x), net(x))
        net.scale = 3.0
        same(c(x), net(x))
        net.lin.weight.mul_(2)
        same(c(x), net(x))
        net.lin.weight = nn.Parameter(torch.randn(4, 4))
        same(c(x), net(x))
        net.lin = nn.Linear(4, 4, bias=False)
        same(c(x), net(x))
        same(c(x, shift=0.25), net(x, shift=0.25))


def test_module_hooks_run():
    net, x = Net(), torch.randn(2, 4)
    c = compiled(net)
    seen = []
    with torch.no_grad():
        c(x)
        c(x)
        hook = net.register_forward_hook(
            lambda m, a, o: seen.append(o) or o + 1
        )
        same(c(x), net(x))
        assert len(seen) == 2
        hook.remove()
        same(c(x), net(x))
        every = nn.modules.module.register_module_forward_pre_hook(
            lambda m, a: seen.append(a)
        )
        before = len(seen)
        c(x)
        every.remove()
    assert len(seen) > before
    assert stats(c)[SLOW["hooks"]] >= 1


def test_another_forward_on_the_instance():
    net, x = Net(), torch.randn(2, 4)
    c = compiled(net)
    with torch.no_grad():
        c(x)
        c(x)
        net.forward = lambda x: x * 100
        same(c(x), x * 100)
        del net.forward
        same(c(x), net(x))


def test_torch_layers_and_bound_methods():
    lin, x = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        c = compiled(lin)
        m = compiled(Net().forward)
        net = m._torchdynamo_orig_callable.__self__
        y = torch.randn(2, 4)
        for _ in range(3):
            same(c(x), lin(x))
            same(m(y), net(y))
    assert hits(m) == 2
    assert hits(c) == 2


def test_two_modules_of_one_class_do_not_mix():
    nets, x = [Net(), Net()], torch.randn(2, 4)
    both = [compiled(n) for n in nets]
    with torch.no_grad():
        for _ in range(3):
            for c, n in zip(both, nets, strict=True):
                same(c(x), n(x))


def test_reset_forgets_and_comes_back():
    def fn(x):
        return x + 1

    c, x = compiled(fn), torch.ones(2)
    c(x)
    c(x)
    torch._dynamo.reset()
    same(c(x), x + 1)
    same(c(x), x + 1)
    assert stats(c)[SLOW["new"]] + stats(c)[SLOW["guards"]] == 2
    assert hits(c) == 2


def test_a_stance_is_obeyed():
    ran = []

    def fn(x):
        if not torch.compiler.is_compiling():
            ran.append(1)
        return x + 1

    c, x = compiled(fn), torch.ones(2)
    c(x)
    c(x)
    assert not ran
    with torch.compiler.set_stance("force_eager"):
        same(c(x), x + 1)
    assert ran
    same(c(x), x + 1)
    assert hits(c) == 2


def test_graph_breaks_go_dynamos_way():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    c, x = compiled(fn), torch.ones(3)
    for _ in range(3):
        same(c(x), fn(x))
    assert hits(c) == 0
    assert any("graph break" in r for r in dispatch.stats())


@contextlib.contextmanager
def calls_of_aotautograd():
    """The names of its functions that are called inside."""
    seen = set()

    def see(frame, *_):
        if "_functorch" in frame.f_code.co_filename:
            seen.add(frame.f_code.co_name)

    sys.setprofile(see)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def test_graphs_around_a_break_go_without_aotautograd():
    def fn(x, kept):
        kept.add_(1)
        y = x.t() * 2
        torch._dynamo.graph_break()
        return y + kept, y.t()

    c, eager, ours = compiled(fn), torch.zeros(3), torch.zeros(3)
    for n in (2, 2, 5, 5, 7, 7):
        x = torch.arange(3.0 * n).reshape(3, n)
        with calls_of_aotautograd() as calls:
            got = c(x, ours)
        want = fn(x, eager)
        same(got, want)
        assert ours._version == eager._version
    assert calls <= {  # as C does; the latter is torch 2.11's
        "mark_dynamo_propagated_dynamic_indices",
        "maybe_mark_dynamic_helper",
    }


def test_inside_another_compiled_function():
    inner = compiled(lambda x: x * 2)
    outer = compiled(lambda x: inner(x) + 1)
    x = torch.ones(3)
    for _ in range(3):
        same(outer(x), x * 2 + 1)
        same(inner(x), x * 2)
    assert hits(outer) == 2


def test_inside_a_broken_frame_of_another():
    inner = compiled(lambda x: x * 2)

    def middle(x):
        torch._dynamo.graph_break()
        return inner(x) + 1

    outer = compiled(middle)
    x = torch.ones(3)
    for _ in range(3):
        same(outer(x), x * 2 + 1)


def test_results_that_are_no_tensors():
    def fn(x, n):
        return {"y": x * n, "n": n, "shape": x.shape, "none": None}

    c, x = compiled(fn), torch.ones(3)
    for _ in range(3):
        got = c(x, 2)
        assert got.keys() == fn(x, 2).keys()
        same(got["y"], x * 2)
        assert got["n"] == 2 and got["shape"] == x.shape
    assert hits(c) == 2


def test_a_side_effect_of_python_happens_each_time():
    seen = []

    def fn(x):
        seen.append(len(seen))
        return x + 1

    c, x = compiled(fn), torch.ones(3)
    for _ in range(4):
        c(x)
    assert len(seen) == 4


@pytest.mark.host("of a wrong index the call after it tells")
def test_errors_of_a_call_reach_the_caller():
    def fn(x, y):
        return torch.index_select(x, 0, y)

    c, x = compiled(fn), torch.randn(4)
    ok = torch.tensor([0, 3])
    same(c(x, ok), fn(x, ok))
    with pytest.raises((RuntimeError, IndexError)):
        c(x, torch.tensor([0, 9]))
    same(c(x, ok), fn(x, ok))


def test_an_entry_dies_with_what_it_guards():
    net = Net()
    c, x = compiled(lambda m, x: m(x)), torch.randn(2, 4)
    with torch.no_grad():
        same(c(net, x), net(x))
        same(c(net, x), net(x))
        gone = weakref.ref(net)
        del net
        gc.collect()
        assert gone() is None
        for _ in range(4):
            net = Net()
            same(c(net, x), net(x))
            same(c(net, x), net(x))


def test_the_compiled_function_can_die():
    def make():
        def fn(x):
            return x + 1

        return compiled(fn)

    c = make()
    c(torch.ones(2))
    c(torch.ones(2))
    gone = weakref.ref(c._torchair_dispatcher)
    del c
    torch._dynamo.reset()
    gc.collect()
    assert gone() is None


def test_attributes_torch_puts_on_a_compiled_function():
    def fn(x):
        "Doc."
        return x

    c = compiled(fn)
    assert c.__name__ == "fn" and c.__doc__ == "Doc."
    assert c._torchdynamo_orig_callable is fn
    assert callable(c.get_compiler_config)
    assert torch._dynamo.eval_frame.innermost_fn(c) is fn


def test_threads():
    def fn(x):
        return torch.tanh(x) * 2

    c = compiled(fn, dynamic=True)
    failed = []

    def work(seed):
        g = seeded(seed)
        for i in range(200):
            x = torch.randn(3 + (i + seed) % 5, generator=g)
            if not torch.allclose(c(x), fn(x), atol=1e-6):
                failed.append((seed, i))

    c(torch.randn(4))
    in_threads(range(4), work)
    assert not failed
    assert hits(c) >= 790


def test_a_missing_private_name_is_a_reason(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(torch._C, "_get_tracing_state")
        c = compiled(lambda x: x + 1)
    assert not hasattr(c, "_torchair_dispatcher")
    same(c(torch.ones(2)), torch.ones(2) + 1)
    assert any("_get_tracing_state" in r for r in dispatch.stats())


# ---- calls of torch.compile's module ----


class Adds(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x, scale=1, *rest, **more):
        return (x + self.weight) * scale + sum(rest) + sum(more.values())


class Counted:
    """How often torch's own call of compiled modules was entered."""

    def __init__(self, monkeypatch):
        self.count = 0
        kind = torch._dynamo.eval_frame.OptimizedModule
        plain = kind.__call__.__wrapped__

        def call(*args, **kwargs):
            self.count += 1
            return plain(*args, **kwargs)

        at = kind.__call__.__code__.co_freevars.index("plain")
        cell = kind.__call__.__closure__[at]
        monkeypatch.setattr(cell, "cell_contents", call)

    def during(self, call):
        before = self.count
        call()
        return self.count - before


@pytest.fixture
def slow(monkeypatch):
    return Counted(monkeypatch)


def test_module_calls_go_to_the_dispatcher(slow):
    net, x = Adds(), torch.ones(3)
    c = compiled(net)
    assert slow.during(lambda: same(c(x), net(x))) == 1
    for _ in range(3):
        assert slow.during(lambda: same(c(x), net(x))) == 0
    assert hits(c) == 3
    for args, more in ((x, 2), {}), ((x,), {"scale": 3}), ((x, 2, 3), {"k": 4}):
        c(*args, **more)
        entered = slow.count
        same(c(*args, **more), net(*args, **more))
        assert slow.count == entered


def test_a_module_of_torch_too(slow):
    net, x = nn.Linear(3, 3).requires_grad_(False), torch.ones(2, 3)
    c = compiled(net)
    c(x)
    assert slow.during(lambda: same(c(x), net(x))) == 0


def decorated(forward):
    """As packages wrap a method to rename or check what it is given."""

    @functools.wraps(forward)
    def wrapped(*args, **kwargs):
        return forward(*args, **kwargs)

    return wrapped


class Decorated(Adds):
    forward = decorated(Adds.forward)


@pytest.mark.parametrize("args", [1, 2, 3])
@pytest.mark.parametrize("method", [False, True])
def test_a_method_that_takes_itself_by_args(method, args):
    net, x = Decorated(), torch.ones(3)
    given = (x, 2, 3)[:args]
    c = compiled(net.forward if method else net)
    for more in {}, {"k": 4}:
        for _ in range(3):
            same(c(*given, **more), net(*given, **more))
    for _ in range(3):
        same(c(x=x, scale=2), net(x=x, scale=2))
    assert hits(c) == 6


def own_hook(c, seen):
    return c.register_forward_hook(lambda *_: seen.append(1)).remove


def own_pre_hook(c, seen):
    hook = torch.nn.Module.register_forward_pre_hook
    return hook(c, lambda *_: seen.append(1)).remove


def inner_hook(c, seen):
    return c._orig_mod.register_forward_hook(lambda *_: seen.append(1)).remove


def global_hook(c, seen):
    every = nn.modules.module.register_module_forward_hook
    return every(lambda *_: seen.append(1)).remove


def other_forward(c, seen):
    ours = c.forward

    def forward(*args):
        seen.append(1)
        return ours(*args)

    c.forward = forward
    return lambda: setattr(c, "forward", ours)


def other_call(c, seen):
    plain = nn.Module.__call__

    def call(self, *args):
        seen.append(1)
        return plain(self, *args)

    nn.Module.__call__ = call
    return lambda: setattr(nn.Module, "__call__", plain)


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize(
    "change",
    [
        own_hook,
        own_pre_hook,
        inner_hook,
        global_hook,
        other_forward,
        other_call,
    ],
)
def test_module_calls_that_are_more_than_forward(change, slow):
    net, x, seen = Adds(), torch.ones(3), []
    c = compiled(net)
    for _ in range(2):
        c(x)
    undo = change(c, seen)
    try:
        assert slow.during(lambda: same(c(x), x + 1)) == 1
        assert seen
    finally:
        undo()
    del seen[:]
    c(x)
    assert slow.during(lambda: same(c(x), net(x))) == 0
    assert not seen


def test_torch_knows_that_a_module_is_called(monkeypatch):
    # One flag for all threads: calls side by side, in an earlier test, may
    # have put each other's value back.
    frames = torch._dynamo.eval_frame
    monkeypatch.setattr(frames, "_in_optimized_module", False)
    flags = []

    @torch.library.custom_op("torchair_test::flag", mutates_args=())
    def flag(x: torch.Tensor) -> torch.Tensor:
        flags.append(torch._dynamo.eval_frame._is_in_optimized_module())
        if x[0] < 0:
            raise KeyError("negative")
        return x.clone()

    flag.register_fake(torch.empty_like)

    class Net(nn.Module):
        def forward(self, x):
            return flag(x + 1)

    c, x = compiled(Net()), torch.ones(3)
    for _ in range(3):
        c(x)
    with pytest.raises(KeyError):
        c(x - 5)
    assert flags[-4:] == [True] * 4
    assert not torch._dynamo.eval_frame._is_in_optimized_module()
    assert hits(c) == 3


def test_copies_of_a_compiled_module(slow):
    net, x = Adds(), torch.ones(3)
    c = compiled(net)
    c(x)
    other = copy.deepcopy(c)
    other.weight.fill_(5)
    for _ in range(3):
        same(other(x), x + 5)
        same(c(x), x + 1)
    assert slow.during(lambda: (c(x), other(x))) == 0
    again = torch.compile(net, backend=backend, mode="reduce-overhead")
    again(x)
    assert slow.during(lambda: same(again(x), x + 1)) == 0


def test_call_module_wants_a_dict():
    c = compiled(plain)
    with pytest.raises(TypeError):
        c._torchair_dispatcher.call_module()
    with pytest.raises(TypeError):
        c._torchair_dispatcher.call_module(3)
    assert c._torchair_dispatcher.call_module({}, 3) is NotImplemented


def test_modules_in_frames_that_torch_leaves_alone():
    net, x = Adds(), torch.ones(3)
    c = compiled(net)

    def outer(x):
        torch._dynamo.graph_break()
        return [c(y) for y in (x, x + 1)]

    for _ in range(3):
        found = torch.compile(outer, backend="eager")(x)
        same(found[1], x + 2)


class _Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.randn(4))
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) * self.scale


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("grad", [False, True])
def test_parameters_that_change_size_are_compiled_anew(mode, grad):
    model = _Scaled()
    call = torch.compile(model, backend="torchair", mode=mode)
    x = torch.randn(2, 4)

    def change_rank():
        model.scale.data = torch.randn(2, 1)

    def change_all():
        model.inner.weight.data = torch.randn(7, 4)
        model.inner.bias.data = torch.randn(7)
        model.scale.data = torch.randn(7)

    with torch.set_grad_enabled(grad):
        for change in (lambda: None, change_rank, change_all):
            change()
            for _ in range(3):
                torch.testing.assert_close(call(x), model(x))


@pytest.fixture
def interruptible():
    """As a shell leaves it: what it starts in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_a_guard_is_not_lost(interruptible):
    def fn(x):
        return torch.relu(x)

    times = iter([KeyboardInterrupt])  # then StopIteration: it does not hold

    def interrupted(_):
        raise next(times)

    class Owner:
        cache_entry = 1

    c, x = compiled(fn), torch.randn(4)
    c(x)
    c._torchair_dispatcher.set_entries(
        ((interrupted, Owner(), lambda x: x, None),)
    )
    with pytest.raises(KeyboardInterrupt):
        c(x)
        sum(range(10))  # at the next line at the latest
    same(c(x), fn(x))
