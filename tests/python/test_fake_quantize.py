"""Numbers as if they were quantised: as eager has them, specials too."""

import pytest
import torch
from helpers import check, recorded, seeded
from helpers import hosts as hosts_of

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def numbers(dtype):
    x = torch.randn(33, 7, 5, generator=seeded(0)) * 3
    specials = [float("nan"), float("inf"), -float("inf"), 3e4, -3e4]
    x[0, 0] = torch.tensor(specials)
    x[1, 0] = torch.tensor([0.05, 0.15, 0.25, -0.05, 1e4])
    return x.to(dtype)


def scales():
    return torch.rand(7, generator=seeded(1)) + 0.01


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_of_a_tensor(dtype, mode):
    op = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask
    with recorded() as found:
        for levels in ((3, -128, 127), (0, 0, 15)):
            fn = lambda x, levels=levels: op(x, 0.1, *levels)  # noqa: E731
            check(fn, numbers(dtype), mode=mode)
    assert not hosts_of(found)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("on", [0, 1])
def test_by_tensors(dtype, on):
    aten = torch.ops.aten
    op = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams

    def fn(x, scale, zero, on):
        return op(x, scale, zero, on, -8, 7)

    zero = torch.tensor([3], dtype=torch.int32)
    with recorded() as found:
        check(fn, numbers(dtype), torch.tensor([0.3]), zero, torch.tensor([on]))
    assert not hosts_of(found)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("zeros", [torch.int32, torch.float32])
def test_of_channels(dtype, zeros):
    op = torch.ops.aten.fake_quantize_per_channel_affine_cachemask

    def fn(x, scale, zero):
        return op(x, scale, zero, 1, 0, 200)

    zero = torch.arange(7).to(zeros) + (0 if zeros == torch.int32 else 0.5)
    with recorded() as found:
        check(fn, numbers(dtype), scales(), zero)
    assert not hosts_of(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_channels_with_many_levels(dtype):
    """Zero points that are floats: the sum with them is rounded once, to f32
    of any dtype, where its halves are few."""
    op = torch.ops.aten.fake_quantize_per_channel_affine_cachemask
    g = seeded(2)
    x = torch.randn(2000, 50, generator=g).to(dtype) * 3
    zero = torch.randint(0, 65536, (50,), generator=g) + 0.5
    scale = torch.rand(50, generator=g) * 1e-3 + 1e-6
    check(lambda *a: op(*a, 1, 0, 65535), x, scale, zero)


def test_gradients():
    def fn(x, scale, zero):
        a = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15)
        b = torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7)
        return (a * b).sum()

    x = numbers(torch.float32).nan_to_num(0, 9, -9)
    zero = torch.zeros(7, dtype=torch.int32)
    with recorded() as found:
        got, want = x.clone().requires_grad_(), x.clone().requires_grad_()
        torch.compile(fn, backend="torchair")(got, scales(), zero).backward()
        fn(want, scales(), zero).backward()
    torch.testing.assert_close(got.grad, want.grad)
    assert not hosts_of(found)


def test_too_many_integers():
    """More than f32 counts: torch's own."""
    x = numbers(torch.float32)
    check(
        lambda x: torch.fake_quantize_per_tensor_affine(
            x, 0.1, 3, -(2**30), 2**30
        ),
        x,
    )
