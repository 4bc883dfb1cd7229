"""nn.Modules, graph breaks, autocast, inputs of other kinds, entry points."""

import copy

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_same, check, compiled, fallbacks, recorded
from torch import nn


class Block(nn.Module):
    """A transformer block with a mask."""

    def __init__(self, d=32, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = (
            y.view(b, t, self.heads, -1).transpose(1, 2)
            for y in self.qkv(self.n1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


MODULES = {
    "linear": (lambda: nn.Linear(8, 5), (3, 8)),
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1)
        ),
        (5, 8),
    ),
    "block": (Block, (2, 7, 32)),
    "conv_bn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        (2, 3, 9, 9),
    ),
    "gru": (lambda: nn.GRU(6, 5, batch_first=True), (2, 4, 6)),
    "group_norm": (lambda: nn.GroupNorm(2, 6), (3, 6, 5)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, batch_first=True
        ),
        (2, 5, 16),
    ),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_module(name, train):
    make, shape = MODULES[name]
    mine = make().train(train)
    theirs = copy.deepcopy(mine)
    run = compiled(mine)
    for _ in range(2):
        x = torch.randn(shape)
        with torch.no_grad(), recorded() as records:
            assert_same(run(x), theirs(x))
        assert not fallbacks(records)
    assert_same(dict(mine.state_dict()), dict(theirs.state_dict()))


@pytest.mark.parametrize("mask", ["none", "float", "bool"])
def test_attention_is_one_node(mask):
    block = Block().eval()
    m = {
        "none": None,
        "float": torch.randn(7, 7),
        "bool": torch.ones(7, 7).tril().bool(),
    }[mask]
    with torch.no_grad(), recorded():
        check(block, torch.randn(2, 7, 32), m)


def test_module_keyword_and_dict_inputs():
    class Net(nn.Module):
        def forward(self, batch, scale=1.0, flag=None, n=2):
            y = batch["x"] * scale + batch["y"][0]
            return {"out": y[:n] if flag is None else y}

    net = Net()
    run = compiled(net)
    batch = {"x": torch.randn(4), "y": (torch.randn(4), 3)}
    for kwargs in (
        {},
        {"scale": 2.5},
        {"flag": True},
        {"n": 3},
        {"scale": 0.5, "n": 1},
    ):
        assert_same(run(batch, **kwargs), net(batch, **kwargs))


def test_graph_break():
    seen = []

    def fn(x):
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        seen.append(1)
        return y * x

    with recorded() as records:
        check(fn, torch.randn(5))
    assert len(records) == 2
    assert len(seen) == 2


def test_data_dependent_branch():
    def fn(x):
        return x * 2 if x.sum() > 0 else x - 1

    run = compiled(fn)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(run(x), fn(x))


@pytest.mark.parametrize("train", [False, True])
def test_autocast(train):
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    run = compiled(net)
    x = torch.randn(8, 16)
    with (
        torch.set_grad_enabled(train),
        torch.autocast(x.device.type, dtype=torch.bfloat16),
    ):
        got, want = run(x), net(x)
        assert got.dtype == want.dtype == torch.bfloat16
        assert_same(got, want)
        if train:
            got.float().sum().backward()


def test_changed_weights_are_seen():
    net = nn.Linear(6, 3)
    run = compiled(net)
    x = torch.randn(4, 6)
    with torch.no_grad():
        assert_same(run(x), net(x))
        net.weight.mul_(3)
        assert_same(run(x), net(x))
        net.weight.data = torch.randn(3, 6)
        assert_same(run(x), net(x))
        net.weight = nn.Parameter(torch.randn(3, 6))
        assert_same(run(x), net(x))
        net.load_state_dict(
            {"weight": torch.randn(3, 6), "bias": torch.randn(3)}
        )
        assert_same(run(x), net(x))


def test_buffers_are_updated():
    mine = nn.BatchNorm1d(5).train()
    theirs = copy.deepcopy(mine)
    run = compiled(mine)
    for _ in range(3):
        x = torch.randn(8, 5)
        assert_same(run(x), theirs(x))
    assert_same(mine.running_mean, theirs.running_mean)
    assert_same(mine.num_batches_tracked, theirs.num_batches_tracked)


def test_fullgraph_and_inference_mode():
    net = Block().eval()
    run = compiled(net, fullgraph=True)
    x = torch.randn(2, 5, 32)
    with torch.inference_mode():
        assert_same(run(x), net(x))
    with torch.no_grad():
        assert_same(run(x), net(x))


def test_module_compile_method():
    from helpers import make_backend

    net = Block().eval()
    x = torch.randn(2, 5, 32)
    want = net(x)
    net.compile(backend=make_backend())
    assert_same(net(x), want)


def test_control_flow_operator():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,))

    run = compiled(fn, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(run(x), fn(x))


def test_model_in_float16_and_bfloat16():
    for dtype in (torch.bfloat16, torch.float16):
        net = Block().eval().to(dtype)
        with torch.no_grad():
            x = torch.randn(2, 6, 32).to(dtype)
            torch.testing.assert_close(
                compiled(net)(x), net(x), rtol=5e-2, atol=5e-2
            )
        torch._dynamo.reset()
