"""Graphs of several GPUs in parts: on the CPU, where the last size of a tensor
plays its device. test_cuda_many.py has real ones."""

import copy

import pytest
import torch
from helpers import check, compiled, recorded
from torch.nn.functional import dropout, linear, pad

import torchair
from torchair import cuda, several
from torchair.sizes import Unexpressible

pytestmark = pytest.mark.host("sizes play devices")
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
A, B = 4, 6  # last sizes: of one "GPU", of the other


@pytest.fixture(autouse=True)
def _sizes_are_devices(monkeypatch):
    def of_value(value):
        tensors = list(several._tensors(value))
        return {str(t.shape[-1]) for t in tensors if t.dim() > 0}

    def place_of(gm):
        if len(several.gpus(gm)) > 1:
            raise Unexpressible("tensors are on several GPUs")
        return one_place(gm)

    one_place = cuda.place_of
    monkeypatch.setattr(several, "of_value", of_value)
    monkeypatch.setattr(cuda, "place_of", place_of)


def there(x):
    """A "copy" to the other device."""
    return pad(x, (0, B - A)).clone() if x.shape[-1] == A else x[..., :A] + 0


def run(fn, *args, parts, mode="max-autotune", calls=3, **kwargs):
    """As check, some times; parts: programs that the engine has made."""
    with recorded() as records:
        for _ in range(calls):
            torch._dynamo.reset()
            check(fn, *args, mode=mode, **kwargs)
    assert [r.fallback for r in records] == [""] * len(records)
    assert len(records) == parts * calls
    assert sum(not r.part for r in records) == calls


@modes
def test_there_and_back(mode):
    def fn(x):
        y = there(x * 2 + 1).sin() + 1
        return there(y) * 3, y

    run(fn, torch.randn(3, A), mode=mode, parts=3)


@modes
def test_side_by_side(mode):
    def fn(x, y):
        return (x * 2).softmax(-1), (y + 1).cumsum(0), x.shape[0]

    run(fn, torch.randn(3, A), torch.randn(3, B), mode=mode, parts=2)


@modes
def test_sizes_that_change(mode):
    def fn(x, y):
        n = x.shape[0]
        return there(x * n).relu() + y.sum(0) / n, torch.ones(n, A) + x

    with recorded() as records:
        made = compiled(fn, mode, dynamic=True)
        for n in (3, 7, 5):
            x, y = torch.randn(n, A), torch.randn(9, B)
            torch.testing.assert_close(made(x, y), fn(x, y))
    assert [r.fallback for r in records] == ["", ""]


def test_what_a_later_part_alone_reads_is_in_it():
    """The weight of the second product is turned there."""

    def fn(x, w):
        return there(x * 2) @ w.t(), w.t() + 1

    args = torch.randn(3, A), torch.randn(B, B)
    run(fn, *args, parts=3)
    run(lambda x, w: fn(x, w)[0], *args, parts=2)


class Pipeline(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(A, A)
        self.middle = torch.nn.Linear(B, B, bias=False)
        self.last = torch.nn.Linear(A, A)

    def forward(self, x):
        x = there(self.first(x).tanh())
        return self.last(there(self.middle(x).tanh()))


@modes
def test_training(mode):
    eager = Pipeline()
    ours = copy.deepcopy(eager)
    with recorded() as records:
        made = compiled(ours, mode)
        for _ in range(3):
            x = torch.randn(5, A)
            for model, call in ((eager, eager), (ours, made)):
                model.zero_grad()
                call(x).square().mean().backward()
            for a, b in zip(eager.parameters(), ours.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad)
    assert [r.fallback for r in records] == [""] * len(records)
    assert {r.kind for r in records} == {"forward", "backward"}


@modes
def test_what_is_written_was_read_before(mode):
    """x is written by one part; another reads what it was."""

    def fn(x, y):
        z = y + there(x)
        x.mul_(3)
        return z, there(there(x) * z)

    run(fn, torch.randn(3, A), torch.randn(3, B), mode=mode, parts=4)


@modes
def test_a_view_of_what_is_written(mode):
    def fn(x):
        v = x[1:]
        z = there(v.clone()) * 2
        v.add_(1)
        return z, v * 1

    run(fn, torch.randn(3, A), mode=mode, parts=3)


def test_what_only_its_part_reads_is_written_there():
    def step(x, gx, y, gy):
        x.sub_(gx * 0.1)
        y.sub_(gy * 0.1)

    args = [torch.randn(3, n) for n in (A, A, B, B)]
    run(step, *args, parts=2)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_over_both(optimizer):
    def trained(compile_step):
        torch.manual_seed(0)
        weights = [torch.randn(3, n, requires_grad=True) for n in (A, B, A, B)]
        made = optimizer(weights, lr=0.1, foreach=True)
        step = compiled(made.step) if compile_step else made.step
        for i in range(4):
            for w in weights:
                w.grad = torch.full_like(w, 0.5 + i) * w.detach()
            step()
        return weights

    torch.testing.assert_close(trained(True), trained(False))


@modes
def test_draws_keep_their_order(mode):
    """The second draws what nothing before it needs."""

    def fn(x):
        late = dropout(there(there(x.relu())) + 1, 0.5)
        return late, dropout(x * 2, 0.5)

    x = torch.randn(40, A)
    made = compiled(fn, mode)
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        want = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(made(x), want)


def test_constants_and_numbers():
    def fn(x, y, s):
        w = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
        return linear(x, w.expand(A, A)) * s, y.flip(0) / s

    run(fn, torch.randn(3, A), torch.randn(3, B), torch.tensor(2.5), parts=2)


def test_a_part_that_the_engine_refuses_is_torchs():
    def fn(x, y):
        return torch.nonzero(x.relu()).float().sum() + x, (y * 2).sin()

    x, y = torch.randn(3, A), torch.randn(3, B)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(compiled(fn)(x, y), fn(x, y))


def test_explain_shows_the_parts():
    def fn(x, y):
        return x * 2, torch.special.bessel_j0(y) * 3

    args = torch.randn(3, A), torch.randn(3, B)
    call = torch.compile(fn, backend="torchair")
    call(*args)
    found = torchair.explain(call, *args)
    assert [g.stats["runs"] for g in found.graphs] == [2, 2]
    assert [len(g.hosts) for g in found.graphs] == [0, 1]
    assert found.graphs[1].name == f"{found.graphs[0].name}_part1"
    (alone,) = torchair.explain(lambda x: x.exp() - 1, args[0]).graphs
    assert alone.name != found.graphs[0].name


def test_other_effects_keep_it_in_one_piece():
    with torch.library._scoped_library("several", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_fake("several::twice", lib=library)(
            lambda x: torch.empty_like(x)
        )

        def fn(x, y):
            return torch.ops.several.twice(x) + 1, y * 2

        x, y = torch.randn(3, A), torch.randn(3, B)
        with recorded() as records:
            check(fn, x, y)
        assert len(records) == 1
