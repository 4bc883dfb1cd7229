"""What eager refuses in integer arithmetic."""

import pytest
import torch
from helpers import DEVICE

REFUSED = {
    "floor_divide": lambda x: torch.floor_divide(x, 0) + 1,
    "floor": lambda x: torch.div(x, 0, rounding_mode="floor").sum(),
    "trunc": lambda x: torch.div(x, 0, rounding_mode="trunc"),
    "remainder": lambda x: x % 0 * 2,
    "fmod": lambda x: torch.fmod(x, 0),
    "pow": lambda x: (x**-1).sum(),
}


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU divides without a word")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("name", REFUSED)
def test_eager_raises_and_so_do_we(name, mode):
    fn, x = REFUSED[name], torch.tensor([7, -7, 3])
    with pytest.raises(RuntimeError) as eager:
        fn(x)
    run = torch.compile(fn, backend="torchair", mode=mode)
    with pytest.raises(RuntimeError) as ours:
        run(x)
    assert str(ours.value).startswith(str(eager.value).split("\n")[0])
    x = x.double()  # a float is divided
    torch.testing.assert_close(run(x), fn(x), equal_nan=True)


DIVIDED = {
    "floor_divide": lambda x, y: (x // y).sum(0),
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc") + x,
    "remainder": lambda x, y: x % y,
    "fmod": lambda x, y: torch.fmod(x, y).float().softmax(-1),
    "chosen": lambda x, y: torch.where(y != 0, x // y, 0),
    "of a number": lambda x, y: 7 // y + x,
}


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU divides without a word")
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("name", DIVIDED)
def test_a_zero_among_the_divisors(name, mode, dtype):
    """One of 77 elements; the next call is not touched by it."""
    fn = DIVIDED[name]
    x, y = torch.arange(77, dtype=dtype), (torch.arange(77) % 9 + 1).to(dtype)
    run = torch.compile(fn, backend="torchair", mode=mode)
    for place in (0, 35, 76):
        torch.testing.assert_close(run(x, y), fn(x, y))
        zero = y.clone()
        zero[place] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            fn(x, zero)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(x, zero)
    torch.testing.assert_close(run(x, y), fn(x, y))
