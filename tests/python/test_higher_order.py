"""Operators that hold graphs, loops that are written out; tensors that are
not plain."""

import pytest
import torch
from helpers import check, compiled, recorded
from torch._dynamo.source import ConstantSource
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from torchair import _native, engine
from torchair.sizes import Sizes, Unexpressible

modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
on_the_cpu = pytest.mark.host("graphs that operators hold are torch's there")


@modes
def test_branches_of_cond(mode):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

    x = torch.ones(3)
    check(fn, x, mode=mode)
    check(fn, -x, mode=mode)


def held(records):
    """Of graphs that operators hold: those that the engine runs."""
    return [r for r in records if r.part and not r.fallback]


@on_the_cpu
@modes
def test_a_loop_runs_programs(mode):
    def fn(a):
        def more(i, x, change):
            return (i < 30) & (change > 1e-6)

        def better(i, x, change):
            y = 0.5 * (x + a / x)
            return i + 1, y, (y - x).abs().max()

        start = torch.zeros((), dtype=torch.int64), a.clone(), a.max() + 1
        return while_loop(more, better, start)

    with recorded() as records:
        check(fn, torch.rand(8, 16) + 0.5, mode=mode)
        check(fn, torch.zeros(2, 3), mode=mode)
    assert len(held(records)) >= 2


def test_a_loop_of_no_turn_gives_copies():
    def fn(x):
        return while_loop(
            lambda i, y: i < 0, lambda i, y: (i + 1, y * 2), (x.sum(), x)
        )

    x = torch.ones(3)
    _, y = compiled(fn)(x)
    y.zero_()
    assert torch.equal(x, torch.ones(3))


@on_the_cpu
@modes
def test_a_scan_runs_programs(mode):
    def fn(x, h, w):
        def step(h, row):
            h = torch.tanh(h @ w + row)
            return h, h * 2

        return scan(step, h, x, dim=0)

    x, h, w = torch.randn(5, 4, 8), torch.randn(4, 8), torch.randn(8, 8) / 8
    with recorded() as records:
        check(fn, x, h, w, mode=mode)
        check(fn, x[:3], h, w, mode=mode)
    assert held(records)
    x.requires_grad_()
    w.requires_grad_()
    got = torch.autograd.grad(compiled(fn, mode=mode)(x, h, w)[1].sum(), [x, w])
    wanted = torch.autograd.grad(fn(x, h, w)[1].sum(), [x, w])
    torch.testing.assert_close(got, wanted)


@on_the_cpu
@modes
def test_a_map_runs_programs(mode):
    def fn(xs, w):
        return torch._higher_order_ops.map(lambda x, w: (x @ w).relu(), xs, w)

    with recorded() as records:
        check(fn, torch.randn(3, 4, 8), torch.randn(8, 8), mode=mode)
    assert held(records)


@on_the_cpu
def test_a_branch_in_a_branch():
    def fn(x):
        def less(y):
            return torch.cond(y.max() > 9, lambda z: z * 3, lambda z: -z, (y,))

        return torch.cond(x.sum() > 0, lambda y: y + 1, less, (x,))

    with recorded() as records:
        for x in (torch.ones(3), -torch.ones(3), torch.tensor([10.0, -99])):
            check(fn, x)
    assert len(held(records)) >= 4


@on_the_cpu
def test_a_region_that_is_compiled_once():
    @torch.compiler.nested_compile_region
    def layer(x):
        return torch.tanh(x * 2) + 1

    def fn(x):
        return layer(layer(layer(x)))

    with recorded() as records:
        check(fn, torch.randn(4, 8))
    assert len(held(records)) == 1


def test_a_graph_that_the_engine_refuses_is_torchs():
    def fn(x):
        def less(y):
            return torch.fft.rfft(y).abs()

        def more(y):
            return torch.view_as_real(torch.fft.rfft(y)).sum(-1)

        return torch.cond(x.sum() > 0, more, less, (x,))

    check(fn, torch.randn(8))
    check(fn, -torch.ones(8))


@pytest.mark.host("flex_attention of a GPU is torch's")
@modes
@pytest.mark.parametrize("heads", [2, 4])
def test_flex_attention_is_part_of_the_graph(mode, heads):
    q = torch.randn(2, 4, 32, 16)
    k, v = torch.randn(2, heads, 48, 16), torch.randn(2, heads, 48, 8)
    slopes = torch.rand(4)
    seen = create_block_mask(
        lambda b, h, i, j: (i >= j) & (i != 3), None, None, 32, 48, device="cpu"
    )

    def plain(q, k, v):
        return flex_attention(q, k, v, enable_gqa=heads == 2) * 2

    def masked(q, k, v):
        return flex_attention(q, k, v, block_mask=seen, enable_gqa=heads == 2)

    def changed(q, k, v):
        def score(s, b, h, i, j):
            return torch.tanh(s / 20) * 20 - slopes[h] * (i - j).abs()

        return flex_attention(q, k, v, score, seen, enable_gqa=heads == 2)

    def sums(q, k, v):
        return flex_attention(
            q, k, v, return_lse=True, enable_gqa=heads == 2, scale=0.3
        )

    for fn in (plain, masked, changed, sums):
        with recorded() as records:
            check(fn, q, k, v, mode=mode)
        hosts = [h.op for r in records for h in r.hosts]
        assert not any("flex" in name for name in hosts), hosts
    check(masked, q.bfloat16(), k.bfloat16(), v.bfloat16(), mode=mode)


def test_flex_attention_of_changing_sizes():
    def fn(q):
        return flex_attention(q, q, q, lambda s, b, h, i, j: s + (i - j))

    run = compiled(fn, dynamic=True)
    for n in (16, 24, 40):
        q = torch.randn(1, 2, n, 16)
        torch.testing.assert_close(run(q), fn(q))


@modes
def test_nested_tensors_are_left_to_torch(mode):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    ragged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    with recorded() as records:
        got = compiled(lambda x: x * 2, mode=mode)(ragged)
    assert torch.equal(got.values(), ragged.values() * 2)
    assert any("nested tensor" in r.fallback for r in records)


def test_a_size_of_nowhere_is_refused():
    """No input tells it: the engine could not know it in a call."""
    engine.start_once()
    env = ShapeEnv()
    source = ConstantSource("elsewhere")
    symbol = env.create_symbol(5, source, DimDynamic.DYNAMIC, None)
    size = env.create_symintnode(symbol, hint=5, source=source)
    sizes = Sizes(_native.Graph("f"))
    sizes.close([torch.ones(2, 3)])
    with pytest.raises(Unexpressible, match="comes from no input"):
        sizes.dim(size + 1)


@modes
def test_effects_one_after_the_other(mode):
    """Each takes the token of the one before, which is no tensor."""

    def fn(a, b):
        first = torch.linalg.cholesky(a)
        return first @ torch.linalg.cholesky(b), torch.linalg.cholesky(a + b)

    a, b = torch.eye(3) * 2, torch.eye(3) * 3
    check(fn, a, b, mode=mode)


@modes
def test_gradients_of_gradients_by_functorch(mode):
    """Their numbers come as casts of Python's."""
    from torch.func import grad, vmap

    def fn(w, x):
        def u(x):
            return torch.tanh(x * w).sum()

        def loss(w):
            def u(x):
                return torch.tanh(x * w).sum()

            second = vmap(lambda x: grad(u)(x) - 0.01 * grad(grad(u))(x))(x)
            return (second * second).mean()

        return grad(loss)(w), vmap(u)(x)

    check(fn, torch.randn(4), torch.randn(8), mode=mode)


@modes
def test_gradients_of_many_steps(mode):
    """Each part of x is used by two steps, the last of w by none."""

    def fn(x, w):
        h, out = x[:, 0], []
        for t in range(1, 40):
            h = torch.tanh(h * w[t - 1] + x[:, t]) + x[:, t - 1]
            out.append(h)
        return torch.stack(out, 1)

    x, w = torch.randn(3, 40, 5), torch.rand(40, 5)
    x.requires_grad_()
    w.requires_grad_()
    got = torch.autograd.grad(compiled(fn, mode=mode)(x, w).sum(), [x, w])
    wanted = torch.autograd.grad(fn(x, w).sum(), [x, w])
    torch.testing.assert_close(got, wanted)
