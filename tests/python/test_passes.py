"""What the passes promise, seen from Python: caches are written in place,
attention is one kernel, results keep their own memory."""

import contextlib

import pytest
import torch
from helpers import assert_same, check, compiled, copy_of

from torchair import backend


@contextlib.contextmanager
def recorded():
    """The programs made inside."""
    programs = []
    with backend.collect([], programs):
        yield programs


def text(programs):
    return programs[-1].text(0)  # AIR_TEXT_GRAPH


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(2, 4, 32, 8))

    def forward(self, x, at):
        raise NotImplementedError


class IndexCopy(Cache):
    def forward(self, x, at):
        self.k.index_copy_(2, at, x)
        return x @ self.k.mT


class IndexPut(Cache):
    def forward(self, x, at):
        self.k[:, :, at] = x
        return x @ self.k.mT


class Slices(Cache):
    def forward(self, x, at):
        self.k[:2, :, 3:4] = x
        return x @ self.k[:, :, :16].mT


class OneRow(Cache):
    def forward(self, x, at):
        self.k[1, 2, 5:6] = x[1, 2]
        return x @ self.k.mT


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("kind", [IndexCopy, IndexPut, Slices, OneRow])
def test_cache_is_not_copied(kind, mode):
    mine, theirs = kind(), kind()
    x, at = torch.randn(2, 4, 1, 8), torch.tensor([7])
    with torch.no_grad(), recorded() as programs:
        fn = compiled(mine, mode)
        for _ in range(3):
            assert_same(fn(x, at), theirs(x, at))
    assert_same(mine.k, theirs.k)
    assert "inplace" in text(programs)
    assert "copy_" not in text(programs)
    assert programs[-1].stats()["copies"] == 0
    assert "select_scatter" not in text(programs)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_old_contents_are_read_first(mode):
    def fn(cache, x, at):
        before = cache.sum(2)
        cache.index_copy_(2, at, x)
        return before, cache * 2

    check(
        fn,
        torch.randn(2, 4, 32, 8),
        torch.randn(2, 4, 1, 8),
        torch.tensor([3]),
        mode=mode,
    )


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_rows_move_within_a_tensor(mode):
    def fn(x):
        x[2:6] = x[0:4].clone()
        return x + 1

    check(fn, torch.randn(8, 16), mode=mode)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_update_of_a_matrix_from_its_transpose(mode):
    def fn(x):
        x.sub_(x.T * 0.5)
        return x.sum()

    check(fn, torch.randn(33, 33), mode=mode)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_momentum_update(mode):
    def fn(p, m, g):
        m.mul_(0.9).add_(g, alpha=0.1)
        p.addcmul_(m, g, value=-0.01)
        return p.norm()

    check(fn, *(torch.randn(40, 30) for _ in range(3)), mode=mode)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_results_do_not_share(mode):
    def fn(x):
        return x.exp(), x.exp(), x.clone(), (x + 0).clone()

    x = torch.randn(16)
    got = compiled(fn, mode)(x)
    got[0].zero_()
    got[2].zero_()
    assert_same(got[1], x.exp())
    assert_same(got[3], x)


def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize("shape", [(2, 4, 24, 16), (5, 24, 16)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_one_kernel(shape, masked):
    q, k, v = (torch.randn(shape) for _ in range(3))
    mask = torch.randn(24, 24) if masked else None
    with torch.no_grad(), recorded() as programs:
        got = compiled(attention)(*copy_of((q, k, v)), mask)
    assert_same(got, attention(q, k, v, mask))
    assert "scaled_dot_product_attention" in text(programs)


def test_grouped_attention_is_one_kernel():
    def fn(q, k, v):
        b, h, s, d = k.shape
        k, v = (
            t[:, :, None].expand(b, h, 3, s, d).reshape(b, 3 * h, s, d)
            for t in (k, v)
        )
        return attention(q, k, v)

    q, k, v = torch.randn(2, 6, 5, 16), *torch.randn(2, 2, 2, 24, 16)
    with torch.no_grad(), recorded() as programs:
        got = compiled(fn)(q, k, v)
    assert_same(got, fn(q, k, v))
    assert "enable_gqa=true" in text(programs)


def test_exact_mode_keeps_the_roundings_of_attention():
    q, k, v = (torch.randn(2, 4, 8, 16) for _ in range(3))
    with torch.no_grad(), recorded() as programs:
        compiled(attention, "reduce-overhead")(q, k, v)
    assert "scaled_dot_product_attention" not in text(programs)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
@pytest.mark.parametrize("dims", [None, (0, 1), (1, 2), (0, 2)])
def test_reduction_of_a_broadcast(dims, mode):
    def fn(x, w):
        return (x * w).sum(dims) if dims else (x * w).sum()

    check(fn, torch.randn(6, 10, 16), torch.randn(16), mode=mode)
    check(fn, torch.randn(6, 10, 16), torch.randn(10, 1), mode=mode)
