"""Operators of the user that write into their arguments: caches are written
where they lie, and only where nothing could notice."""

import pytest
import torch
from helpers import assert_same, copy_of, recorded

from torchair import backend, mutations

seen = []  # addresses the operators were given


@torch.library.custom_op("test_mutations::put", mutates_args={"cache"})
def put(cache: torch.Tensor, x: torch.Tensor, at: int) -> None:
    seen.append(cache.data_ptr())
    cache[at] = x


@put.register_fake
def _(cache, x, at):
    return None


@torch.library.custom_op("test_mutations::both", mutates_args={"k", "v"})
def both(k: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    seen.extend((k.data_ptr(), v.data_ptr()))
    k.add_(x)
    v.mul_(2)
    return k + v


@both.register_fake
def _(k, v, x):
    return torch.empty_like(k)


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()


def check(fn, *args, calls=3, **chosen):
    """(arguments of the calls, reasons of HOST nodes); all as in eager."""
    mine, theirs = copy_of(args), copy_of(args)
    dynamic = chosen.pop("dynamic", None)
    run = torch.compile(
        fn, backend=backend.npugraph_ex, options=chosen, dynamic=dynamic
    )
    with recorded() as records:
        for _ in range(calls):
            want = fn(*theirs)
            seen.clear()
            got = run(*mine)
            assert_same(got, want)
            assert_same(mine, theirs)
    assert not records[0].fallback
    return mine, [h.reason for h in records[0].hosts]


def cache():
    return torch.zeros(4, 3)


OTHER = "writes on a copy"


def test_a_cache_is_written_where_it_lies():
    def fn(c, x):
        put(c, x * 2, 1)
        return c.sum()

    (c, _), why = check(fn, cache(), torch.randn(3))
    assert why == [mutations.REASON]
    assert seen == [c.data_ptr()]


def test_reads_before_come_before():
    def fn(c, x):
        before = c.sum(0) + c[0]
        put(c, x, 0)
        return before, c * 2

    (c, _), why = check(fn, torch.randn(4, 3), torch.randn(3))
    assert why == [mutations.REASON] and seen == [c.data_ptr()]


def test_a_copy_of_the_old_contents_stays_a_copy():
    """The copy is a reader; the engine must not drop it."""

    def fn(c, x):
        old = c.clone()
        put(c, x, 0)
        return old, old + c

    (c, _), _ = check(fn, torch.randn(4, 3), torch.randn(3))
    assert seen == [c.data_ptr()]


def test_several_writes_in_a_row():
    def fn(c, x):
        put(c, x, 0)
        middle = c.sum()
        put(c, x + 1, 1)
        put(c, c[0] * 2, 2)
        return middle, c.sum()

    (c, _), why = check(fn, torch.randn(4, 3), torch.randn(3))
    assert why == [mutations.REASON] * 3
    assert seen == [c.data_ptr()] * 3


def test_two_caches_and_a_result():
    def fn(k, v, x):
        y = both(k, v, x)
        return y + k, v - 1

    (k, v, _), why = check(fn, *(torch.randn(4) for _ in range(3)))
    assert why == [mutations.REASON]
    assert seen == [k.data_ptr(), v.data_ptr()]


def test_parts_of_one_cache():
    def fn(c, x):
        return both(c[0], c[1], x) + c[2]

    (c, _), _ = check(fn, cache(), torch.randn(3))
    assert seen == [c.data_ptr(), c[1].data_ptr()]


@pytest.mark.parametrize("option", [{}, {"clone_input": True}])
def test_a_cache_that_is_not_dense(option):
    def fn(c, x):
        put(c, x, 1)
        return c.sum(1)

    big = torch.randn(8, 6)
    mine, theirs = big.clone(), big.clone()
    run = torch.compile(fn, backend=backend.npugraph_ex, options=option)
    x = torch.randn(4)
    for _ in range(2):
        want = fn(theirs[::2, 1:5].T[:, :4].T, x)
        assert_same(run(mine[::2, 1:5].T[:, :4].T, x), want)
        assert_same(mine, theirs)


@pytest.mark.parametrize(
    "chosen",
    [
        {"clone_input": True},
        {"clone_input": False},
        {"clone_output": False},
        {"clone_output": True},
        {"force_recapture": True},
        {"dynamic": True},
        {"force_eager": True},
    ],
)
def test_with_options_of_captures(chosen):
    def fn(c, x):
        put(c, x, 1)
        return c + 1

    mine = torch.randn(4, 3)
    theirs = mine.clone()
    dynamic = chosen.pop("dynamic", None)
    run = torch.compile(
        fn, backend=backend.npugraph_ex, options=chosen, dynamic=dynamic
    )
    for _ in range(3):
        x = torch.randn(3)
        want = fn(theirs, x)
        assert_same(run(mine, x).clone(), want)
        assert_same(mine, theirs)


def test_another_cache_at_each_call():
    def fn(c, x):
        put(c, x, 1)
        return c.sum()

    run = torch.compile(fn, backend=backend.npugraph_ex)
    x = torch.randn(3)
    for _ in range(4):
        mine = torch.randn(4, 3)
        theirs = mine.clone()
        want = fn(theirs, x)
        assert_same(run(mine, x), want)
        assert_same(mine, theirs)


def test_what_is_no_input_is_copied():
    def fn(x):
        c, d = torch.zeros(4, 3), torch.zeros(4, 3)
        put(c, x, 2)
        return c * 2, d

    _, why = check(fn, torch.randn(3))
    assert why[0].startswith(OTHER)


def test_the_option_switches_it_off():
    def fn(c, x):
        put(c, x, 1)
        return c.sum()

    (c, _), why = check(fn, cache(), torch.randn(3), input_inplace_pass=False)
    assert why[0].startswith(OTHER)
    assert seen != [c.data_ptr()]


def test_a_mutated_input_that_is_returned():
    def fn(c, x):
        put(c, x, 1)
        return c, c.T

    check(fn, cache(), torch.randn(3))


def graph_of(*nodes):
    """A graph written by hand: (name, target, args, kwargs, value)."""
    graph = torch.fx.Graph()
    made = {}
    for name, target, args, kwargs, value in nodes:
        args, kwargs = (
            torch.fx.node.map_aggregate(a, lambda x: made.get(x, x))
            for a in (args, kwargs)
        )
        if target == "placeholder":
            node = graph.placeholder(name)
        elif target == "output":
            node = graph.output(args)
        else:
            node = graph.call_function(target, args, kwargs)
        node.meta["val"] = value
        made[name] = node
    return graph, made


def written(reader_after=False, view=False):
    """put(c) and a read of the old c, before or after it."""
    import operator

    aten = torch.ops.aten
    c, row = torch.empty(4, 3), torch.empty(3)
    old = [("s", aten.sin.default, ("v" if view else "c",), {}, c + 0)]
    if view:
        old.insert(0, ("v", aten.view.default, ("c", [3, 4]), {}, c.view(3, 4)))
    write = [
        (
            "w",
            torch.ops.higher_order.auto_functionalized_v2,
            (torch.ops.test_mutations.put.default,),
            {
                "x": "x",
                "at": 1,
                "_cache_base_index": 0,
                "_all_bases": ["c"],
            },
            (None, c.clone()),
        ),
        ("g", operator.getitem, ("w", 1), {}, c.clone()),
    ]
    middle = write + old if reader_after else old + write
    return graph_of(
        ("c", "placeholder", (), {}, c),
        ("x", "placeholder", (), {}, row),
        *middle,
        ("copy", aten.copy_.default, ("c", "g"), {}, c),
        ("out", "output", ("s",), {}, None),
    )


@pytest.mark.parametrize("view", [False, True])
def test_a_later_read_of_what_was_there_forbids_it(view):
    graph, nodes = written(reader_after=True, view=view)
    assert not mutations.find_in_place(graph)
    assert "in_place" not in nodes["w"].meta
    graph, nodes = written(reader_after=False, view=view)
    assert mutations.find_in_place(graph)
    assert nodes["w"].meta["in_place"] == {0: [nodes["s"]]}
