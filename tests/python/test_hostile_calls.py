"""Calls that nobody should make, and somebody does: each time what eager gives,
and memory that a user holds is the user's."""

import copy
import gc
import io
import weakref

import pytest
import torch
from helpers import assert_same, compiled, in_threads
from torch import nn

MODES = ["max-autotune", "reduce-overhead"]
pytestmark = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(autouse=True)
def _no_eager():
    """Past the limit of recompilations Dynamo would run eager's kernels."""
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield


# ---- compiled functions in each other, errors, ends -------------------------


def test_compiled_inside_of_compiled(mode):
    inner = compiled(lambda x: x * 2 + 1, mode)
    outer = compiled(lambda x: inner(x).sin() + 1, mode)
    x = torch.randn(8)
    for run in (outer, compiled(outer, mode), outer):
        for _ in range(3):
            assert_same(run(x), (x * 2 + 1).sin() + 1)
    assert_same(inner(x), x * 2 + 1)


def test_compiled_module_inside_of_compiled(mode):
    part = nn.Linear(4, 4)
    run = compiled(nn.Sequential(compiled(part, mode), nn.ReLU()), mode)
    x = torch.randn(3, 4)
    for _ in range(3):
        assert_same(run(x), torch.relu(part(x)))


doomed = []


@torch.library.custom_op("hostile::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    if doomed:
        raise RuntimeError(doomed.pop())
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_that_raises(mode):
    """In the first call, and in a replay."""
    run = compiled(lambda x: twice(x + 1) + 1, mode)
    x = torch.randn(5)
    for i in range(6):
        if i in (0, 3, 4):
            doomed.append(f"doomed {i}")
            with pytest.raises(RuntimeError, match=f"doomed {i}"):
                run(x)
        else:
            assert_same(run(x), (x + 1) * 2 + 1)


def test_results_outlive_model_and_program(mode):
    net, x = nn.Linear(16, 16), torch.randn(2, 16)
    run = compiled(net, mode)
    with torch.no_grad():
        kept, want = [run(x) for _ in range(3)], net(x)
    del net, run
    torch._dynamo.reset()
    gc.collect()
    other = compiled(lambda x: x * 0 - 1, mode)
    for _ in range(4):
        other(x)
    for y in kept:
        assert_same(y, want)


class Cyclic(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.me = [self]

    def forward(self, x):
        return self.linear(x)


def test_a_cycle_is_collected(mode):
    net = Cyclic()
    run = compiled(net, mode)
    with torch.no_grad():
        for _ in range(3):
            run(torch.randn(2, 4))
    alive = weakref.ref(net), weakref.ref(net.linear.weight)
    del net, run
    torch._dynamo.reset()
    gc.collect()
    assert [r() for r in alive] == [None, None]


@pytest.mark.host("NumPy reads no memory of a GPU")
def test_memory_that_numpy_holds(mode):
    run = compiled(lambda x: x + 1, mode)
    held = run(torch.zeros(1000)).numpy()
    gc.collect()
    for _ in range(20):
        run(torch.randn(1000))
    assert (held == 1).all()


def test_copies_files_and_shared_memory(mode):
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    run = compiled(net, mode)
    run(x)
    other = copy.deepcopy(run)
    with torch.no_grad():
        other._orig_mod.weight.zero_()
    assert_same(other(x), net.bias.expand(2, 4))
    y = run(x).detach()
    assert_same(y, net(x))
    file = io.BytesIO()
    torch.save(y, file)
    file.seek(0)
    for same in (torch.load(file), copy.deepcopy(y), y.share_memory_()):
        assert_same(same, net(x))


@pytest.mark.parametrize("grad", [False, True])
def test_inputs_that_get_other_memory(mode, grad):
    """Inside of the function, where AOTAutograd writes set_."""
    weight = nn.Parameter(torch.ones(4))

    def fn(x):
        x.data = x.data * 2
        weight.data = weight.data + x
        return x + weight

    def calls(run):
        weight.data = torch.ones(4)
        x = torch.arange(4.0, requires_grad=grad)
        return [run(x) for _ in range(3)], x, weight.clone()

    assert_same(calls(compiled(fn, mode)), calls(fn))


# ---- what changes between two calls -----------------------------------------


def test_gradients_wanted_or_not(mode):
    net, x = nn.Linear(4, 4), torch.randn(3, 4)
    run = compiled(net, mode)
    want = net(x).detach()
    for _ in range(3):
        y = run(x)
        y.sum().backward()
        assert_same(y, want)
        with torch.no_grad():
            assert not run(x).requires_grad
            assert_same(run(x), want)
        with torch.inference_mode():
            assert run(x).is_inference()
            assert_same(run(x), want)
            inside = torch.randn(3, 4)
            assert_same(run(inside), net(inside))
        with torch.no_grad():
            assert_same(run(inside), net(inside))
    assert_same(net.bias.grad, torch.full((4,), 9.0))


def test_an_input_that_requires_a_gradient_at_times(mode):
    run = compiled(lambda x: (x * x).sum(), mode)
    for wanted in (False, True, True, False, True):
        x = torch.randn(4, requires_grad=wanted)
        y = run(x)
        assert y.requires_grad == wanted
        if wanted:
            y.backward()
            assert_same(x.grad, 2 * x.detach())


def _moved(like):
    return torch.randn(4, 4, dtype=like.dtype)


CHANGES = {
    "data": lambda net: setattr(net.weight, "data", _moved(net.weight)),
    "assigned state": lambda net: net.load_state_dict(
        {"weight": _moved(net.weight), "bias": torch.randn(4)}, assign=True
    ),
    "written": lambda net: net.weight.copy_(_moved(net.weight)),
    "turned memory": lambda net: net.weight.set_(_moved(net.weight).t()),
    "parameter": lambda net: setattr(
        net, "weight", nn.Parameter(_moved(net.weight).t().contiguous().t())
    ),
    "float64": lambda net: net.double(),
    "float64 and back": lambda net: net.double().float(),
    "larger": lambda net: (
        setattr(net.weight, "data", torch.randn(6, 4)),
        setattr(net.bias, "data", torch.randn(6)),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@torch.no_grad()
def test_parameters_that_change(mode, name):
    net = nn.Linear(4, 4)
    run = compiled(net, mode)
    for _ in range(2):
        x = torch.randn(3, 4, dtype=net.weight.dtype)
        for _ in range(3):
            assert_same(run(x), net(x))
        CHANGES[name](net)
        x = x.to(net.weight.dtype)
        for _ in range(3):
            assert_same(run(x), net(x))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, i):
        return self.out(self.embedding(i))


def test_tied_weights(mode):
    net, i = Tied(), torch.tensor([1, 2, 3])
    run = compiled(net, mode)
    for _ in range(3):
        found = []
        for call in (run, net):
            net.zero_grad()
            y = call(i)
            y.sum().backward()
            found.append((y, net.embedding.weight.grad.clone()))
        assert_same(*found)
        with torch.no_grad():
            net.embedding.weight.add_(0.1)
    net.out.weight = nn.Parameter(torch.randn(10, 4))  # tied no more
    for _ in range(2):
        assert_same(run(i), net(i))


def test_dtypes_that_change(mode):
    run = compiled(lambda x: x * 2 + 1, mode)
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.bool,
        torch.complex64,
    ):
        x = torch.ones(4).to(dtype)
        for _ in range(2):
            assert_same(run(x), x * 2 + 1)


def test_numbers_that_change(mode):
    run = compiled(lambda x, n, s: x * n + s, mode)
    x, s = torch.randn(3), torch.tensor(2.0)
    for n in (1, 2, 3, 2.5, 4.5, True):
        assert_same(run(x, n, s), x * n + s)


NUMBERS = {
    "factor": lambda x, n: x * n,
    "distance": lambda x, n: torch.roll(x, n, 0) + n,
    "quotient": lambda x, n: (x // n, x % n, torch.div(x, n)),
    "place": lambda x, n: x.index_fill(0, torch.tensor([1]).to(x.device), n),
    "kth": lambda x, n: x.kthvalue(n % 5 + 1),  # HOST on a GPU
    "end": lambda x, n: (x[:n] + 1, x[n:], n * 2 - 1),
    "diagonal": lambda x, n: x.expand(5, 5).tril(n),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_integers_that_change_their_sign(mode, name, dynamic):
    fn = NUMBERS[name]
    run = compiled(fn, mode, dynamic=dynamic)
    for n in (2, 3, 4, -1, -3, 7, -(2**40), 1):
        x = torch.arange(-2, 3)
        assert_same(run(x, n), fn(x, n))


# ---- inputs and results that share memory -----------------------------------

INPUTS = {
    "dense": lambda: torch.randn(6, 5),
    "turned": lambda: torch.randn(5, 6).t(),
    "expanded": lambda: torch.randn(1, 5).expand(6, 5),
    "one number": lambda: torch.randn(()).expand(6, 5),
    "every second": lambda: torch.randn(12, 10)[::2, ::2],
    "overlapping": lambda: torch.randn(14).as_strided((6, 5), (1, 2)),
    "with an offset": lambda: torch.randn(31)[1:].view(6, 5),
    "no rows": lambda: torch.empty(0, 5),
    "no columns": lambda: torch.empty(6, 0),
}


@pytest.mark.parametrize("name", INPUTS)
def test_layouts_of_inputs(mode, name):
    def fn(x, y):
        return (x * y).sum(-1) + x.mean(), x + 1

    run = compiled(fn, mode, dynamic=False)
    for _ in range(2):
        x = INPUTS[name]()
        for y in (torch.randn(x.shape), x):
            assert_same(run(x, y), fn(x, y))


def test_sizes_that_become_nothing(mode):
    w = torch.randn(5, 3)
    run = compiled(lambda x: torch.relu(x @ w) + 1, mode, dynamic=True)
    for n in (4, 7, 0, 1, 9, 0, 4):
        x = torch.randn(n, 5)
        for _ in range(2):
            assert_same(run(x), torch.relu(x @ w) + 1)


OVERLAPS = {
    "the same": lambda x: (x, x),
    "in part": lambda x: (x[:4], x[2:6]),
    "neighbours": lambda x: (x[:4], x[4:]),
    "a view of it": lambda x: (x[:4], x.view(2, 4)[0]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_inputs_that_overlap(mode, name):
    """One way for each function: torch's guards do not tell them apart."""

    def fn(a, b):
        a.add_(1)
        return a + b

    run = compiled(fn, mode)
    for _ in range(3):
        mine, theirs = torch.zeros(8), torch.zeros(8)
        assert_same(run(*OVERLAPS[name](mine)), fn(*OVERLAPS[name](theirs)))
        assert_same(mine, theirs)


def test_views_as_results(mode):
    def fn(x):
        return x.view(-1), x[1:], x.t(), (x + 1)[1:], x, x.detach()

    run = compiled(fn, mode)
    for _ in range(3):
        x = torch.randn(4, 4)
        before, found = x + 1, run(x)
        assert_same(found, fn(x))
        assert found[4] is x
        found[0].zero_()  # all but the fourth are views of x
        assert_same(found, (*fn(x)[:3], before[1:], x, x))
        assert not x.any()


def test_a_result_given_twice(mode):
    def fn(x):
        y = x + 1
        return y, y, y.view(-1), {"x": x, "more": [x * 2, (y,)]}

    run = compiled(fn, mode)
    for _ in range(3):
        x = torch.randn(4, 4)
        first, second, flat, tree = run(x)
        first.add_(1)
        for same in (second, flat.view(4, 4), tree["more"][1][0]):
            assert_same(same, x + 2)
        assert tree["x"] is x
        assert_same(tree["more"][0], x * 2)


def test_results_that_are_written(mode):
    run = compiled(lambda x: (x * 2, x.sum()), mode)
    kept = []
    for k in range(20):
        x = torch.full((8,), float(k))
        double, total = run(x)
        assert_same((double, total), (x * 2, x.sum()))
        double.add_(1)
        total.zero_()
        kept.append((x, double))
    for x, double in kept:
        assert_same(double, x * 2 + 1)


def test_results_whose_memory_is_changed(mode):
    run = compiled(lambda x: x * 2, mode)
    x = torch.randn(8)
    for change in (
        lambda y: y.resize_(0),
        lambda y: y.resize_(4),
        lambda y: y.set_(torch.zeros(3)),
        lambda y: setattr(y, "data", torch.zeros(100)),
        lambda y: y.unsqueeze_(0),
    ):
        y = run(x)
        change(y)
        del y
        assert_same(run(x), x * 2)
    y = run(x)
    with pytest.raises(RuntimeError, match="not resizable"):
        y.resize_(1000)  # docs/capture.md
    del y
    assert_same(run(x), x * 2)


def test_results_become_inputs(mode):
    run = compiled(lambda x: x.add_(1) * 2, mode)
    x, want = torch.zeros(4), torch.zeros(4)
    for i in range(6):
        y = run(x)
        want = want + 1
        assert_same((x, y), (want, want * 2))
        x = x.clone() if i == 3 else x
    run = compiled(lambda x: x * 2 + 1, mode)
    x = torch.ones(4)
    for _ in range(5):
        x = run(x)
    assert_same(x, torch.full((4,), 63.0))


# ---- backward passes and threads --------------------------------------------


def test_backwards_in_another_order_and_twice(mode):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    run = compiled(net, mode)
    inputs = [torch.randn(3, 4) for _ in range(4)]
    results = [run(x).sum() for x in inputs]
    for y in reversed(results):
        y.backward(retain_graph=True)
    results[1].backward()
    found = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    for x in (*inputs, inputs[1]):
        net(x).sum().backward()
    assert_same(found, [p.grad for p in net.parameters()])


def test_threads_that_want_gradients_or_not(mode):
    net = nn.Linear(8, 8)
    run = compiled(net, mode)
    run(torch.randn(2, 8))

    def work(context):
        with context():
            for _ in range(50):
                x = torch.randn(2, 8)
                y = run(x)
                assert_same(y, net(x))
                if y.requires_grad:
                    torch.autograd.grad(y.sum(), net.weight)

    in_threads([torch.no_grad, torch.enable_grad, torch.inference_mode], work)
