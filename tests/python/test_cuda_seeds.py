"""Seeds of attention with dropout: how often a training step waits for them."""

import copy
import warnings

import pytest
import torch
from helpers import compiled as compile_with

from torchair import cuda_seeds

gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a GPU that torch sees"
)
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])


def says_captured(monkeypatch, captured):
    name = "is_current_stream_capturing"  # torch without CUDA has no such
    monkeypatch.setattr(torch.cuda, name, lambda: captured)


@pytest.fixture
def fetched(monkeypatch):
    """How many tensors were fetched at once, each time."""
    says_captured(monkeypatch, False)
    torch.set_default_device(None)  # a mode, under which each is called twice
    found, plain = [], torch.Tensor.cpu
    monkeypatch.setattr(
        torch.Tensor, "cpu", lambda x: found.append(x.numel()) or plain(x)
    )
    return found


def backward_of(layers, p=0.1):
    """A graph of gradients of attention: two inputs each are its seeds."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    for i in range(layers):
        seeds = [graph.placeholder(f"{name}_{i}") for name in ("seed", "off")]
        args = (*[x] * 7, *seeds, p, [True] * 4)
        graph.call_function(cuda_seeds.GRADIENT, args)
    graph.output((x,))
    return torch.fx.GraphModule({}, graph)


def run(args):
    """As a program: HOST nodes one after the other."""
    x, *seeds = args
    seen = []
    gradient = cuda_seeds.seeded(lambda *args, **_: seen.extend(args[7:9]))
    for i in range(0, len(seeds), 2):
        gradient(*[x] * 7, seeds[i], seeds[i + 1], 0.1, [True] * 4)
    return [int(s) for s in seen]


def test_a_backward_fetches_all_at_once(fetched):
    program = cuda_seeds.reading(backward_of(3), run)
    args = [torch.ones(4), *map(torch.tensor, [2**62, 4, 5, 8, -1, 12])]
    assert program(args) == [2**62, 4, 5, 8, -1, 12]
    assert fetched == [6]
    assert run(args) == [2**62, 4, 5, 8, -1, 12]  # nothing is known now
    assert fetched == [6, *[1] * 6]


def test_what_is_no_input_is_fetched_by_itself(fetched):
    other = torch.tensor(9)

    def program(args):
        return run([*args, other, other])

    made = cuda_seeds.reading(backward_of(1), program)
    args = [torch.ones(4), torch.tensor(1), torch.tensor(2)]
    assert made(args) == [1, 2, 9, 9]
    assert fetched == [2, 1, 1]


def test_a_failed_backward_leaves_nothing(fetched):
    def fail(args):
        raise ValueError

    made = cuda_seeds.reading(backward_of(1), fail)
    args = [torch.ones(4), torch.tensor(1), torch.tensor(2)]
    with pytest.raises(ValueError):
        made(args)
    run(args)
    assert fetched == [2, 1, 1]


def test_nothing_is_fetched_in_a_capture(monkeypatch, fetched):
    says_captured(monkeypatch, True)
    program = cuda_seeds.reading(backward_of(1), run)
    args = [torch.ones(4), torch.tensor(1), torch.tensor(2)]
    assert program(args) == [1, 2]
    assert fetched == []


def test_nothing_is_fetched_where_nothing_is_dropped():
    assert cuda_seeds.reading(backward_of(2, p=0.0), run) is run


def test_a_backward_without_attention_is_left_alone():
    assert cuda_seeds.reading(backward_of(0), run) is run


@pytest.mark.parametrize("number", [2**63 - 1, -5, True])
def test_a_number_gets_to_the_gpu(number):
    x = torch.tensor(number, device="cpu")
    got = cuda_seeds.on_gpu(x, torch.device("cpu"))
    assert got is not x
    assert got.dtype == x.dtype and torch.equal(got, x)


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.of = torch.nn.ModuleList(
            torch.nn.Linear(64, 192) for _ in range(3)
        )

    def forward(self, x):
        for layer in self.of:
            q, k, v = layer(x).unflatten(-1, (3, 4, 16)).unbind(-3)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
            y = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, None, 0.2
            )
            x = x + y.transpose(1, 2).flatten(2)
        return x


@gpu
@modes
def test_a_step_waits_once_more_than_eager(mode):
    """In float32, where torch's kernel has its seeds from the host."""
    torch.manual_seed(0)
    eager = Attention().cuda()
    ours = copy.deepcopy(eager)
    compiled = compile_with(ours, mode)
    x = torch.randn(4, 48, 64, device="cuda")
    for seed in range(4):
        waits = []
        for model, call in ((eager, eager), (ours, compiled)):
            model.zero_grad()
            torch.manual_seed(seed)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                try:
                    call(x).square().sum().backward()
                finally:
                    torch.cuda.set_sync_debug_mode("default")
            waits.append(sum("synchroniz" in str(w.message) for w in said))
        for p, q in zip(eager.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-4)
    assert waits[1] <= waits[0] + 1
