"""make_graphed_callables against the eager callables."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same

from torchair import npu
from torchair.npu import pools


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.gelu(self.norm(self.first(x))))


def train(module, data, targets):
    opt = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for x, y in zip(data, targets, strict=True):
        opt.zero_grad(set_to_none=True)
        loss = F.mse_loss(module(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return losses


def test_training_a_module():
    mine = Net()
    theirs = copy.deepcopy(mine)
    data, targets = torch.randn(5, 4, 6), torch.randn(5, 4, 3)
    graphed = npu.make_graphed_callables(mine, (torch.randn(4, 6),), 0)
    assert graphed is mine
    assert_same(train(graphed, data, targets), train(theirs, data, targets))
    assert_same(dict(mine.state_dict()), dict(theirs.state_dict()))
    before = mine.norm.num_batches_tracked.clone()
    mine.eval()
    theirs.eval()
    assert_same(mine(data[0]).detach(), theirs(data[0]).detach())
    assert torch.equal(mine.norm.num_batches_tracked, before)


def test_several_callables_in_one_pool():
    torch.manual_seed(1)
    a, b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    theirs = copy.deepcopy((a, b))

    def loss(y, t):
        return ((y - t) ** 2).mean()

    x = torch.randn(3, 4)
    sample = (
        (x.clone(),),
        (torch.randn(3, 8, requires_grad=True),),
        (torch.randn(3, 2, requires_grad=True), torch.randn(3, 2)),
    )
    handle = npu.graph_pool_handle()
    ga, gb, gl = npu.make_graphed_callables((a, b, loss), sample, pool=handle)
    assert ga is a and gb is b
    assert pools.statistics()[handle]["graphs"] == 6
    for _ in range(3):
        x, t = torch.randn(3, 4), torch.randn(3, 2)
        got = gl(gb(ga(x).relu()), t)
        want = loss(theirs[1](theirs[0](x).relu()), t)
        got.backward()
        want.backward()
        assert_same(got.detach(), want.detach())
    for p, q in zip(
        [*a.parameters(), *b.parameters()],
        [*theirs[0].parameters(), *theirs[1].parameters()],
        strict=True,
    ):
        assert_same(p.grad, q.grad)


def test_gradients_of_inputs_and_nested_arguments():
    def fn(pair, z):
        return {"sum": pair[0] * z, "rest": [pair[1].sin()]}

    def args():
        torch.manual_seed(5)
        x, y, z = (torch.randn(3, requires_grad=True) for _ in range(3))
        return (x, y), z

    graphed = npu.make_graphed_callables(fn, args())
    torch.manual_seed(9)
    for _ in range(2):
        (x, y), z = args()
        (u, v), w = args()
        got, want = graphed((x, y), z), fn((u, v), w)
        assert_same(got["sum"].detach(), want["sum"].detach())
        (got["sum"].sum() + 2 * got["rest"][0].sum()).backward()
        (want["sum"].sum() + 2 * want["rest"][0].sum()).backward()
        assert_same([x.grad, y.grad, z.grad], [u.grad, v.grad, w.grad])


def test_arguments_are_copied_into_the_sample_ones():
    sample = torch.ones(3)
    graphed = npu.make_graphed_callables(lambda x: x * 2, (sample,))
    assert graphed(torch.full((3,), 4.0)).tolist() == [8.0] * 3
    assert sample.tolist() == [4.0] * 3
    sample.fill_(5)
    assert graphed(sample).tolist() == [10.0] * 3


def test_warm_up_runs_the_callable():
    calls = []

    def fn(x):
        calls.append(npu.is_current_stream_capturing())
        assert npu.current_stream() != npu.default_stream()
        return x + 1

    npu.make_graphed_callables(fn, (torch.ones(2),), num_warmup_iters=2)
    assert calls == [False, False, True]


def test_unused_inputs():
    def fn(x, y):
        return x * 2

    def sample():
        return tuple(torch.randn(3, requires_grad=True) for _ in range(2))

    with pytest.raises(RuntimeError, match="unused|not to have been used"):
        npu.make_graphed_callables(fn, sample())
    graphed = npu.make_graphed_callables(fn, sample(), allow_unused_input=True)
    x, y = sample()
    graphed(x, y).sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and y.grad is None


def test_results_without_gradients():
    graphed = npu.make_graphed_callables(
        lambda x: (x * 2, x.argmax()), (torch.randn(4, requires_grad=True),)
    )
    x = torch.tensor([1.0, 5.0, 2.0, 3.0], requires_grad=True)
    y, i = graphed(x)
    assert i.item() == 1 and not i.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def test_inference_only():
    graphed = npu.make_graphed_callables(lambda x: x + 1, (torch.ones(2),))
    y = graphed(torch.zeros(2))
    assert y.tolist() == [1.0, 1.0] and not y.requires_grad


def test_random_numbers_go_on():
    graphed = npu.make_graphed_callables(
        lambda x: F.dropout(x, 0.5), (torch.ones(64),)
    )
    torch.manual_seed(3)
    got = [graphed(torch.ones(64)).clone() for _ in range(2)]
    torch.manual_seed(3)
    want = [F.dropout(torch.ones(64), 0.5) for _ in range(2)]
    assert_same(got, want)
    assert not torch.equal(*got)


# ---- errors ----


def test_only_tensors():
    with pytest.raises(TypeError, match="sample_args must be tensors"):
        npu.make_graphed_callables(lambda x, n: x, (torch.ones(2), 3))
    with pytest.raises(TypeError, match="results must be tensors"):
        npu.make_graphed_callables(lambda x: (x + 1, 3), (torch.ones(2),))


def test_wrong_calls():
    graphed = npu.make_graphed_callables(lambda x: x + 1, (torch.ones(2),))
    with pytest.raises(TypeError, match="arguments it was captured with"):
        graphed(torch.ones(2), torch.ones(2))
    with pytest.raises(RuntimeError, match=r"captured was .*\[2\]"):
        graphed(torch.ones(3))
    with pytest.raises(RuntimeError, match="argument 0"):
        graphed(torch.ones(2, dtype=torch.float64))


def test_counts_must_match():
    with pytest.raises(ValueError, match="2 callables, but 1"):
        npu.make_graphed_callables((torch.sin, torch.cos), ((torch.ones(2),),))


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m.register_forward_hook(lambda *a: None),
        lambda m: m.register_forward_pre_hook(lambda *a: None),
        lambda m: m.register_full_backward_hook(lambda *a: None),
    ],
)
def test_modules_with_hooks(register):
    module = torch.nn.Linear(2, 2)
    register(module)
    with pytest.raises(RuntimeError, match="hooks"):
        npu.make_graphed_callables(module, (torch.ones(1, 2),))


def test_buffers_with_gradients():
    module = torch.nn.Linear(2, 2)
    module.register_buffer("b", torch.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="buffers"):
        npu.make_graphed_callables(module, (torch.ones(1, 2),))


def test_autocast_with_its_cache():
    module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        npu.make_graphed_callables(module, (x,))
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(RuntimeError, match="cache_enabled=False"),
    ):
        npu.make_graphed_callables(module, (x,))
