"""Results and inputs that share memory; inputs written in place."""

import pytest
import torch
from helpers import BEFORE_213, assert_same, check, compiled, recorded


@pytest.mark.parametrize("grad", [False, True])
def test_result_is_view_of_input(grad):
    def fn(x):
        return x.t(), x[1:], x + 1

    x = torch.randn(4, 3)
    with torch.set_grad_enabled(grad):
        got = compiled(fn)(x)
        assert_same(got, fn(x))
    x.add_(5)
    assert_same(got[0], x.t())
    assert_same(got[1], x[1:])


def test_input_itself():
    x = torch.randn(4)
    got = compiled(lambda x, y: (x, x + y, y))(x, x * 2)
    assert got[0] is x


def test_same_result_twice():
    def fn(x):
        y = x * 2
        return y, y, y.view(-1)

    with torch.no_grad():
        got = compiled(fn)(torch.ones(2, 2))
    got[0].add_(1)
    assert_same(got[1], got[0])
    assert_same(got[2], got[0].view(-1))


def test_mutated_input():
    def fn(x, y):
        x.add_(y)
        y.mul_(2)
        return x.sum()

    with torch.no_grad():
        check(fn, torch.randn(4, 5), torch.randn(5))


def test_mutated_input_training():
    def fn(x, y):
        x.mul_(2)
        return (x * y).sum()

    check(fn, torch.randn(3), torch.randn(3, requires_grad=True))


def test_mutated_view():
    def fn(x):
        x[1:3] = 7
        x[:, 0] += 1
        return x * 2

    with torch.no_grad():
        check(fn, torch.randn(4, 3))


def test_overlapping_inputs():
    def fn(a, b):
        a.add_(1)
        return a + b

    def both(run):
        base = torch.arange(8.0)
        return run(base[:6], base[2:]), base

    with torch.no_grad():
        assert_same(both(compiled(fn)), both(fn))


@pytest.mark.parametrize("how", ["index_copy", "slice"])
def test_kv_cache_is_written_in_place(how):
    def by_index(cache, pos, new):
        cache.index_copy_(1, pos, new)
        return cache.sum(-1)

    def by_slice(cache, pos, new):
        cache[:, 3:4] = new
        return cache.sum(-1)

    fn = by_index if how == "index_copy" else by_slice
    cache, want = torch.zeros(2, 16, 4), torch.zeros(2, 16, 4)
    where = cache.data_ptr()
    run = compiled(fn)
    with torch.no_grad(), recorded() as records:
        for step in range(3, 6):
            pos = torch.tensor([step])
            new = torch.randn(2, 1, 4)
            assert_same(run(cache, pos, new), fn(want, pos, new))
            assert_same(cache, want)
    assert cache.data_ptr() == where
    assert len(records) == 1
    program = records[0].program()
    assert program.stats()["copies"] == 0, program.text(2)


def test_results_are_never_overwritten():
    run = compiled(lambda x: x * 2)
    kept = [run(torch.full((100,), float(i))) for i in range(20)]
    for i, t in enumerate(kept):
        assert bool((t == 2.0 * i).all())


def test_result_outlives_program():
    def make():
        return compiled(lambda x: x + 1)(torch.zeros(1000))

    t = make()
    torch._dynamo.reset()
    junk = [torch.randn(1000) for _ in range(10)]
    assert bool((t == 1).all())
    del junk


def test_results_can_be_changed():
    run = compiled(lambda x: x * 1.5)
    t = run(torch.ones(4))
    t.add_(1)
    assert_same(t, torch.full((4,), 2.5))
    assert_same(run(torch.ones(4)), torch.full((4,), 1.5))


def test_nothing_stays_behind():
    from torchair import _native

    run = compiled(lambda x: torch.relu(x) + 1)
    x = torch.randn(300)
    with torch.no_grad():
        run(x)
        before = _native.pool_stats()
        for _ in range(200):
            run(x)
    assert _native.pool_stats()["live_blocks"] == before["live_blocks"]


# Where sizes vary AOTAutograd asks an output of the graph where it begins in
# the memory that it is a view of.
def views_of_what_is_made(x):
    y = x * 2
    n = x.shape[1]
    return y[1:], y.view(-1)[n:], y.split([n - 1, 1], 1)[1]


def views_of_what_is_written(x):
    x.copy_(x.flip(0))
    n = x.shape[0]
    return x[n - 2 :], x.t()[1:], x.split([n - 1, 1])[1], x.narrow(1, n - 1, 1)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_sizes_that_change(mode, grad):
    fn = views_of_what_is_made
    run = compiled(fn, mode, dynamic=True)
    for rows, columns in ((6, 4), (9, 8), (6, 4)):
        x = torch.randn(rows, columns, requires_grad=grad)
        assert_same(run(x), fn(x))


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_views_of_inputs_that_are_written(mode):
    fn = views_of_what_is_written
    run = compiled(fn, mode, dynamic=True)
    for make in (lambda n: torch.randn(n, n), lambda n: torch.randn(n, n).t()):
        for n in (6, 9, 6):
            x = make(n)
            y = x.clone(memory_format=torch.preserve_format)
            got, want = run(x), fn(y)
            assert_same(got, want)
            x.add_(1)
            assert_same(got, tuple(part + 1 for part in want))


@pytest.mark.skipif(BEFORE_213, reason="AOTAutograd gives all of the memory")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_parts_of_one_memory_are_written_and_given(mode):
    def fn(a, b):
        return a.add_(b), b.mul_(2), a * b

    run = compiled(fn, mode)
    for _ in range(3):
        x, y = torch.arange(10.0), torch.arange(10.0)
        assert_same(run(x[::2], x[1::2]), fn(y[::2], y[1::2]))
        assert_same(x, y)


def whole_slice(x):
    y = torch.zeros(4, 6)
    y[:] = x
    return y


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    "fn",
    [
        whole_slice,
        lambda x: torch.empty(4, 6).copy_(x),
        lambda x: torch.zeros_like(x).copy_(x.double().float()),
        lambda x: torch.empty(6, 4).copy_(x.t()).t(),
        lambda x: torch.full((4, 6), 1.0).copy_(x[:1])[:],
    ],
)
def test_what_is_copied_into_memory_is_no_input(fn, step, mode):
    """It was: who wrote the result wrote the input."""
    x = torch.randn(4, 6 * step)[:, ::step]
    before = x.clone()
    result = torch.compile(fn, backend="torchair", mode=mode)(x)
    assert_same(result, fn(x))
    result.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_folds_of_a_number_are_no_input(mode):
    def fn(x):
        y = x * 2
        return x.max(0)[0], x.min(0)[0], *x.aminmax(), y, y.max(0)[0]

    x = torch.tensor(3.0)
    results = torch.compile(fn, backend="torchair", mode=mode)(x)
    assert_same(results, fn(x))
    memory = {t.untyped_storage().data_ptr() for t in (x, *results)}
    assert len(memory) == 1 + len(results)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_broadcast_results_stay_so(mode, dynamic, grad):
    """With changing sizes and gradients AOTAutograd takes them from the value,
    by the strides that the program gives."""

    def fn(x):
        y = x.clamp(-1, 1)
        return y, y.unsqueeze(0).expand(3, *y.shape), (y * 2).expand(2, 5, 7)

    compiled = torch.compile(fn, backend="torchair", mode=mode, dynamic=dynamic)
    x = torch.randn(1, 7, requires_grad=grad)
    assert_same(compiled(x), fn(x))
    y, wide, _ = compiled(x)
    assert wide.untyped_storage().nbytes() == y.untyped_storage().nbytes()
