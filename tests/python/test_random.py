"""Random operators draw what eager draws from the same seed, bit by bit."""

import pytest
import torch
from helpers import (
    BEFORE_213,
    assert_same,
    compiled,
    hosts,
    in_threads,
    recorded,
    seeded,
)
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torchair
from torchair import draws

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Around a lot of 16 normals and the 624 words of a state.
COUNTS = [0, 1, 2, 15, 16, 17, 31, 32, 48, 623, 624, 625, 1025, 5000]

CASES = {
    "rand": lambda x: torch.rand(3, 50),
    "randn": lambda x: torch.randn(40, dtype=torch.float64),
    "rand_like": lambda x: torch.rand_like(x) + x,
    "randn_like": lambda x: torch.randn_like(x * 2),
    "normal of numbers": lambda x: torch.normal(1.5, 2.0, (4, 5)),
    "randint": lambda x: torch.randint(-5, 90, (7, 9)),
    "randint from 0": lambda x: torch.randint(90, (7, 9), dtype=torch.int32),
    "randint wide": lambda x: torch.randint(-(2**40), 2**50, (99,)),
    "randint_like": lambda x: torch.randint_like(x, 50),
    "randint_like low": lambda x: torch.randint_like(x, -9, 50),
    "randperm": lambda x: torch.randperm(1033),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "bernoulli f64": lambda x: torch.bernoulli(x.double().sigmoid()),
    "bernoulli p": lambda x: torch.bernoulli(x, 0.2),
    "bernoulli_": lambda x: x.clone().bernoulli_(0.8),
    "uniform": lambda x: (x + 1).uniform_(-2, 5),
    "normal": lambda x: (x + 1).normal_(1, 3),
    "dropout": lambda x: F.dropout(x.exp(), 0.3).relu() + 1,
    "none dropped": lambda x: F.dropout(x, 0.0),
    "dropout2d": lambda x: F.dropout2d(x[None, :, :, None], 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "order": lambda x: (torch.rand(3), F.dropout(x), torch.randn(17)),
    "drawn in a row": lambda x: torch.cat([torch.rand_like(x), x]),
}
BY_TORCH = {
    "exponential": lambda x: (x + 1).exponential_(),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 3, True),
    "between": lambda x: (
        torch.rand(3),
        (x + 1).exponential_(),
        torch.randn(3),  # keeps one for the next
        torch.randperm(9),
        (x * 2).exponential_(),
    ),
    "channels_last": lambda x: torch.randn_like(
        x[None, :, :, None]
        .expand(2, -1, -1, 4)
        .contiguous(memory_format=torch.channels_last)
    ),
}


def compare(fn, *args, mode="max-autotune", **kwargs):
    """Two calls of each from one seed, and the states they leave."""
    torch.manual_seed(7)
    torch.randn(3)  # leaves one normal for the next
    want = [fn(*args) for _ in range(2)]
    after = torch.get_rng_state()
    run = compiled(fn, mode, **kwargs)
    run(*args)
    torch.manual_seed(7)
    torch.randn(3)
    got = [run(*args) for _ in range(2)]
    assert_same(got, want)
    assert torch.equal(torch.get_rng_state(), after)
    return got


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("shape", [(16, 33), (5, 3)])
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, shape, mode):
    with recorded() as records:
        first, second = compare(CASES[name], torch.randn(shape), mode=mode)
    assert hosts(records) == []
    flat = torch.utils._pytree.tree_leaves
    if name != "none dropped":
        assert not all(map(torch.equal, flat(first), flat(second)))


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("name", BY_TORCH)
def test_what_torch_draws_keeps_its_place(name):
    with recorded() as records:
        compare(BY_TORCH[name], torch.randn(5, 3))
    reasons = {h.reason for r in records for h in r.hosts}
    assert reasons <= {draws.REASON, draws.ORDER}
    assert reasons


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("count", COUNTS)
def test_bits_of_every_dtype_and_size(count):
    def of(dtype):
        x = torch.empty(count, dtype=dtype)
        return (
            torch.rand(count, dtype=dtype),
            torch.randn(count, dtype=dtype),
            x.clone().uniform_(-3, 7.3),
            x.clone().normal_(0.1, 2.3),
            x.clone().bernoulli_(0.3),
            torch.randn(count, dtype=dtype),
        )

    def fn():
        return [drawn for dtype in FLOATS for drawn in of(dtype)]

    torch.manual_seed(11)
    want, after = fn(), torch.get_rng_state()
    with recorded() as records:
        run = compiled(fn)
        torch.manual_seed(11)
        got = run()
    assert all(map(torch.equal, got, want))
    assert torch.equal(torch.get_rng_state(), after)
    assert bool(hosts(records)) == BEFORE_213


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("range_", [2, 2**28 - 1, 2**28, 2**31 + 5, 2**63 - 1])
def test_integers_of_every_range(range_):
    compare(lambda: torch.randint(range_, (300,)))


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int32, torch.bool, *FLOATS]
)
def test_integers_of_every_dtype(dtype):
    high = 2 if dtype is torch.bool else 100
    compare(lambda: torch.randint(0, high, (77,), dtype=dtype))


@pytest.mark.parametrize("draw", [F.dropout, torch.rand_like, torch.bernoulli])
def test_draws_in_the_order_of_eagers_memory(draw):
    """The engine's own result of the operation before it lies otherwise."""
    compare(lambda x: draw(x.permute(2, 0, 1).sigmoid()), torch.randn(6, 5, 7))


@pytest.mark.host("torch draws the random numbers of a GPU")
def test_dropout_needs_no_host_node_and_fuses():
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU())
    x = torch.randn(4, 8)

    def grads(run):
        torch.manual_seed(5)
        y = run(x)
        return [y, *torch.autograd.grad(y.sum(), list(net.parameters()))]

    want = grads(net)
    with recorded() as records:
        got = grads(compiled(net))
    assert_same(got, want)
    assert hosts(records) == []
    # One region behind the product: dropout, relu and what backward wants.
    forward = next(r for r in records if r.kind == "forward")
    assert forward.program().stats()["regions"] == 1


def test_dropout_of_everything():
    """torch draws for it when it traces and not when it does not."""
    x = torch.randn(5, 3)
    assert_same(compiled(lambda x: F.dropout(x, 1.0))(x), x * 0)


def test_dropout_with_sizes_that_change():
    run = compiled(lambda x: F.dropout(x, 0.4), dynamic=True)
    for n in (3, 8, 20):
        x = torch.randn(n, 6)
        torch.manual_seed(n)
        want = F.dropout(x, 0.4)
        torch.manual_seed(n)
        assert_same(run(x), want)


def _losses(compile_it):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(12, 48), nn.GELU(), nn.Dropout(0.3), nn.Linear(48, 5)
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run = compile_it(net)
    losses = []
    for _ in range(20):
        x, y = torch.randn(32, 12), torch.randint(0, 5, (32,))
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_training_with_dropout_has_eagers_losses(mode):
    want = _losses(lambda net: net)
    got = _losses(lambda net: compiled(net, mode))
    torch.testing.assert_close(got, want, rtol=2e-5, atol=1e-6)
    assert len(set(got)) == 20


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_eager_and_compiled_draws_interleave(mode):
    def fn():
        return torch.randn(7)

    run = compiled(fn, mode)
    run()
    torch.manual_seed(2)
    want = [fn(), torch.rand(3), fn(), torch.randn(5), fn()]
    torch.manual_seed(2)
    got = [run(), torch.rand(3), run(), torch.randn(5), run()]
    assert all(map(torch.equal, got, want))


@pytest.mark.host("torch draws the random numbers of a GPU")
def test_a_forked_generator_is_left_alone():
    run = compiled(lambda: torch.rand(5))
    run()
    before = torch.get_rng_state()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        inside = run()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(5), inside)


def test_a_checkpoint_draws_the_same_again():
    layer = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))
    run = compiled(layer)
    x = torch.randn(40, 6, requires_grad=True)

    def grad(inner):
        torch.manual_seed(3)
        y = checkpoint(inner, x, use_reentrant=False)
        return torch.autograd.grad(y.square().sum(), x)[0]

    assert_same(grad(run), grad(layer))


@pytest.mark.host("torch draws the random numbers of a GPU")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "noise",
    [
        nn.Dropout(0.5),
        torch.rand_like,
        lambda x: x + x.detach().clone().exponential_(),
    ],
    ids=["dropout", "rand_like", "exponential"],
)
def test_a_checkpoint_inside_draws_the_same_again(noise, mode):
    linear = nn.Linear(6, 6)
    x = torch.randn(40, 6, requires_grad=True)

    def layer(x):
        y = linear(x)
        return y.sin() * noise(y)

    def fn(x):
        y = checkpoint(layer, x, use_reentrant=False).square().sum()
        return y + torch.rand(())

    def grad(run):
        torch.manual_seed(3)
        y = run(x)
        return [y, torch.rand(3), *torch.autograd.grad(y, x), torch.rand(3)]

    with recorded() as records:
        got = grad(compiled(fn, mode))
    assert_same(got, grad(fn))
    assert [r.fallback for r in records] == ["", ""]


def test_a_generator_of_the_user_is_drawn_from_by_torch():
    generator = seeded(4)
    run = compiled(lambda x: x + torch.rand(5, generator=generator))
    x, before = torch.zeros(5), torch.get_rng_state()
    got = run(x)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(got, torch.rand(5, generator=generator.manual_seed(4)))


@pytest.mark.host("torch draws the random numbers of a GPU")
def test_an_error_draws_nothing():
    def fn(x, i):
        return x[i] + torch.rand(3)

    run = compiled(fn)
    x = torch.randn(4, 3)
    run(x, torch.tensor([1]))
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match="freed"):
        dead = torch.randn(4, 3)
        state = torch.get_rng_state()
        dead.untyped_storage().resize_(0)
        run(dead, torch.tensor([1]))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(before, state)


@pytest.mark.host("torch's assertion ends CUDA in that process")
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.bernoulli(x, 1.5),
        lambda x: torch.bernoulli(x + 2),
        lambda x: x.clone().normal_(0, -1),
        lambda x: x.clone().uniform_(2, 1),
        lambda x: torch.randint(3, 3, (2,)),
    ],
)
def test_parameters_that_eager_refuses(fn):
    with pytest.raises((RuntimeError, ValueError)):
        fn(torch.zeros(3))
    with pytest.raises((RuntimeError, ValueError)):
        compiled(fn)(torch.zeros(3))


@pytest.mark.host("torch's assertion ends CUDA in that process")
def test_a_wrong_probability_is_named_and_is_no_index():
    run = compiled(lambda x: torch.bernoulli(x))
    with pytest.raises(RuntimeError, match=r"probability outside .*, 2.5, in"):
        run(torch.full((3,), 2.5))
    try:
        run(torch.full((3,), -0.5))
    except IndexError:
        pytest.fail("an IndexError")
    except RuntimeError:
        pass


def test_threads_that_draw_at_once_spoil_nothing():
    """Numbers of several threads come in any order, but are numbers."""
    run = compiled(lambda: torch.rand(3000))
    run()
    means = []

    def work(_):
        for _ in range(50):
            means.append(run().mean().item())
            means.append(torch.rand(3000).mean().item())

    in_threads(range(4), work)
    assert len(means) == 400
    assert all(0.45 < m < 0.55 for m in means)
    assert torch.rand(10).max() < 1


@pytest.mark.host("torch draws the random numbers of a GPU")
def test_another_way_to_draw_is_noticed(monkeypatch):
    """A build of torch that draws otherwise keeps its operators."""
    odd = draws.Probe(
        draws.UNIFORM.op,
        draws.UNIFORM.attrs,
        lambda t: t.uniform_(0, 1),
        draws.FLOATS,
    )
    target = torch.ops.aten.rand.default
    monkeypatch.setitem(draws.PROBES, target, (odd,))
    before = torch.get_rng_state()
    assert not draws.draws_alike(odd, torch.float32)
    assert torch.equal(torch.get_rng_state(), before)
    with recorded() as records:
        compare(lambda: torch.rand(9))
    assert {h.reason for r in records for h in r.hosts} == {draws.OTHER}


@pytest.mark.host("torch draws the random numbers of a GPU")
def test_explain_says_who_draws():
    def fn(x):
        return F.dropout(x) + x.clone().exponential_()

    text = str(torchair.explain(fn, torch.randn(4)))
    assert "exponential" in text
    assert draws.REASON in text
    assert "bernoulli" not in text.split(draws.REASON)[0].split("HOST")[-1]


@pytest.mark.parametrize(
    ("value", "strides"),
    [
        (torch.empty(40, 40).expand(2, 4, 40, 40), (6400, 1600, 40, 1)),
        (torch.empty(2, 1, 3, 48)[..., :41], (144, 144, 48, 1)),
        (torch.empty(2, 3, 4).transpose(1, 2), (12, 1, 4)),
        (torch.empty(3, 1).expand(3, 5), (5, 1)),
    ],
)
def test_operands_of_what_draws_lie_as_eagers(value, strides):
    """A mask of attention too: its last axis is the innermost, its rows are
    where torch's kernel wants them."""
    call = draws.in_memory_order(lambda args, tensors: tensors, [value])
    (got,) = call((), (value.contiguous(),))
    assert got.stride() == strides


@pytest.mark.parametrize(
    ("given", "stays"),
    [
        (torch.ones(2, 7, 3, 16).transpose(1, 2), True),
        (torch.ones(2, 7, 3, 32)[..., 16:].transpose(1, 2), True),
        (torch.ones(2, 3, 7, 18)[..., :16], False),  # rows of 18 numbers
        (torch.ones(2, 3, 16, 7).mT, False),
        (torch.ones(1, 7, 3, 16).transpose(1, 2), True),
    ],
)
def test_attention_reads_rows_where_they_lie(given, stays):
    """Of what drops nothing no number depends on where operands lie."""
    traced = torch.empty(given.shape).contiguous()
    call = draws.in_memory_order(
        lambda args, tensors: tensors, [traced], draws=False
    )
    (got,) = call((), (given,))
    assert (got is given) == stays
    assert torch.equal(got, given)
