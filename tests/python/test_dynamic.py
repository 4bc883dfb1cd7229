"""Sizes that change: one program for all of them."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, compiled, fallbacks, recorded, seeded

TEXT_MEMORY = 3

SIZES = [
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    23,
    31,
    32,
    33,
    40,
    50,
    63,
    64,
    100,
]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(12, 24), torch.nn.Linear(24, 6)
        self.n = torch.nn.LayerNorm(24)

    def forward(self, x):
        return torch.softmax(self.b(self.n(F.gelu(self.a(x)))), -1)


def test_twenty_batch_sizes_one_compile():
    net = Net().eval()
    run = compiled(net, dynamic=True)
    with torch.no_grad(), recorded() as records:
        for n in SIZES:
            x = torch.randn(n, 12)
            assert_same(run(x), net(x))
    assert len(records) == 1
    assert not fallbacks(records)


def test_twenty_batch_sizes_training():
    net = Net()
    run = compiled(net, dynamic=True)
    with recorded() as records:
        for n in SIZES:
            x = torch.randn(n, 12, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            run(x).pow(2).sum().backward()
            net(y).pow(2).sum().backward()
            assert_same(x.grad, y.grad)
    assert len(records) == 2
    assert not fallbacks(records)


FUNCTIONS = {
    "shape_arithmetic": lambda x: x.view(-1, 2).sum(1) * x.shape[0] / 3,
    "floor_divide": lambda x: x.flatten()[: x.numel() // 3] + 1,
    "modulo": lambda x: x * (x.shape[0] % 4),
    "max_min": lambda x: x[: max(x.shape[0] - 2, 1)] * min(x.shape[0], 5),
    "cat": lambda x: torch.cat([x, x[1:]], 0),
    "arange": lambda x: x + torch.arange(x.shape[0], device=x.device)[:, None],
    "full": lambda x: x + torch.full((x.shape[0], 1), 2.0, device=x.device),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1).reshape(-1, 4),
    "size_result": lambda x: (x + 1, x.shape[0] * 2, x.shape[0]),
    "split": lambda x: x.split(2, 1)[1] * 2,
    "mean": lambda x: x.mean(0) + x.var(0),
    "conv": lambda x: F.conv1d(x[None], torch.ones(x.shape[0], x.shape[0], 3)),
    "sqrt_of_size": lambda x: x / (x.shape[0] ** 0.5),
    "tril": lambda x: (x @ x.t()).tril(),
    "roll": lambda x: x.roll((1, 2), (0, 1)) + x.roll(-9, 0) + x.roll(5),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dynamic_function(name):
    fn = FUNCTIONS[name]
    run = compiled(fn, dynamic=True)
    with torch.no_grad(), recorded() as records:
        for n in (6, 8, 11, 14):
            x = torch.randn(n, 4)
            assert_same(run(x), fn(x))
    assert not fallbacks(records)
    assert len(records) <= 2  # a guard on a special size may add one


def test_automatic_dynamic():
    run = compiled(lambda x: (x * 2).sum(1))
    with recorded() as records:
        for n in (4, 5, 6, 7, 8):
            run(torch.randn(n, 3))
    assert len(records) == 2


def test_two_symbols_and_mark_dynamic():
    def fn(x, y):
        return x @ y

    run = compiled(fn)
    with recorded() as records:
        for m, k in ((3, 5), (4, 6), (9, 7)):
            x, y = torch.randn(m, k), torch.randn(k, 4)
            for t, d in ((x, 0), (x, 1), (y, 0)):
                torch._dynamo.mark_dynamic(t, d)
            assert_same(run(x, y), fn(x, y))
    assert len(records) == 1


def test_integer_argument():
    def fn(x, n):
        return x[:n] * n

    run = compiled(fn, dynamic=True)
    with recorded() as records:
        for n in (3, 4, 7):
            x = torch.randn(10)
            assert_same(run(x, n), fn(x, n))
    assert len(records) == 1


@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "nearest"])
@pytest.mark.parametrize("grad", [False, True])
def test_upsampling_to_sizes_that_are_symbols(mode, grad):
    def by_size(x):
        return torch.nn.functional.interpolate(
            x[None, None], size=(x.shape[0] * 2, 5), mode=mode
        )[0, 0]

    def by_factor(x):
        return torch.nn.functional.interpolate(
            x[None, None], scale_factor=1.5, mode=mode
        )[0, 0]

    for fn in (by_size, by_factor):
        run = compiled(fn, dynamic=True)
        for n in (3, 5, 8):
            x = torch.randn(n, 4, requires_grad=grad)
            assert_same(run(x), fn(x))


def test_sizes_that_are_parts_of_a_size():
    """As the sums of torch's attention are padded, on a GPU."""

    def fn(x):
        return x.new_ones(math.ceil(x.shape[0] / 32)) * x.sum(0)

    with recorded() as records:
        run = compiled(fn, dynamic=True)
        for size in (31, 32, 33, 65):
            x = torch.ones(size)
            assert_same(run(x), fn(x))
    assert not fallbacks(records)


def test_sizes_that_depend_on_data():
    def fn(x):
        return x[x > 0].sum() + x.nonzero().shape[0]

    x = torch.randn(20)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert_same(compiled(fn)(x), fn(x))


def test_an_integer_that_dynamo_makes_constant_may_be_negative():
    """It is an input all the same, and is no size."""

    def fn(x, axis):
        return torch.cat([x, x * 2], axis)

    x, model = torch.randn(3, 5), compiled(fn, dynamic=True)
    for axis in (0, -1, 1, -2):
        torch.testing.assert_close(model(x, axis), fn(x, axis))


ROUNDED = {
    "truncated": lambda n: int(n * 0.75),
    "floor": lambda n: math.floor(n * 0.3),
    "ceiling": lambda n: math.ceil(n * 0.3),
    "half": lambda n: int(n / 2),
    "quotient by a float": lambda n: int(n / 2.5),
    "of a product": lambda n: int(0.5 * n * (n + 1) / 20.0),
    "at least one": lambda n: max(1, int(n * 0.1)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_sizes_that_are_rounded_floats(name):
    def fn(x):
        return x[: ROUNDED[name](x.shape[0])] * 2

    net = compiled(fn, dynamic=True)
    with recorded() as records:
        for n in (30, 7, 10, 16, 20, 100):
            x = torch.randn(n, 3)
            assert_same(net(x), fn(x))
    assert not fallbacks(records)


@pytest.mark.parametrize("factor", [2, 0.5, 1.5, 1 / 3])
def test_images_of_any_size_by_a_factor(factor):
    def fn(x):
        return F.interpolate(x, scale_factor=factor, mode="bilinear").relu()

    net = compiled(fn, dynamic=True)
    with recorded() as records:
        for height, width in (6, 8), (9, 7), (15, 30), (31, 10):
            x = torch.randn(2, 3, height, width)
            torch.testing.assert_close(net(x), fn(x), rtol=1e-5, atol=1e-6)
    assert len(records) == 1 and not fallbacks(records)


def test_floats_that_are_counted_down():
    def fn(x):
        n, device = x.shape[0], x.device
        down = torch.arange(n - 1, -1, -1.0, device=device)
        return x * down, torch.arange(0.0, n, 2.0, device=device)

    net = compiled(fn, dynamic=True)
    with recorded() as records:
        for n in 5, 8, 11:
            assert_same(net(torch.ones(n)), fn(torch.ones(n)))
    assert len(records) == 1 and not fallbacks(records)


def test_gradient_of_the_last_ones():
    """How many there are comes to the backward graph as a number below 0."""

    def fn(x, y):
        return torch.cat([x, y])[-y.shape[0] :].sin().sum()

    net = compiled(fn, dynamic=True)
    for n, m in (3, 5), (6, 2):
        x = torch.randn(n, 4, requires_grad=True)
        y = torch.randn(m, 4, requires_grad=True)
        got = torch.autograd.grad(net(x, y), (x, y))
        torch.testing.assert_close(got, torch.autograd.grad(fn(x, y), (x, y)))


@pytest.mark.host("kernels of a GPU cannot read them")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_integers_that_are_only_computed_with(mode):
    """Another number of a step is no other specialisation."""

    def fn(x, step, n):
        halves = (x * step).to(torch.bfloat16) + step
        whole = (x > step) & (torch.arange(4, dtype=torch.uint8) < step + n)
        return halves, whole, x.double() / (step - 2), x[:n] ** step

    net = compiled(fn, mode, dynamic=True)
    with recorded() as records:
        for n in 3, 2:
            for step in 3, 7, 300, -5:
                x = torch.rand(4) + 0.5
                torch.testing.assert_close(
                    net(x, step, n), fn(x, step, n), rtol=1e-2, atol=1e-2
                )
    assert len(records) <= 2 and not fallbacks(records)
    spent = [r.program().stats()["specialisations"] for r in records]
    assert sum(spent) <= 3
    assert "number" in records[-1].program().text(TEXT_MEMORY)


@pytest.mark.host("kernels of a GPU cannot read them")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_tensors_made_of_integers(mode):
    """Nor are those that tensors are made of, but for their sizes."""

    def fn(x, a, b, n):
        drawn = torch.tensor([a, b, a + b])
        filled = torch.full((2, n), a) * x[:n]
        steps = torch.arange(b, b + n) + torch.arange(a, a + 8, 2)[:n]
        parts = torch.full_like(x, b), torch.linspace(a, b, 3)
        return drawn, filled, steps, x[drawn % 4], *parts

    net = compiled(fn, mode, dynamic=True)
    with recorded() as records:
        for n in 3, 2:
            for a, b in (5, 7), (9, 100), (1 << 40, -3), (7, 6):
                x = torch.rand(4, generator=seeded(a % 97))
                assert_same(net(x, a, b, n), fn(x, a, b, n))
    assert len(records) <= 2 and not fallbacks(records)
    spent = [r.program().stats()["specialisations"] for r in records]
    assert sum(spent) <= 3


@pytest.mark.parametrize("grad", [False, True])
def test_a_size_that_torch_knows_to_be_one_broadcasts(grad):
    """As (n - 1) // 2 of 3 and 4: torch guards it, the engine cannot know."""

    def fn(x, y):
        some = x.transpose(0, 1)[2::2]
        return some * y + 1, torch.where(some > y, some, y), some.sum(0)

    run = compiled(fn, dynamic=True)
    with recorded() as records:
        for n in 3, 4, 3:
            x = torch.randn(n, n, 5, generator=seeded(n), requires_grad=grad)
            got, want = run(x, x.detach()), fn(x, x.detach())
            assert_same(got, want)
            if grad:
                (mine,) = torch.autograd.grad(got[0].sum() + got[1].sum(), x)
                (own,) = torch.autograd.grad(want[0].sum() + want[1].sum(), x)
                assert_same(mine, own)
    assert len(records) <= 2 and not fallbacks(records)
