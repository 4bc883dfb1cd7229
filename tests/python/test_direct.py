"""Programs called without AOTAutograd's wrapper: what the wrapper does, C does
too, and where it cannot, the wrapper stays with a reason.

Each function runs in eager, with the wrapper and without it, on inputs of its
own; results and inputs must be told apart by nothing.
"""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from helpers import assert_same, recorded, seeded
from torch import nn

import torchair
from torchair import backend, compat, direct, dispatch
from torchair._native import Direct

HIT = "dispatched"


def square():
    return torch.arange(16.0).reshape(4, 4)


def weight():
    return nn.Parameter(square())


def a_view():
    return torch.arange(40.0)[8:24].view(4, 4)


def index_copy(cache, x, at):
    cache.index_copy_(0, at, x)
    return cache.sum(0)


def slice_assign(cache, x):
    cache[1:3] = x
    return (cache * 2).sum()


def copies(x, y):
    x.copy_(y + 1)
    y.mul_(2)


def gives_the_input(x):
    return x.add_(1)


def twice_the_input(x):
    x.add_(1)
    return x, x


def view_of_written(x):
    x.add_(1)
    return x[1:], x.t(), x.view(-1)[3:7]


def views(x):
    return x.view(-1)[1:], x.t(), x[:], x.view_as(x), x.expand(2, 4, 4)


def detached(x):
    return x.detach(), x.detach().view(-1)


def mixed(x, y):
    y.add_(x)
    return x + y, y, x.t(), None, 3, [y[0]]


def other_dtype(x):
    return x.view(torch.int32), x * 2


def complex_view(x):
    return torch.view_as_real(x)


def resized(x):
    x.t_()
    return x + 1


def no_result(x):
    x.zero_()


CASES = [
    (
        index_copy,
        (square, lambda: torch.ones(2, 4), lambda: torch.tensor([2, 0])),
    ),
    (slice_assign, (square, lambda: torch.ones(2, 4))),
    (copies, (square, square)),
    (gives_the_input, (square,)),
    (gives_the_input, (a_view,)),
    (twice_the_input, (square,)),
    (view_of_written, (square,)),
    (view_of_written, (a_view,)),
    (views, (square,)),
    (views, (a_view,)),
    (views, (weight,)),
    (detached, (square,)),
    (detached, (weight,)),
    (mixed, (square, square)),
    (other_dtype, (square,)),
    (complex_view, (lambda: torch.ones(3, dtype=torch.complex64),)),
    (resized, (square,)),
    (no_result, (square,)),
]


def leaves(value):
    found = torch.utils._pytree.tree_leaves(value)
    return [t for t in found if isinstance(t, torch.Tensor)]


def identity(result, inputs):
    """Everything that tells one tensor from another but its numbers."""
    known = [*inputs, *[i._base for i in inputs if i._base is not None]]

    def place(t):
        return next((i for i, k in enumerate(known) if t is k), None)

    return [
        (
            place(t),
            None if t._base is None else place(t._base),
            t.size(),
            t.stride(),
            t.storage_offset(),
            t.dtype,
            t.requires_grad,
            t.is_leaf,
            t._version,
            type(t),
        )
        for t in leaves(result)
    ]


def run(call, makers, times=3):
    """What can be seen after each of some calls."""
    inputs = [make() for make in makers]
    seen = []
    for _ in range(times):
        versions = [i._version for i in inputs]
        result = call(*inputs)
        seen.append(
            (
                [t.detach().clone() for t in leaves(result)],
                [t.detach().clone() for t in inputs],
                identity(result, inputs),
                [i._version - v for i, v in zip(inputs, versions, strict=True)],
            )
        )
    return seen


def compiled(fn, **kwargs):
    torch._dynamo.reset()
    return torch.compile(fn, backend=backend.torchair, **kwargs)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize(
    "fn,makers",
    CASES,
    ids=[f"{i}-{r[0].__name__}" for i, r in enumerate(CASES)],
)
def test_nothing_tells_the_ways_apart(fn, makers, grad, mode, monkeypatch):
    def keep(*args):
        raise direct.Kept("the test wants it")

    with torch.set_grad_enabled(grad):
        mine = compiled(fn, mode=mode)
        got = run(mine, makers)
        with monkeypatch.context() as patch:
            patch.setattr(direct, "plan", keep)
            theirs = compiled(fn, mode=mode)
            want = run(theirs, makers)
        eager = run(fn, makers)
    for a, b in zip(got, want, strict=True):
        assert_same(a[:2], b[:2])
        assert a[2:] == b[2:]
    for a, b in zip(got, eager, strict=True):
        assert_same(a[:2], b[:2])
        # one write of a graph counts once, in eager each operator does
        assert [bool(v) for v in a[3]] == [bool(v) for v in b[3]]


def grows(x):
    return x.expand(2, *x.shape)


def folds(x):
    return x.view(-1, x.shape[0] // 2)


def shifts(a, b):
    a.add_(1)
    return a + b


def learns(x):
    return x * 2


def two_parts_of_one():
    memory = torch.zeros(6)
    return memory[:4], memory[2:]


CHANGES = "a view of an input has sizes that change"
KEPT = [
    (grows, (square,), CHANGES),
    (folds, (square,), CHANGES),
    (learns, (weight,), "no gradient was computed yet"),
]


def record_of(fn, args, **kwargs):
    """(the record of the one graph, the compiled function)"""
    with recorded() as records:
        c = compiled(fn, **kwargs)
        for _ in range(3):
            c(*args)
    (record,) = (r for r in records if r.kind != "backward")
    return record, c


@pytest.mark.parametrize(
    "fn,makers", [case for case in CASES if case[0] is not resized]
)
def test_these_lose_the_wrapper(fn, makers):
    record, c = record_of(fn, [make() for make in makers])
    assert record.wrapper == ""
    assert c._torchair_dispatcher.stats()[HIT] == 2


@pytest.mark.parametrize("fn,makers,why", KEPT)
def test_these_keep_it_and_say_why(fn, makers, why):
    args = [make() for make in makers]
    record, _ = record_of(fn, args, dynamic=True)
    assert record.wrapper == why
    assert_same(compiled(fn, dynamic=True)(*args), fn(*args))


def test_overlapping_arguments_keep_it():
    mine, theirs = two_parts_of_one(), two_parts_of_one()
    record, c = record_of(shifts, mine)
    for _ in range(3):
        shifts(*theirs)
    assert record.wrapper.startswith("arguments are joined")
    assert_same(c(*mine), shifts(*theirs))
    assert_same(mine, theirs)


def test_autocast_keeps_it():
    x = square()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        record, c = record_of(learns, [x])
        assert_same(c(x), learns(x))
    assert record.wrapper == "autocast is on"


def test_writes_of_torch_keep_it():
    config = torchair.CompilerConfig()
    config.experimental_config.keep_inference_input_mutations = False
    with recorded() as records:
        torch._dynamo.reset()
        c = torch.compile(
            gives_the_input,
            backend=torchair.get_npu_backend(compiler_config=config),
        )
        x = square()
        for _ in range(3):
            assert c(x) is x
    assert_same(x, square() + 3)
    assert records[0].wrapper.startswith("an input gets another shape")


def test_reasons_are_counted_and_explained():
    before = dispatch.stats()
    record_of(folds, [square()], dynamic=True)
    why = f"through AOTAutograd: {CHANGES}"
    assert dispatch.stats()[why] == before.get(why, 0) + 1
    text = str(torchair.explain(gives_the_input, square()))
    assert "  calls: the program, directly" in text
    shown = torchair.explain(shifts, *two_parts_of_one())
    assert "  calls: through AOTAutograd: arguments are joined" in str(shown)
    assert shown.as_dict()["graphs"][0]["wrapper"].startswith("arguments")


def test_dynamic_sizes_of_outputs_are_noted():
    """As the wrapper does: Dynamo takes them for dynamic after a break."""
    name = "_dynamo_propagated_dynamic_indices"
    if compat.mark_dynamic().__name__ == "maybe_mark_dynamic_helper":
        name = "_dynamo_weak_dynamic_indices"  # before 2.13

    def fn(x, y):
        y.add_(1)
        return x * 2, y, y.sum()

    c = compiled(fn, dynamic=True)
    for n in range(3, 7):
        x, y = torch.ones(n, 4), torch.ones(n)
        double, same, total = c(x, y)
        assert getattr(double, name) == {0, 1}
        assert same is y
        assert not getattr(total, name, None)
        assert not hasattr(x, name)
    assert c._torchair_dispatcher.stats()[HIT] == 3


def test_inference_tensors_have_no_versions():
    with torch.inference_mode():
        x = square()
        c = compiled(gives_the_input)
        for _ in range(3):
            assert c(x) is x
    assert_same(x, square() + 3)


def test_a_later_backward_sees_the_write():
    """What the version counters are for."""
    c, x, w = compiled(gives_the_input), square(), weight()
    with torch.no_grad():
        c(x)
        c(x)
    saved = w * x
    with torch.no_grad():
        c(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_inputs_and_views_beyond_the_capture_limit():
    """They are given whether a capture ran or the program itself."""

    def fn(x, n):
        x.add_(1)
        return x, x[1:], x * 2

    torch._dynamo.reset()
    c = torch.compile(
        fn,
        backend=backend.npugraph_ex,
        options={"capture_limit": 1},
        dynamic=True,
    )
    with pytest.warns(UserWarning, match="capture_limit"):
        for n in range(3, 7):
            x, twin = torch.ones(n, 2), torch.ones(n, 2)
            got = c(x, n)
            assert_same(got, fn(twin, n))
            assert_same(x, twin)
            assert got[0] is x and got[1]._base is x


def test_the_step_of_an_optimizer_loses_the_wrapper():
    """Its parameters are no arguments of Dynamo's graph, which holds them."""
    mine, theirs = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    theirs.load_state_dict(mine.state_dict())
    optimizer = torch.optim.SGD(mine.parameters(), 0.1)
    expected = torch.optim.SGD(theirs.parameters(), 0.1)
    with recorded() as records:
        step = compiled(optimizer.step)
        for i in range(4):
            for p, q in zip(
                mine.parameters(), theirs.parameters(), strict=True
            ):
                q.grad = torch.randn(p.shape, generator=seeded(i))
                p.grad = q.grad.clone()
            version = mine.weight._version
            step()
            expected.step()
            assert mine.weight._version == version + 1
    assert_same(list(mine.parameters()), list(theirs.parameters()))
    (record,) = records
    assert record.wrapper == ""


def test_held_tensors_go_with_the_optimizer():
    """Torch empties the list; a call then lacks arguments."""
    net = torch.nn.Linear(5, 3)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    compiled(optimizer.step)()
    made = list(dispatch._direct.values())[-1]
    grads = [p.grad for p in net.parameters()]
    with torch.no_grad():
        made(*grads)
    weight = weakref.ref(net.weight)
    del net, optimizer, p
    gc.collect()
    assert weight() is None
    with pytest.raises(TypeError, match="missing"):
        made(*grads)


def test_what_direct_is_made_of():
    c, x = compiled(gives_the_input), square()
    c(x)
    made = list(dispatch._direct.values())[-1]
    program = made.program
    with pytest.raises(TypeError):
        made()
    with pytest.raises(TypeError):
        made(x=x)
    none = (lambda *_: None,) * 3
    with pytest.raises(ValueError, match="outs"):
        Direct(program, (), ((-1, None, False, None),) * 9, *none)
    with pytest.raises(TypeError):
        Direct(program, (), ((-1, None),), *none)
    with pytest.raises(TypeError):
        Direct(program, ("x",), None, *none)
    with pytest.raises(TypeError):
        Direct(len, (), None, *none)
