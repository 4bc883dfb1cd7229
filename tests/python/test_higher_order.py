"""Operators that hold graphs; tensors that are not plain."""

import pytest
import torch
from helpers import check, compiled, recorded
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torchair import _native, engine
from torchair.sizes import Sizes, Unexpressible

modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


@modes
def test_branches_of_cond(mode):
    def fn(x):
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))

    x = torch.ones(3)
    check(fn, x, mode=mode)
    check(fn, -x, mode=mode)


@modes
def test_lists_and_tuples_are_told_apart(mode):
    """flex_attention adds tuples of its buffers."""
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 16, 16)

    def fn(q):
        return flex_attention(q, q, q) * 2

    check(fn, q, mode=mode)


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
