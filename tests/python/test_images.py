"""Channels-last order of HOST nodes (torchair.images), tried on the CPU: graphs
are marked here as those of a GPU are, and have no kernels of such operators."""

import copy

import pytest
import torch
from helpers import assert_same, compiled
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from torchair import backend, cuda, images
from torchair.sizes import Unexpressible

pytestmark = pytest.mark.host("it plays a GPU on the CPU")
HOSTS = frozenset(
    {
        name + gradient
        for name in ("convolution", "avg_pool2d")
        for gradient in ("", "_backward")
    }
)
TEXT_GRAPH = 0


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(images, "is_on_gpu", lambda gm: True)
    monkeypatch.setattr(cuda, "until_made", lambda make: make(HOSTS))
    torch._dynamo.reset()
    backend.records.clear()


class Seen:
    """Of every convolution that runs: are its image and result in order?"""

    def __init__(self, monkeypatch):
        self.orders = []
        last, dense = images._last, images._dense

        def weights(x):
            if isinstance(x, torch.Tensor) and x.dim() == 4:
                form = torch.channels_last
                self.orders.append(x.is_contiguous(memory_format=form))
            return last(x)

        def image(x):
            self.orders.append(x.is_contiguous())
            return dense(x)

        monkeypatch.setattr(images, "_last", weights)
        monkeypatch.setattr(images, "_dense", image)


class Block(nn.Module):
    def __init__(self, channels=8, bias=True, groups=1):
        super().__init__()
        self.one = nn.Conv2d(channels, 12, 3, padding=1, bias=bias)
        self.norm = nn.BatchNorm2d(12)
        self.two = nn.Conv2d(12, channels, 1, groups=groups)
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        y = functional.relu(self.norm(self.one(x)))
        y = self.two(functional.max_pool2d(y, 3, 1, 1))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        y = torch.cat([y, functional.avg_pool2d(x, 3, 1, 1)], 1)
        return y[:, :8] + x, y.flatten(1)


def graph():
    (record,) = [r for r in backend.records if not r.fallback]
    return record.program().text(TEXT_GRAPH)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_block(dtype, bias):
    model = Block(bias=bias).eval().to(dtype)
    x = torch.randn(2, 8, 10, 6).to(dtype)
    assert_same(compiled(model)(x), model(x))
    assert "[2, 10, 6, 12] = host" in graph()  # [N, H, W, C]


@torch.no_grad()
def test_what_lies_between_is_not_turned(monkeypatch):
    seen = Seen(monkeypatch)
    model = Block().eval()
    x = torch.randn(2, 8, 10, 6)
    fn = compiled(model)
    fn(x)
    seen.orders.clear()
    fn(x)
    images_of_x = 2  # the model's input comes as it is
    assert seen.orders.count(False) == images_of_x
    assert len(seen.orders) == 3 * 2 + 1  # convolutions, a mean


class Normed(nn.Module):
    """Its norms are no pointwise nodes, which would follow the order."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(2))
        self.two = nn.Conv2d(8, 8, 3, padding=1)
        self.three = nn.Conv2d(8, 8, 1)
        self.row = nn.LayerNorm(8)
        self.line = nn.Linear(8, 8)

    def forward(self, x):
        x = self.one(x)
        y = self.two(functional.silu(self.norms[0](x)))
        z = self.line(self.row(y.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        y = y + functional.silu(self.norms[1](z + x))
        return self.three(y) + y


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regions_write_what_is_read_so(monkeypatch, dtype):
    seen = Seen(monkeypatch)
    model = Normed().eval().to(dtype)
    x = torch.randn(2, 3, 6, 5).to(dtype)
    fn = compiled(model)
    assert_same(fn(x), model(x))
    if dtype == torch.float64:
        assert not seen.orders
        return
    seen.orders.clear()
    fn(x)
    assert seen.orders.count(False) == 1  # the model's input


@torch.no_grad()
@pytest.mark.parametrize("groups", [8, 4])
@pytest.mark.parametrize(
    ("dtype", "batch", "last"),
    [
        (torch.bfloat16, 2, True),
        (torch.float32, 2, False),
        (torch.float32, 8, True),
    ],
)
def test_groups(groups, dtype, batch, last):
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1, groups=groups), nn.Conv2d(8, 6, 1)
    )
    model.to(dtype)
    x = torch.randn(batch, 8, 10, 6).to(dtype)
    assert_same(compiled(model)(x), model(x))
    assert (f"[{batch}, 10, 6, 8] = host" in graph()) == last


@torch.no_grad()
@pytest.mark.parametrize(
    "how",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3)},
        {"kernel_size": 3, "stride": (1, 2), "padding": (1, 0)},
        {"kernel_size": 2, "dilation": 2, "ceil_mode": True, "stride": 3},
    ],
)
def test_largest_of_windows(how):
    conv = nn.Conv2d(4, 8, 3)

    def fn(x):
        y = functional.max_pool2d(conv(x), **how)
        return torch.relu(y - 1)

    x = torch.randn(2, 4, 11, 13)
    x[0, :, 4, 4] = float("nan")
    assert_same(compiled(fn)(x), fn(x))
    assert "= air::max_pool_last(" in graph()


def patches_of(dtype, bias, turned):
    conv = nn.Conv2d(3, 20, (4, 2), (4, 2), bias=bias).to(dtype)
    x = torch.randn(2, 3, 12, 10).to(dtype)
    order = torch.channels_last if turned else torch.contiguous_format
    return conv.to(memory_format=order), x.to(memory_format=order)


@torch.no_grad()
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_patches_are_a_product(dtype, bias, turned):
    conv, x = patches_of(dtype, bias, turned)

    def fn(x):
        return conv(x).flatten(2).transpose(1, 2) * 2

    torch.testing.assert_close(compiled(fn)(x), fn(x))
    assert "host" not in graph()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_patches_are_products(dtype, bias, turned):
    conv, x = patches_of(dtype, bias, turned)
    x.requires_grad_()

    def step(fn):
        x.grad = None
        conv.zero_grad()
        y = fn(x)
        y.square().sum().backward()
        return [y, x.grad, *(p.grad for p in conv.parameters())]

    for got, want in zip(step(compiled(conv)), step(conv), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
        assert got.stride() == want.stride()
    for record in backend.records:
        assert "host" not in record.program().text(TEXT_GRAPH)


@torch.no_grad()
@pytest.mark.parametrize(
    ("how", "dtype"),
    [
        ({"kernel_size": 5, "stride": 5}, torch.bfloat16),  # a remainder
        ({"kernel_size": 4, "stride": 2}, torch.bfloat16),
        ({"kernel_size": 4, "stride": 4, "padding": 2}, torch.bfloat16),
        ({"kernel_size": 4, "stride": 4, "groups": 3}, torch.bfloat16),
        ({"kernel_size": 4, "stride": 4}, torch.float64),
    ],
)
def test_what_are_no_patches(how, dtype):
    conv = nn.Conv2d(3, 6, **how).to(dtype)
    x = torch.randn(2, 3, 12, 12).to(dtype)
    assert_same(compiled(conv)(x), conv(x))
    assert "host" in graph()


@torch.no_grad()
def test_other_results_keep_their_order(monkeypatch):
    """Attention leaves the heads of a row side by side."""
    real = images._order
    monkeypatch.setattr(
        images, "_order", lambda node, r, place: real(node, r, cuda.PLACE)
    )
    monkeypatch.setattr(
        cuda, "until_made", lambda make: make(frozenset({"composite"}))
    )

    def fn(q, k):
        y = functional.scaled_dot_product_attention(q, k, k)
        return torch.sin(y).transpose(1, 2).flatten(2) * 2

    q, k = (torch.randn(2, n, 3, 8).transpose(1, 2) for n in (5, 7))
    assert_same(compiled(fn)(q, k), fn(q, k))
    assert "[2, 5, 3, 8] = host" in graph()


@torch.no_grad()
def test_changing_sizes():
    model = Block().eval()
    fn = compiled(model, dynamic=True)
    for n, h in ((2, 10), (3, 7), (1, 9)):
        x = torch.randn(n, 8, h, 6)
        assert_same(fn(x), model(x))


@torch.no_grad()
def test_images_in_that_order_and_indices():
    conv = nn.Conv2d(4, 8, 3)

    def fn(x):
        y, at = functional.max_pool2d_with_indices(conv(x), 2)
        return y.neg(), at

    x = torch.randn(2, 4, 9, 8).to(memory_format=torch.channels_last)
    got, want = compiled(fn)(x), fn(x)
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w)


@torch.no_grad()
@pytest.mark.parametrize(
    ("model", "mode"),
    [
        (Block(groups=4), "max-autotune"),  # of few images
        (Block(), "reduce-overhead"),  # eager's own kernels
        (Block().double(), "max-autotune"),
    ],
)
def test_what_is_left_alone(model, mode):
    x = torch.randn(2, 8, 10, 6).to(model.one.weight.dtype)
    model.eval()
    assert_same(compiled(model, mode)(x), model(x))
    assert "[2, 10, 6, 12] = host" not in graph()


class Trained(nn.Module):
    def __init__(self, groups=1):
        super().__init__()
        self.one = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(12) for _ in range(2))
        self.two = nn.Conv2d(12, 12, 3, padding=1, groups=groups)
        self.three = nn.Conv2d(12, 8, 1)

    def forward(self, x):
        y = functional.relu(self.norms[0](self.one(x)))
        y = functional.max_pool2d(y, 3, 2, 1)
        y = functional.relu(self.norms[1](self.two(y)) + y)
        return functional.avg_pool2d(self.three(y), 2), y


def train(model, fn, x):
    model.zero_grad()
    first, second = fn(x)
    (first.square().sum() + second.sum()).backward()
    return [first, second, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("turned", [False, True])
def test_a_step_of_training(monkeypatch, turned):
    """What is kept lies in the order in which gradients read it."""
    seen = Seen(monkeypatch)
    model = Trained()
    x = torch.randn(4, 8, 10, 6)
    if turned:
        model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
    fn = compiled(model)
    train(model, fn, x)
    seen.orders.clear()
    got = train(model, fn, x)
    # x, for each, a result that is kept, and the gradient of one
    assert seen.orders.count(False) == (0 if turned else 4)
    again = copy.deepcopy(model)
    for g, w in zip(got, train(again, again, x), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
    texts = [r.program().text(TEXT_GRAPH) for r in backend.records]
    for kind in ("convolution_backward", "air::max_pool_last_backward"):
        assert any(kind in text for text in texts)


class Looks(nn.Module):
    """Places of an image look at each other."""

    def __init__(self):
        super().__init__()
        self.one = nn.Conv2d(8, 12, 3, padding=1)
        self.three = nn.Linear(12, 36)
        self.two = nn.Conv2d(12, 8, 3, padding=1)

    def forward(self, x):
        x = torch.sigmoid(self.one(x)) * 2
        rows = self.three(x.flatten(2).transpose(1, 2))
        q, k, v = (
            t.unflatten(2, (3, 4)).transpose(1, 2) for t in rows.chunk(3, 2)
        )
        y = torch.softmax(q @ k.mT, -1) @ v
        y = y.transpose(1, 2).flatten(2).transpose(1, 2).view_as(x)
        return self.two(torch.cat([x, torch.tanh(y)], 1)[:, 3:15]), x.sum()


def test_heads_of_attention_are_no_images(monkeypatch):
    turned = []
    real = images._turn_result

    def turn(node, output, order):
        turned.append(tuple(node.meta["val"].shape))
        return real(node, output, order)

    monkeypatch.setattr(images, "_turn_result", turn)
    model = Looks()
    x = torch.randn(2, 8, 6, 5)
    again = copy.deepcopy(model)
    got = train(model, compiled(model), x)
    for g, w in zip(got, train(again, again, x), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
    assert turned and set(turned) <= {(2, 12, 6, 5), (2, 24, 6, 5)}


ATEN = torch.ops.aten
ATTENTION = ATEN._scaled_dot_product_cudnn_attention
GRADIENT = ATEN._scaled_dot_product_cudnn_attention_backward


def attention(x):
    """A forward that keeps all results of attention; a backward of its own."""
    found = ATTENTION.default(x, x, x, None, True, 0.0, False)
    return found[0].sum(), found[0], found[1]


def gradient(x, out, sums):
    rest = (sums, sums, sums, None, None, None, 6, 6, 0.0, False)
    return GRADIENT.default(x, x, x, x, out, *rest)[0]


def fake_graph(fn, names, *shapes):
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = [torch.empty(s, dtype=torch.bfloat16) for s in shapes]
        graph = make_fx(fn)(*found)
    for node, name in zip(
        graph.graph.find_nodes(op="placeholder"), names, strict=False
    ):
        node.name = name
    return graph


def test_attention_is_kept_as_its_gradient_reads_it():
    sizes = (2, 4, 6, 16)
    forward = fake_graph(attention, ["x"], sizes)
    (output,) = forward.graph.find_nodes(op="output")
    names = ["x", *(n.name for n in output.args[0][1:])]
    backward = fake_graph(gradient, names, sizes, sizes, (2, 4, 6, 1))
    images.keep_in_order(forward, backward, 1)
    kept = output.args[0][1].meta["val"]
    assert kept.shape == (2, 6, 4, 16) and kept.is_contiguous()
    assert output.args[0][2].name == names[2]
    (node,) = backward.graph.find_nodes(
        op="call_function", target=GRADIENT.default
    )
    read = node.args[4].meta["val"]
    assert read.shape == sizes and read.stride() == (384, 16, 64, 1)
    assert node.args[4].args[0].meta["val"].shape == kept.shape


def test_what_several_gpus_keep_is_left_alone(monkeypatch):
    def refuse(gm):
        raise Unexpressible("tensors are on several GPUs")

    monkeypatch.setattr(images, "is_on_gpu", refuse)
    forward = fake_graph(attention, ["x"], (2, 4, 6, 16))
    (output,) = forward.graph.find_nodes(op="output")
    kept = list(output.args[0])
    images.keep_in_order(forward, forward, 1)
    assert list(output.args[0]) == kept


@pytest.mark.parametrize("sizes", [((4, 10, 6), (3, 8, 8), (2, 12, 7))])
def test_training_with_changing_sizes(sizes):
    model = Trained()
    again = copy.deepcopy(model)
    fn = compiled(model, dynamic=True)
    for n, h, w in sizes:
        x = torch.randn(n, 8, h, w)
        got, want = train(model, fn, x), train(again, again, x)
        for g, e in zip(got, want, strict=True):
            torch.testing.assert_close(g, e, rtol=1e-4, atol=1e-4)


def test_training_of_few_images_with_groups_is_left_alone(monkeypatch):
    seen = Seen(monkeypatch)
    model = Trained(groups=3)
    x = torch.randn(2, 8, 10, 6)
    again = copy.deepcopy(model)
    got = train(model, compiled(model), x)
    for g, w in zip(got, train(again, again, x), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4)
    assert not seen.orders


def test_training_with_eagers_kernels_is_left_alone(monkeypatch):
    seen = Seen(monkeypatch)
    model = Trained()
    train(model, compiled(model, "reduce-overhead"), torch.randn(2, 8, 10, 6))
    assert not seen.orders


def test_training_with_constant_norms():
    model = Block().eval()
    x = torch.randn(2, 8, 10, 6)
    got, want = compiled(model)(x), model(x)
    assert_same(got, want)
    sum(g.sum() for g in got).backward()
    assert all(p.grad is not None for p in model.parameters())
