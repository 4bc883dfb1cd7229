"""Strides of what operators that PyTorch computes are given: a kernel may read
memory as it lies."""

import pytest
import torch
from helpers import assert_same, compiled, seeded

SEEN: list[tuple[int, ...]] = []


@torch.library.custom_op("air_layouts::look", mutates_args=())
def look(x: torch.Tensor) -> torch.Tensor:
    SEEN.append(x.stride())
    return x.clone()


look.register_fake(lambda x: torch.empty_like(x))


@torch.library.custom_op("air_layouts::count", mutates_args=("x",))
def count(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op(
    "air_layouts::any_will_do",
    mutates_args=(),
    tags=(torch.Tag.flexible_layout,),
)
def any_will_do(x: torch.Tensor) -> torch.Tensor:
    return x * 2


any_will_do.register_fake(lambda x: torch.empty_like(x))


CASES = {
    "contiguous": lambda x: look(x.t().contiguous()),
    "a view of it": lambda x: look(x.t().contiguous().unsqueeze(1)),
    "turned": lambda x: look(x.t()),
    "made in turned order": lambda x: look(x.t() + 1),
    "a part": lambda x: look((x * 2)[:, 1:3]),
    "a part, contiguous": lambda x: look((x * 2)[:, 1:3].contiguous()),
    "one of parts": lambda x: look((x * 2).chunk(2, 1)[1].contiguous()),
    "broadcast": lambda x: look(x[:, :1].expand(4, 6)),
    "broadcast, contiguous": lambda x: look(x[:, :1].expand(4, 6).contiguous()),
    "channels last": lambda x: look(
        x.view(1, 2, 2, 6).contiguous(memory_format=torch.channels_last)
    ),
    "of another": lambda x: look(look(x.t()) + 1),
}


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_strides_are_those_of_eager(name, dynamic, mode):
    fn, x = CASES[name], torch.randn(4, 6, generator=seeded(0))
    net = compiled(fn, mode, dynamic=dynamic)
    net(x)
    SEEN.clear()
    want = fn(x)
    wanted = SEEN.copy()
    SEEN.clear()
    assert_same(net(x), want)
    assert wanted == SEEN


def test_what_is_written_is_no_copy():
    def fn(x):
        y = (x.t() + 1).t().contiguous()
        count(y)
        return y * 2

    x = torch.randn(4, 6, generator=seeded(3))
    assert_same(compiled(fn)(x), fn(x))


def test_any_will_do():
    x = torch.randn(4, 6, generator=seeded(1))
    assert_same(compiled(lambda x: any_will_do(x.t() + 1))(x), (x.t() + 1) * 2)


@pytest.mark.host("its kernel is oneDNN's")
def test_a_kernel_of_torch_that_trusts_in_copies():
    """nn.LSTM as Dynamo traces it with allow_rnn."""
    lstm = torch.nn.LSTM(8, 16, batch_first=True)
    x = torch.randn(3, 5, 8, generator=seeded(2))

    def fn(x, *weights):
        h = torch.zeros(1, 3, 16)
        rows = x.transpose(0, 1).contiguous()
        return torch.ops.aten.mkldnn_rnn_layer.default(
            *(rows, *weights, h, h, False, [], 2, 16, 1),
            *(True, False, False, False),
        )[0].transpose(0, 1)

    with torch.no_grad():
        got = compiled(fn)(x, *lstm.parameters())
        torch.testing.assert_close(got, lstm(x)[0])


@pytest.mark.host("its kernel is oneDNN's")
@torch._dynamo.config.patch(allow_rnn=True)
def test_a_layer_that_torch_traced_for_inference_says_so():
    """It looks at the input's gradient, not at those of the parameters."""
    lstm = torch.nn.LSTM(8, 16, batch_first=True)
    x = torch.randn(3, 5, 8, generator=seeded(2))
    with pytest.raises(TypeError, match="let the input require a gradient"):
        compiled(lstm)(x)
    torch._dynamo.reset()
    x.requires_grad_()
    wanted = torch.autograd.grad(lstm(x)[0].sum(), list(lstm.parameters()))
    found = torch.autograd.grad(
        compiled(lstm)(x)[0].sum(), list(lstm.parameters())
    )
    assert_same(found, wanted)
