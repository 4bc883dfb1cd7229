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
