"""Gradients of bags of embeddings, and indices of triangles."""

import itertools

import pytest
import torch
from helpers import check, recorded, seeded
from helpers import hosts as hosts_of

MODES = ["sum", "mean", "max"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 3])
def test_gradients_of_bags(mode, last, padding):
    g = seeded(0)
    table = torch.randn(20, 5, generator=g)
    index = torch.randint(0, 20, (40,), generator=g)
    offsets = torch.tensor([0, 0, 7, 20, 40 if last else 33])
    factors = torch.rand(40, generator=g) if mode == "sum" else None

    def fn(table, factors):
        bags = torch.nn.functional.embedding_bag(
            index,
            table,
            offsets,
            mode=mode,
            per_sample_weights=factors,
            include_last_offset=last,
            padding_idx=padding,
        )
        return bags.square().sum()

    given = [x for x in (table, factors) if x is not None]
    for weighted in {False, factors is not None}:
        mine = [x.clone().requires_grad_() for x in given[: 1 + weighted]]
        args = (*mine, None)[:2]
        with recorded() as found:
            made = torch.compile(fn, backend="torchair")(*args)
            got = torch.autograd.grad(made, mine)
        want = torch.autograd.grad(fn(*args), mine)
        torch.testing.assert_close(got, want)
        assert not hosts_of(found)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_of_any_dtype(dtype):
    def fn(table, index, offsets):
        bag = torch.nn.functional.embedding_bag
        return bag(index, table, offsets, mode="sum").square().sum()

    index = torch.tensor([1, 2, 3, 9, 0, 2], dtype=dtype)
    offsets = torch.tensor([0, 0, 3, 6], dtype=dtype)
    mine = torch.randn(10, 4, generator=seeded(0)).requires_grad_()
    with recorded() as found:
        made = torch.compile(fn, backend="torchair")(mine, index, offsets)
        got = torch.autograd.grad(made, mine)
    want = torch.autograd.grad(fn(mine, index, offsets), mine)
    torch.testing.assert_close(got, want)
    assert not hosts_of(found)


@pytest.mark.parametrize("op", [torch.tril_indices, torch.triu_indices])
def test_indices_of_triangles(op):
    def fn(x):
        rows = [op(m, n, k, device=x.device) for m, n, k in sizes]
        return rows, x[:, rows[0][0], rows[0][1]] * 2

    sizes = list(itertools.product((4, 5), (4, 7), (-1, 0, 2)))
    with recorded() as found:
        check(fn, torch.randn(3, 4, 4))
    assert not hosts_of(found)
