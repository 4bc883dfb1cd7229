"""force_eager: what is written in place again, and what must not be."""

import pytest
import torch
from helpers import assert_same, copy_of

from torchair import forms, lanes, passes, reinplace
from torchair.backend import npugraph_ex
from torchair.scope import npu_stream_switch

aten = torch.ops.aten


@pytest.fixture
def targets(monkeypatch):
    """targets(fn, *args, **options): the operators torch runs, after a run
    whose results and writes are eager's."""
    plain, graphs = passes.run_all, []

    def keep(job, eager):
        plain(job, eager)
        graphs.append(job.gm)

    monkeypatch.setattr(passes, "run_all", keep)

    def run(fn, *args, dynamic=False, **options):
        torch._dynamo.reset()
        graphs.clear()
        compiled = torch.compile(
            fn,
            backend=npugraph_ex,
            dynamic=dynamic,
            fullgraph=True,
            options={"force_eager": True, **options},
        )
        for _ in range(2):
            mine, theirs = copy_of(args), copy_of(args)
            assert_same(compiled(*mine), fn(*theirs))
            assert_same(mine, theirs)
        nodes = graphs[0].graph.nodes
        return [n.target for n in nodes if n.op == "call_function"]

    return run


# ---- intermediates ----


def chain(x):
    return (x.sin() * 2 + 1).relu()


def test_a_chain_writes_into_its_first_result(targets):
    x = torch.randn(4, 3)
    assert targets(chain, x) == [
        aten.sin.default,
        aten.mul_.Tensor,
        aten.add_.Tensor,
        aten.relu_.default,
    ]
    kept = targets(chain, x, inplace_pass=False)
    assert kept[1:] == [aten.mul.Tensor, aten.add.Tensor, aten.relu.default]


NOT = {
    "an input": lambda x: x * 2,
    "a view of an input": lambda x: x.t() * 2,
    "read later": lambda x: (y := x.sin(), y * 2, y > 0)[1:],
    "a result": lambda x: (y := x.sin(), y * 2),
    "a view read later": lambda x: (
        y := x.sin(),
        v := y[1:],
        y * 2,
        v > 0,
    )[2:],
    "another size": lambda x: x.sin()[:1] + torch.ones(4, 3),
    "another type": lambda x: x.sin() > 0.5,
    "twice": lambda x: (y := x.sin()) * y,
    "with a view of itself": lambda x: (y := x.sin()) + y[0],
    "expanded": lambda x: x[0].sin().expand(4, 3) * 2,
}


@pytest.mark.parametrize("name", NOT)
def test_what_somebody_sees_is_not_written(name, targets):
    found = targets(NOT[name], torch.randn(4, 3))
    assert not [t for t in found if t._schema.is_mutable]


def test_scatters_become_views_that_are_written(targets):
    def fn(x, row):
        y = x.sin()
        y[1] = row
        y[:, 1:].mul_(2)
        return y + 1

    found = targets(fn, torch.randn(4, 3), torch.randn(3))
    assert aten.copy_.default in found
    assert not [t for t in found if "scatter" in str(t)]


def test_streams_keep_to_themselves(targets):
    def fn(x):
        y = x.sin()
        with npu_stream_switch("side"):
            z = y * 2
        return z + 1

    found = targets(fn, torch.randn(3))
    assert found[:2] == [aten.sin.default, aten.mul.Tensor]
    assert lanes.MAIN == "default"


# ---- inputs ----


def test_an_input_is_written_where_it_lies(targets):
    def fn(cache, x, at):
        cache.index_put_((at,), x)
        cache.mul_(2)
        return cache.sum() + 1

    args = torch.randn(6, 3), torch.randn(2, 3), torch.tensor([4, 0])
    found = targets(fn, *args)
    assert aten.index_put_.default in found and aten.mul_.Tensor in found
    assert aten.copy_.default not in found
    kept = targets(fn, *args, input_inplace_pass=False)
    assert kept.count(aten.copy_.default) == 1


def test_an_input_that_a_stream_reads_is_not_written(targets):
    def fn(cache, x):
        with npu_stream_switch("side"):
            y = cache * 2
        cache.add_(x)
        return y

    found = targets(fn, torch.randn(3), torch.randn(3))
    assert aten.copy_.default in found and aten.add_.Tensor not in found


def test_a_row_of_a_cache(targets):
    def fn(cache, x):
        cache[2] = x
        return cache * 2

    found = targets(fn, torch.randn(4, 3), torch.randn(3))
    assert not [t for t in found if "scatter" in str(t)]


def read_before(cache):
    old = cache.sin()
    cache.add_(1)
    return old


def read_later(cache):
    old = cache * 1.5
    new = cache + 1
    late = cache.cos()
    cache.copy_(new)
    return old, late


def is_a_result(cache):
    new = cache + 1
    cache.copy_(new)
    return new


def a_view_of_it_is_a_result(cache):
    new = cache + 1
    cache.copy_(new)
    return new[1:], new.view(-1).sin()


INPUTS = {
    read_before: True,
    read_later: False,
    is_a_result: False,
    a_view_of_it_is_a_result: False,
}


@pytest.mark.parametrize("fn", INPUTS)
def test_when_an_input_is_written(fn, targets):
    found = targets(fn, torch.randn(4, 3))
    assert (aten.add_.Tensor in found) is INPUTS[fn]
    assert (aten.copy_.default in found) is not INPUTS[fn]


def test_an_input_that_is_given_twice(targets):
    def fn(cache):
        cache.copy_(cache + cache.t())

    found = targets(fn, torch.randn(3, 3))
    assert aten.copy_.default in found and aten.add_.Tensor not in found


def test_two_inputs_swapped(targets):
    def swap(x, y):
        t = x.clone()
        x.copy_(y)
        y.copy_(t)

    targets(swap, torch.randn(3), torch.randn(3))


def fill_cache(cache, x):
    cache.zero_()
    cache.add_(x)


library = torch.library.Library("reinplace_test", "FRAGMENT")
library.define("fill_cache(Tensor(a!) cache, Tensor x) -> ()")
library.impl("fill_cache", fill_cache, "CompositeExplicitAutograd")


def test_operators_of_the_user(targets):
    def fn(cache, x):
        torch.ops.reinplace_test.fill_cache(cache, x)
        return cache + 1

    found = targets(fn, torch.randn(3), torch.randn(3))
    assert torch.ops.reinplace_test.fill_cache.default in found
    assert aten.clone.default not in found
    args = torch.randn(3), torch.randn(3)
    kept = targets(fn, *args, input_inplace_pass=False)
    assert aten.copy_.default in kept
    assert torch.ops.reinplace_test.fill_cache.default not in kept


def test_sizes_of_any_kind(targets):
    found = targets(chain, torch.randn(4, 3), dynamic=True)
    assert aten.relu_.default in found


def test_training_keeps_what_backward_needs():
    def fn(x):
        return (x.exp() * 2).tanh().sum()

    run = torch.compile(fn, backend=npugraph_ex, options={"force_eager": True})
    mine = torch.randn(5, requires_grad=True)
    theirs = mine.detach().clone().requires_grad_()
    run(mine).backward()
    fn(theirs).backward()
    assert_same(mine.grad, theirs.grad)


# ---- cat ----


def parts(x, y):
    return torch.cat([x.sin(), y + 1, x @ y.new_ones(3, 3)]) * 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_are_computed_in_their_place(targets, dynamic):
    args = torch.randn(2, 3), torch.randn(4, 3)
    found = targets(parts, *args, dynamic=dynamic)
    assert aten.cat.default not in found
    assert {aten.sin.out, aten.add.out, aten.mm.out} <= set(found)
    kept = targets(parts, *args, dynamic=dynamic, remove_cat_ops=False)
    assert aten.cat.default in kept


def from_a_side_stream(x):
    with npu_stream_switch("side"):
        y = x.sin()
    return torch.cat([y, x.cos()])


CATS = {
    "an input": lambda x: torch.cat([x, x.sin()]),
    "another type": lambda x: torch.cat([x.sin(), x.double().cos()]),
    "another dim": lambda x: torch.cat([x.sin(), x.cos()], 1),
    "read elsewhere": lambda x: (y := x.sin(), torch.cat([y, x.cos()])),
    "twice": lambda x: torch.cat([y := x.sin(), y]),
    "a view": lambda x: torch.cat([x.sin().t(), x.cos().t()]),
    "one": lambda x: torch.cat([x.sin()]),
    "another stream": from_a_side_stream,
    "an empty one of another rank": lambda x: torch.cat(
        [x.new_ones(0).sin(), x.cos()]
    ),
}


@pytest.mark.parametrize("name", CATS)
def test_cats_that_stay(name, targets):
    found = targets(CATS[name], torch.randn(2, 3), remove_noop_ops=False)
    assert aten.cat.default in found


def test_a_negative_dimension(targets):
    def fn(x):
        return torch.cat([x.sin(), x.cos()], -2)

    assert aten.cat.default not in targets(fn, torch.randn(2, 3))


def test_it_says_how_many(targets, caplog):
    with caplog.at_level("DEBUG", "torchair"):
        targets(parts, torch.randn(2, 3), torch.randn(4, 3))
    assert "[remove_cat_ops] Found 1 cat node(s)" in caplog.text


# ---- forms ----


def test_forms():
    assert forms.in_place(aten.add.Tensor) is aten.add_.Tensor
    assert forms.in_place(aten.mm.default) is None
    assert forms.in_place(aten.add_.Tensor) is None
    assert forms.functional(aten.add_.Tensor) is aten.add.Tensor
    assert forms.functional(aten.mm.out) is aten.mm.default
    assert forms.with_out(aten.mm.default) is aten.mm.out
    assert forms.with_out(aten.view.default) is None
    assert reinplace._in_place(aten.t.default) is None


def test_only_in_modes_that_capture():
    """run_eagerly of the graph mode shows the graph as it is."""
    names = {p.name for p in passes.PASSES if p.eager}
    assert names == {
        "remove_noop_ops",
        "remove_cat",
        "write_custom",
        "write_inputs",
        "write_intermediates",
    }
