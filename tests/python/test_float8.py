"""float8: conversions bit by bit, and operators that only move such numbers."""

import pytest
import torch
from helpers import compiled, hosts, recorded

import torchair

FORMATS = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]
formats = pytest.mark.parametrize("dtype", FORMATS)
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
E4M3 = torch.float8_e4m3fn


def every_code(dtype):
    return torch.arange(256).to(torch.uint8).view(dtype)


def assert_bits(got, want):
    assert got.dtype == want.dtype
    if want.element_size() == 1:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def check(fn, *args, mode="max-autotune", left=()):
    """left: operators that stay with torch."""
    with torch.no_grad(), recorded() as records:
        got, want = compiled(fn, mode)(*args), fn(*args)
    if isinstance(want, torch.Tensor):
        got, want = [got], [want]
    for g, w in zip(got, want, strict=True):
        assert_bits(g, w)
    assert hosts(records) == list(left)


@modes
@formats
@pytest.mark.parametrize(
    "to", [torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
def test_every_code_is_what_torch_says(dtype, to, mode):
    check(lambda x: x.to(to), every_code(dtype), mode=mode)


def numbers():
    """Of all sizes, ties and their neighbours among them."""
    codes = [every_code(d).float() for d in FORMATS]
    finite = torch.cat([c[c.isfinite()] for c in codes])
    ties = (finite[1:] + finite[:-1]) / 2
    exact = torch.cat([finite, ties, ties * 2, ties / 1024])
    up, down = torch.tensor(float("inf")), torch.tensor(-float("inf"))
    near = [torch.nextafter(exact, up), torch.nextafter(exact, down)]
    rare = [464, 480, 61440, 65536, 240, 248, 256, 1e-45, 1e30, 3e38]
    rare += [0.0, float("inf"), float("nan")]
    rare = torch.tensor(rare)
    return torch.cat([exact, *near, rare, -rare])


@modes
@formats
@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_numbers_are_rounded_as_torch_does(dtype, source, mode):
    check(lambda x: x.to(dtype), numbers().to(source), mode=mode)


@formats
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_every_half_is_rounded_as_torch_does(dtype, half):
    bits = torch.arange(65536).to(torch.int16).view(half)
    check(lambda x: x.to(dtype), bits)


@formats
def test_from_a_format_to_another_and_from_integers(dtype):
    def fn(x, n):
        return [x.to(d) for d in FORMATS] + [n.to(dtype), (n > 0).to(dtype)]

    check(fn, every_code(dtype), torch.arange(-300, 300))


def scaled(x):
    scale = 448 / x.abs().amax()
    return (x * scale).clamp(-448, 448).to(E4M3), scale


def test_a_conversion_is_part_of_its_region():
    x = torch.randn(64, 32)
    check(scaled, x)
    (graph,) = torchair.explain(scaled, x).graphs
    assert len(graph.steps) == 2
    assert "float8_e4m3fn_code" in graph.steps[1]["label"]


@modes
def test_what_only_moves(mode):
    def fn(x, i):
        return [
            x.t(),
            x.t().contiguous(),
            x.view(torch.uint8) + 1,
            x.view(8, 8, 48)[2:5].flip(0),
            torch.cat([x, x[::2]]),
            torch.stack([x, x], 1),
            x[i],
            x.index_select(0, i),
            x.unsqueeze(0).expand(3, 64, 48).to(torch.float32).sum(0),
            *x.split(20),
        ]

    x = torch.randn(64, 48).to(E4M3)
    check(fn, x, torch.tensor([3, 1, 60, 7]), mode=mode)


@modes
def test_a_cache_is_written_in_place(mode):
    def fn(cache, k, i):
        cache[i] = k.to(cache.dtype)
        cache[5:9] = k.to(cache.dtype)
        return (cache.to(torch.bfloat16) * 2).sum(0)

    k, i = torch.randn(4, 48), torch.tensor([3, 1, 60, 7])
    ours, eagers = (torch.zeros(64, 48).to(E4M3) for _ in "12")
    with torch.no_grad(), recorded() as records:
        got = compiled(fn, mode)(ours, k, i)
    assert_bits(got, fn(eagers, k, i))
    assert_bits(ours, eagers)
    assert hosts(records) == []


def test_what_the_engine_does_not_do_is_torchs():
    """A write that converts, a name for bytes of another size."""

    def fn(x, y):
        return x.clone().copy_(y), y.view(E4M3), x == x

    x, y = torch.randn(4, 48).to(E4M3), torch.randn(4, 48)
    with torch.no_grad(), recorded() as records:
        for g, w in zip(compiled(fn)(x, y), fn(x, y), strict=True):
            assert_bits(g, w)
    assert "eq" in hosts(records)[-1]


def test_gradients_pass_a_conversion():
    def fn(x):
        return (x.to(E4M3).to(torch.float32) * 2).sum()

    ours, eagers = (torch.randn(8, 8, requires_grad=True) for _ in "12")
    eagers.data = ours.data.clone()
    compiled(fn)(ours).backward()
    fn(eagers).backward()
    assert_bits(ours.grad, eagers.grad)
