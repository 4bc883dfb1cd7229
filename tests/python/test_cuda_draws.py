"""Which random operators of a GPU the engine draws. What it draws there is
compared with torch on a GPU (test_cuda.py) and, kernel by kernel, with the
scheme of torch's kernels without one (tests/cuda/draws.c)."""

import operator

import pytest
import torch
from helpers import BEFORE_213
from torch.fx import Graph

from torchair import cuda, cuda_draws, draws, engine
from torchair.schema import Refused

aten = torch.ops.aten
GPU = cuda.PLACE


class Placed(torch.Tensor):
    """A tensor that says it is on a GPU."""

    device = property(lambda self: torch.device("cuda", 0))


def placed(dtype=torch.float32):
    return torch.empty(4, dtype=dtype).as_subclass(Placed)


@pytest.fixture
def on_the_host(monkeypatch):
    """Probes draw on the CPU, as torch does there."""
    engine.start_once()
    monkeypatch.setattr(
        cuda_draws, "generator_of", lambda place: torch.default_generator
    )
    monkeypatch.setattr(cuda_draws, "counts", lambda *args: (5, 37, 700))
    monkeypatch.setattr(cuda, "device_of", lambda place: "cpu")
    cuda_draws.draws_alike.cache_clear()
    draws.draws_alike.cache_clear()
    yield
    cuda_draws.draws_alike.cache_clear()


@pytest.mark.parametrize("name", ["UNIFORM", "EDGE", "NARROW", "LIMIT", "WIDE"])
def test_a_probe_finds_the_same(on_the_host, name):
    probe = getattr(cuda_draws, name)
    draws._find_rounding()
    before = torch.get_rng_state()
    halves = (torch.bfloat16, torch.float16)
    for dtype in probe.dtypes:
        if BEFORE_213 and dtype in halves:
            continue  # drawn of its own bits
        assert cuda_draws.draws_alike(probe, dtype, cuda.HOST)
    assert torch.equal(torch.get_rng_state(), before)


def off_by_one(t):
    return t.random_(-5, 2**23).add_(1)


def one_more(t):
    torch.rand(1, device="cpu")
    return t.random_(-5, 2**23)


@pytest.mark.parametrize("same", [off_by_one, one_more])
def test_a_probe_finds_a_difference(on_the_host, same):
    """In the numbers, or in what is left of the generator."""
    attrs, dtypes = cuda_draws.NARROW.attrs, cuda_draws.NARROW.dtypes
    probe = cuda_draws.Probe("air::randint", attrs, same, dtypes)
    assert not cuda_draws.draws_alike(probe, torch.int64, cuda.HOST)


@pytest.mark.parametrize("alike", [True, False])
def test_what_the_probes_say_decides(monkeypatch, alike):
    monkeypatch.setattr(cuda_draws, "draws_alike", lambda *args: alike)
    for target in cuda_draws.PROBES:
        if alike:
            draws.check(target, placed(), GPU)
            continue
        with pytest.raises(Refused, match=cuda_draws.OTHER):
            draws.check(target, placed(), GPU)


def test_each_probe_is_of_the_dtype(monkeypatch):
    seen = []
    monkeypatch.setattr(
        cuda_draws, "draws_alike", lambda *args: seen.append(args) or True
    )
    draws.check(aten.bernoulli.p, placed(torch.float64), GPU)
    draws.check(aten.rand.default, placed(torch.bfloat16), GPU + 1)
    assert [(dtype, place) for _, dtype, place in seen] == [
        (torch.float64, GPU),
        (torch.bfloat16, GPU + 1),
        (torch.float32, GPU + 1),
    ]


@pytest.mark.parametrize(
    "target",
    [aten.bernoulli.default, aten.randperm.default, aten.exponential.default],
)
def test_other_operators_stay_with_torch(target):
    with pytest.raises(Refused, match=cuda_draws.REASON):
        draws.check(target, placed(), GPU)


def test_numbers_of_the_cpu_stay_with_torch():
    with pytest.raises(Refused, match=cuda_draws.REASON):
        draws.check(aten.rand.default, torch.empty((), device="cpu"), GPU)


# ---- dropout ----


def node(target, value, *args):
    """In a graph behind an input, or behind what `args` are."""
    graph = args[0].graph if args else Graph()
    args = args or (graph.placeholder("x"),)
    made = graph.call_function(target, args)
    made.meta["val"] = value
    return made


def test_a_dropout_that_takes_the_widest_vectors():
    cuda_draws.check_dropped(node(aten.exp.default, torch.empty(3, 4)))
    x = node(aten.split.Tensor, None, node(aten.exp.default, None))
    cuda_draws.check_dropped(node(operator.getitem, torch.empty(9), x))


@pytest.mark.parametrize(
    "value",
    [
        torch.empty(4, 3).T,
        torch.empty(4, 8)[:, :4],
        torch.empty(1, 4).expand(3, 4),
    ],
)
def test_dropout_of_another_layout(value):
    with pytest.raises(Refused, match=cuda_draws.LAYOUT):
        cuda_draws.check_dropped(node(aten.exp.default, value))


def test_dropout_of_memory_that_may_lie_anywhere():
    graph = Graph()
    given = graph.placeholder("x")
    given.meta["val"] = torch.empty(8)
    split = graph.call_function(aten.split.Tensor, (given, 4))
    part = node(operator.getitem, torch.empty(4), split)
    view = node(aten.view.default, torch.empty(8), given)
    odd = node(aten.exp.default, torch.empty(9)[1:])
    for x in (given, part, view, odd):
        with pytest.raises(Refused, match=cuda_draws.GIVEN):
            cuda_draws.check_dropped(x)
    cuda_draws.check_dropped(node(aten.exp.default, torch.empty(9)[4:]))


def test_numbers_of_a_dropout_are_rounded_as_torchs_kernel_does():
    p = 0.1
    double = cuda_draws.scale(p, torch.float64)
    assert double == 1 / (1 - p)
    single = cuda_draws.scale(p, torch.float32)
    kept = torch.tensor(1 - p, dtype=torch.float32, device="cpu")
    assert cuda_draws.kept(p, torch.bfloat16) == kept.item()
    want = torch.tensor(1 / kept.item(), dtype=torch.float32, device="cpu")
    assert single == want.item() != double
