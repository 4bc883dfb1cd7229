"""aot_config_enable_joint_graph: one graph, and gradients as by backward()."""

import copy

import pytest
import torch
from helpers import assert_same, recorded
from torch import nn

import torchair


def joint(fn, index=0, **kwargs):
    made = torchair.CompilerConfig()
    made.experimental_config.aot_config_enable_joint_graph = True
    made.experimental_config.aot_config_output_loss_index = index
    return torch.compile(
        fn, backend=torchair.get_npu_backend(compiler_config=made), **kwargs
    )


def gradients(model):
    return {n: p.grad for n, p in model.named_parameters()}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 2)
        self.norm = nn.BatchNorm1d(8)
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, x, y):
        got = self.b(self.norm(self.a(x)).relu()) * self.frozen
        return (got - y).square().mean(), got


def test_gradients_and_results():
    mine, theirs = Net(), Net()
    theirs.load_state_dict(mine.state_dict())
    run = joint(mine)
    with recorded() as records:
        for step in range(3):
            x, y = torch.randn(5, 6), torch.randn(5, 2)
            loss, got = run(x, y)
            want = theirs(x, y)
            want[0].backward()
            assert_same(loss, want[0].detach())
            assert_same(got, want[1].detach())
            assert not loss.requires_grad and not got.requires_grad
            if step == 1:  # gradients add up until they are dropped
                mine.zero_grad()
                theirs.zero_grad()
    assert [r.kind for r in records] == ["joint"]
    assert not records[0].fallback
    assert mine.frozen.grad is None
    assert_same(gradients(mine), gradients(theirs))
    assert_same(dict(mine.named_buffers()), dict(theirs.named_buffers()))


def test_training_goes_the_same_way():
    mine = Net()
    theirs = copy.deepcopy(mine)
    mine_step = torch.optim.SGD(mine.parameters(), 0.1)
    their_step = torch.optim.SGD(theirs.parameters(), 0.1)
    run = joint(mine)
    for _ in range(4):
        x, y = torch.randn(5, 6), torch.randn(5, 2)
        mine_step.zero_grad()
        run(x, y)
        mine_step.step()
        their_step.zero_grad()
        theirs(x, y)[0].backward()
        their_step.step()
    for p, q in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert_same(p, q)


def test_another_result_is_the_loss():
    w = torch.randn(4, requires_grad=True)
    v = w.detach().clone().requires_grad_()

    def fn(x, w):
        return x * w, (x * w).sum()

    x = torch.randn(4)
    got = joint(fn, 1)(x, w)
    want = fn(x, v)
    want[1].backward()
    assert_same(got, tuple(t.detach() for t in want))
    assert_same(w.grad, v.grad)


def test_inputs_that_were_computed():
    """Gradients go on through what eager computed before."""
    w = torch.randn(4, requires_grad=True)
    joint(lambda h: (h * h).sum())(w * 3)
    assert_same(w.grad, 18 * w.detach())


def test_without_gradients_it_is_inference():
    model = Net()
    run = joint(model)
    x, y = torch.randn(5, 6), torch.randn(5, 2)
    with torch.no_grad(), recorded() as records:
        run(x, y)
    assert [r.kind for r in records] == ["inference"]
    assert all(p.grad is None for p in model.parameters())


def test_sizes_that_change():
    w = torch.randn(3, requires_grad=True)
    run = joint(lambda x, w: (x * w).sin().sum(), dynamic=True)
    for size in (2, 5, 7):
        w.grad = None
        v = w.detach().clone().requires_grad_()
        x = torch.randn(size, 3)
        (x * v).sin().sum().backward()
        run(x, w)
        assert_same(w.grad, v.grad)


@pytest.mark.parametrize(
    "fn, index, said",
    [
        (lambda x, w: (x * w).sum(), 1, "has 1 results"),
        (lambda x, w: x * w, 0, "no number"),
        (lambda x, w: ((x * w).sum(), x.sum()), 1, "no number"),
    ],
)
def test_what_is_no_loss(fn, index, said):
    w = torch.randn(3, requires_grad=True)
    with pytest.raises(Exception, match=f"loss_index.*{said}"):
        joint(fn, index)(torch.randn(3), w)
