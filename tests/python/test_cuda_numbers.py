"""Tensors of the CPU in graphs of a GPU: numbers, and constants that torch
moves there. Graphs of descriptions are imported, which needs no GPU."""

import math

import pytest
import torch
from helpers import assert_same, compiled, recorded, seeded
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import FakeTensorMode

import torchair
from torchair import cuda, engine, importer, rewrites
from torchair.sizes import Unexpressible

GPU = "cuda:0"
aten = torch.ops.aten


@pytest.fixture
def imported(monkeypatch):
    """fn, sizes -> the names of HOST nodes, or why torch runs the graph."""
    engine.start_once()
    plain = importer.Graph
    monkeypatch.setattr(cuda, "place_of", lambda gm: cuda.PLACE)
    monkeypatch.setattr(importer, "Graph", lambda name, _: plain(name, 0))
    found = []

    def compiler(gm, inputs):
        try:
            got = importer.import_graph(gm, "t", {})
            found.append([h.op for h in got.host_nodes])
        except Unexpressible as why:
            found.append(str(why))
        raise NotImplementedError("nothing is compiled")

    def run(fn, *sizes, **options):
        backend = aot_autograd(fw_compiler=compiler)
        with FakeTensorMode():
            tensors = [
                torch.empty(size[1:], device="cpu")
                if size[0] == "cpu"
                else torch.empty(size, device=GPU)
                for size in sizes
            ]
        with pytest.raises(Exception, match="nothing is compiled"):
            torch.compile(fn, backend=backend, **options)(*tensors)
        return found.pop()

    return run


SERVED = {
    "a root of a size": lambda x: x * torch.tensor(x.shape[0]).sqrt(),
    "a filled number": lambda x: x * torch.full((), 2.0).exp().neg(),
}


@pytest.mark.parametrize("name", SERVED)
def test_as_good_on_the_gpu(imported, name):
    assert imported(SERVED[name], (8, 4), dynamic=True) == []


def sines(n):
    return (torch.arange(n, device="cpu").float() / n).sin()


MOVED = {
    "a mask that is made there": lambda x, y: (
        x
        * (torch.zeros(8, 4, device="cpu") == 0).to(
            device=x.device, dtype=x.dtype
        )
    ),
    "what is computed of such": lambda x, y: (
        x + (sines(4) * sines(4).cos()).to(x.device)
    ),
    "a tensor of the caller": lambda x, y: x + y.to(x.device),
    "two copies of it": lambda x, y: y.to(x.device) + y.to(x.device, x.dtype),
    "what torch computes": lambda x, y: (
        x + torch.hamming_window(4, device="cpu").lgamma().to(x.device)
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_made_on_the_cpu_for_the_gpu(imported, name):
    found = imported(MOVED[name], (8, 4), ("cpu", 4))
    assert isinstance(found, list), found


STAYS = {
    "computed of a tensor of the caller": lambda x, y: x + y.sin().to(x.device),
    "drawn there": lambda x, y: x + torch.rand(4, device="cpu").to(x.device),
    "a result, too": lambda x, y: (x + (z := sines(4)).to(x.device), z),
    "read there, too": lambda x, y: x + (y + (z := sines(4))).sum() + z.to(x),
}


@pytest.mark.host("its tensors are on the CPU")
@pytest.mark.parametrize("name", STAYS)
def test_made_on_the_cpu_and_used_there(imported, name):
    said = imported(STAYS[name], (8, 4), ("cpu", 4))
    assert "on device cpu" in said


def test_log_sigmoid_has_an_empty_buffer_there(imported):
    def both(x, y):
        out, buffer = aten.log_sigmoid_forward(x)
        return out, aten.log_sigmoid_backward(y, x, buffer), buffer

    assert imported(both, (8, 4), (8, 4)) == []
    assert imported(both, (8,), (8,), dynamic=True) == []


LEFT = {
    "a number as the result": (
        lambda x: (x, torch.tensor(x.shape[0]).sqrt()),
        "is on device cpu",
    ),
    "drawn numbers": (
        lambda x: x * torch.rand_like(torch.full((), 1.0)),
        "on device cpu",
    ),
    "tensors": (
        lambda x: (x, torch.ones(2).sin()),
        "on device cpu",
    ),
}


@pytest.mark.host("its tensors are on the CPU")
@pytest.mark.parametrize("name", LEFT)
def test_left_to_torch(imported, name):
    fn, why = LEFT[name]
    assert why in imported(fn, (8, 4), dynamic=True)


INDEX = torch.tensor([0, 2], device="cpu")
USES = {
    "an index": (
        lambda g, x, i: g.call_function(aten.index.Tensor, (x, [i])),
        True,
    ),
    "moved": (
        lambda g, x, i: g.call_function(
            aten._to_copy.default, (i,), {"device": torch.device(GPU)}
        ),
        True,
    ),
    "copied": (
        lambda g, x, i: g.call_function(aten.clone.default, (i,)),
        False,
    ),
    "copied into": (
        lambda g, x, i: g.call_function(aten.copy.default, (x, i)),
        True,
    ),
    "written by a copy": (
        lambda g, x, i: g.call_function(aten.copy.default, (i, x)),
        False,
    ),
    "indexed": (
        lambda g, x, i: g.call_function(aten.index.Tensor, (i, [x])),
        False,
    ),
    "written": (
        lambda g, x, i: g.call_function(aten.index_put.default, (x, [x], i)),
        False,
    ),
}


@pytest.mark.parametrize("name", USES)
def test_constants_that_torch_moves(name):
    """x[[0, 2]] has its list on the CPU."""
    use, moves = USES[name]
    graph = torch.fx.Graph()
    x, constant = graph.placeholder("x"), graph.get_attr("index")
    fresh = graph.call_function(aten.lift_fresh_copy.default, (constant,))
    use(graph, x, fresh)
    fresh.meta["val"] = INDEX
    loose = cuda.movable(graph, cuda.PLACE)
    assert ({constant, fresh} <= loose) == moves
    for there in (cuda.HOST, cuda.PLACE):
        good = moves and there == cuda.PLACE
        assert cuda.is_loose_constant(constant, INDEX, there, loose) == good
    assert cuda.is_loose_result(fresh, INDEX, cuda.PLACE, loose) == moves
    assert not cuda.movable(graph, cuda.HOST)


def call_of(target, *args):
    return torch.fx.Graph().call_function(target, args)


def test_writes_by_torch_are_refused_on_a_gpu_only():
    node = call_of(aten.copy_.default, None, None)
    cuda.refuse_writes(node, cuda.HOST)
    with pytest.raises(Unexpressible, match="copy_"):
        cuda.refuse_writes(node, cuda.PLACE)
    cuda.refuse_writes(call_of(aten.copy.default, None, None), cuda.PLACE)


def rows_of_heads(batch, heads, rows, width):
    return torch.randn(batch, rows, heads, width).transpose(1, 2)


@pytest.mark.parametrize("dropped", [0.0, 0.5])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("make", [torch.randn, rows_of_heads])
def test_gradients_of_attention_have_a_plan_of_their_own(make, batch, dropped):
    """Told apart by what no model gives: a share of -0.0, or strides; what the
    plan is not told of lies in one way."""
    seen = []
    backward = aten._scaled_dot_product_cudnn_attention_backward.default
    call = rewrites.host_target(
        call_of(backward), lambda *args, **named: seen.append((args, named))
    )
    grad, q, k, v, out = (make(batch, 4, 5, 8) for _ in range(5))
    rest = ("lse", "seed", "offset", None, None, None, 5, 5, dropped, False)
    for layout in (grad, grad.clone(memory_format=torch.contiguous_format)):
        call(layout, q, k, v, out, *rest, scale=0.5)
    for args, named in seen:
        for mine, theirs in zip(args, (grad, q, k, v, out), strict=False):
            assert torch.equal(mine, theirs)
        assert args[0].stride() == args[4].stride() == (160, 8, 32, 1)
        assert args[2:4] == (k, v) and args[5:13] == rest[:8]
        assert args[13:] == (dropped, False) and named == {"scale": 0.5}
        if dropped:
            assert args[1].stride() == (168, 8, 32, 1)
        else:
            assert args[1] is q and math.copysign(1, args[13]) == -1


REAL = MOVED | {  # torch without CUDA cannot describe these
    "an index": lambda x, y: x[torch.arange(4, device="cpu") * 2],
    "a copy into another": lambda x, y: x.clone().copy_(y) * sines(4).to(x),
}


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("name", REAL)
def test_what_is_moved_is_as_good(name, mode):
    """On a GPU in a graph of its, again with other numbers."""
    torch._dynamo.reset()
    fn = REAL[name]
    run = compiled(fn, mode)
    for seed in range(4):
        x = torch.randn(8, 4, generator=seeded(seed))
        y = torch.randn(4, generator=seeded(seed, "cpu"), device="cpu")
        assert_same(run(x, y), fn(x, y))
    assert "is on device" not in str(torchair.explain(fn, x, y))


MIXED = STAYS | {
    "a result on the CPU": lambda x, y: (x.sin(), (x * 2).sum(0).cpu() + 1),
    "there and back": lambda x, y: (
        ((x * 2).sum(0).cpu().sort()[0] + y).to(x.device) * x.tanh()
    ),
    "numbers": lambda x, y: (x * 2, x.sum().cpu() + y.sum(), y * x.sum().cpu()),
}


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_what_stays_on_the_cpu_does_not_take_the_rest_along(name, grad, mode):
    """A graph of a GPU and the CPU is parts; torch runs those of the CPU."""
    torch._dynamo.reset()
    with recorded() as records:
        run = compiled(MIXED[name], mode)
        for seed in range(3):
            found = []
            for fn in (MIXED[name], run):
                torch.manual_seed(seed)
                x = torch.randn(8, 4, generator=seeded(seed))
                y = torch.randn(4, generator=seeded(seed, "cpu"), device="cpu")
                results = fn(x.requires_grad_(grad), y.requires_grad_(grad))
                several = results if isinstance(results, tuple) else (results,)
                for r in several:
                    if r.requires_grad:
                        r.sum().backward(retain_graph=True)
                found.append([*several, x.grad, y.grad])
            assert_same(found[1], found[0])
    assert [r.fallback for r in records] == [""] * len(records)
