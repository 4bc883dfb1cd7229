"""Tensors of device npu in eager mode, against the CPU."""

import copy
import io
import pickle
import warnings

import numpy
import pytest
import torch
from helpers import in_threads
from torch import nn
from torch.testing import assert_close

import torch_npu  # noqa: F401

F = nn.functional


def same(got, want):
    """A tensor of the device, equal to a CPU tensor bit for bit."""
    assert got.device == torch.device("npu:0")
    assert_close(got.cpu(), want, rtol=0, atol=0, equal_nan=True)


def test_names():
    x = torch.ones(2, 3)
    for y in (
        x.npu(),
        x.npu(0),
        x.npu("npu:0"),
        x.to("npu"),
        x.to("npu:0"),
        x.to(torch.device("npu")),
        torch.ones(2, 3, device="npu"),
        torch.ones(2, 3, device="npu:0"),
    ):
        assert y.is_npu and not y.is_cpu
        assert y.device.type == "npu" and str(y.device) == "npu:0"
        same(y, x)
    assert not x.is_npu
    assert nn.Linear(2, 2).npu().weight.is_npu
    assert nn.Linear(2, 2).to("npu").weight.is_npu
    assert repr(x.npu()) == repr(x)[:-1] + ", device='npu:0')"


def test_moves_copy():
    x = torch.zeros(3)
    y = x.npu()
    y.add_(1)
    assert x.sum() == 0
    z = y.cpu()
    z.add_(1)
    assert y.sum().item() == 3
    assert y.npu() is y


def test_moves_that_would_pin():
    """non_blocking to the CPU takes pinned memory on other devices."""
    x = torch.arange(4.0).npu()
    y = x.to("cpu", non_blocking=True)
    assert y.is_cpu and y.tolist() == [0, 1, 2, 3]
    assert x.to(torch.float64).dtype is torch.float64
    assert x.to("meta").device.type == "meta"
    assert x.to("cpu", torch.int32).dtype is torch.int32
    z = x.view(2, 2).to(torch.float16, memory_format=torch.preserve_format)
    assert z.is_npu and z.dtype is torch.float16


def test_numbers_where_a_tensor_is_due():
    x = torch.tensor([3.0, -5.0])
    for fn in (
        lambda t: torch.remainder(t, 2),
        lambda t: t.clone().remainder_(2),
        lambda t: torch.fmod(t, 2),
        lambda t: t.to(torch.int64).remainder(2),
        lambda t: torch.take_along_dim(t, t.argsort(), 0),
    ):
        same(fn(x.npu()), fn(x))


def test_wrong_index():
    for index in (1, "npu:7"):
        with pytest.raises(RuntimeError, match="there is one, npu:0"):
            torch.ones(2).npu(index)
    with pytest.raises(RuntimeError, match="there is one, npu:0"):
        torch.empty_strided((2,), (1,), device="npu:3")


def test_factories():
    for fn in (
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.arange(5, device=d),
        lambda d: torch.full((2,), 3.0, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.linspace(0, 1, 5, device=d),
        lambda d: torch.tensor([1.0, 2.0], device=d),
        lambda d: torch.as_tensor([1, 2], device=d),
        lambda d: torch.ones(3, device=d).new_full((2,), 4),
        lambda d: torch.zeros_like(torch.ones(2, device=d)),
    ):
        same(fn("npu"), fn("cpu"))


def test_strides_are_kept():
    x = torch.randn(2, 3, 4, 5)
    for y in (
        x.transpose(1, 2),
        x.to(memory_format=torch.channels_last),
        torch.empty_strided((2, 3), (1, 2)).fill_(1),
    ):
        assert y.npu().stride() == y.clone().stride()
    made = torch.empty(
        2, 3, 4, 5, device="npu", memory_format=torch.channels_last
    )
    assert made.is_contiguous(memory_format=torch.channels_last)


def test_default_device():
    torch.set_default_device("npu")
    try:
        assert torch.randn(3).is_npu and nn.Linear(2, 2).weight.is_npu
    finally:
        torch.set_default_device(None)
    with torch.device("npu"):
        assert torch.ones(2).is_npu


OPERATORS = (
    lambda x, y: x + y * 2 - y / 3,
    lambda x, y: x @ y.t(),
    lambda x, y: torch.softmax(x, -1),
    lambda x, y: F.layer_norm(x, (4,)),
    lambda x, y: F.linear(x, y),
    lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    lambda x, y: torch.cat([x, y]),
    lambda x, y: torch.stack([x, y], 1),
    lambda x, y: torch.where(x > 0, x, 0),
    lambda x, y: x.max(dim=1).values,
    lambda x, y: x[x > 0],
    lambda x, y: x[x.argmax(1)],
    lambda x, y: (x > 0).nonzero(),
    lambda x, y: torch.fft.fft(x).real,
    lambda x, y: torch.linalg.qr(x).R,
    lambda x, y: torch.unique(x > 0),
    lambda x, y: torch._foreach_mul([x, y], 2)[1],
    lambda x, y: x.clamp(-1, 1).cumsum(0).to(torch.bfloat16),
    lambda x, y: F.conv2d(x[None, None], y[None, None, :2, :2]),
    lambda x, y: F.conv_transpose2d(x[None, None], y[None, None, :2, :2]),
    lambda x, y: torch.einsum("ij,kj->ik", x, y),
    lambda x, y: F.pad(x, (1, 2), mode="constant"),
    lambda x, y: F.interpolate(x[None, None], scale_factor=2),
    lambda x, y: torch.complex(x, y).conj().imag,
    lambda x, y: torch.view_as_real(torch.complex(x, y).conj().resolve_conj()),
    lambda x, y: x.float().double().int().sum(),
    lambda x, y: x.sum() + 1.5,
    lambda x, y: (x > 0).sum() * 2 + (x > 0).sum() / 2,
    lambda x, y: x.half().sum() + torch.tensor(2.0),
)


@pytest.mark.parametrize("number", range(len(OPERATORS)))
def test_operators(number):
    torch.manual_seed(number)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    fn = OPERATORS[number]
    same(fn(x.npu(), y.npu()), fn(x, y))


def test_layers():
    torch.manual_seed(0)
    x = torch.randn(5, 3, 8)
    for layer, data in (
        (nn.LSTM(8, 6, num_layers=2), x),
        (nn.GRU(8, 6, bias=False), x),
        (nn.RNN(8, 6), x),
        (nn.MultiheadAttention(8, 2), None),
        (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), x),
        (nn.Conv1d(3, 4, 3), x),
        (nn.BatchNorm1d(3), x),
    ):
        args = (data,) if data is not None else (x, x, x)
        want = layer(*args)
        moved = copy.deepcopy(layer).npu()
        got = moved(*[a.npu() for a in args])
        want, got = (r[0] if isinstance(r, tuple) else r for r in (want, got))
        assert got.is_npu
        assert_close(got.cpu(), want)


def test_views_share_memory():
    x = torch.arange(24.0).npu()
    grid = x.view(4, 6)
    for view in (
        grid[1],
        grid[:, ::2],
        grid.t(),
        grid.unfold(0, 2, 1),
        grid.diagonal(),
        grid.as_strided((2, 2), (6, 1), 3),
        grid.expand(2, 4, 6),
        grid.reshape(2, 12),
        grid.unsqueeze(0).squeeze(0),
    ):
        assert view.is_npu
        assert view._is_view() and view._base is x
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    grid[1].zero_()
    grid.t()[0].fill_(7)
    want = torch.arange(24.0).view(4, 6)
    want[1].zero_()
    want.t()[0].fill_(7)
    same(grid, want)
    z = torch.zeros(3, dtype=torch.complex64, device="npu")
    torch.view_as_real(z)[:, 1] = 2
    assert z.imag.sum().item() == 6


def test_in_place_counts_versions():
    x = torch.ones(3, device="npu")
    before = x._version
    x.add_(1)
    x[0] = 5
    assert x._version == before + 2
    w = torch.ones(2, device="npu", requires_grad=True)
    y = w * 2
    z = y.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        z.sum().backward()


def test_out_is_resized():
    x = torch.randn(4, 4)
    for size in ((0,), (4, 4), (2,), (100,)):
        out = torch.empty(size, device="npu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = torch.add(x.npu(), x.npu(), out=out)
        assert got is out
        same(out, x + x)
    values = torch.empty(1, device="npu")
    places = torch.empty(0, dtype=torch.int64, device="npu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sort(x.npu(), out=(values, places))
    same(values, x.sort().values)
    same(places, x.sort().indices)


def test_resize():
    x = torch.arange(4.0).npu()
    base = x[1:]
    x.resize_(2, 5)
    assert x.shape == (2, 5) and x.view(-1)[:4].tolist() == [0, 1, 2, 3]
    assert base.tolist() == [1, 2, 3]
    x.resize_(3)
    assert x.tolist() == [0, 1, 2]


def test_lazy_bits():
    x = torch.randn(5, dtype=torch.complex64)
    y = x.npu().conj()
    assert y.is_conj()
    same(y, x.conj())
    same(y + 1, x.conj() + 1)
    same(y.imag, x.conj().imag)
    same(torch.empty_like(y).copy_(y), x.conj().resolve_conj())
    same(x.conj().npu(), x.conj())


def test_reads():
    x = torch.tensor([[1.5, 2.0]]).npu()
    assert x[0, 0].item() == 1.5 and x.tolist() == [[1.5, 2.0]]
    assert bool(x.sum() > 3)
    with pytest.raises(TypeError, match="npu"):
        x.numpy()
    assert x.cpu().numpy()[0, 1] == 2


def test_other_layouts_are_refused():
    x = torch.eye(3).npu()
    with pytest.raises(NotImplementedError, match="strided"):
        x.to_sparse()
    with pytest.raises(NotImplementedError):
        torch.eye(3).to_sparse().npu()


def test_deepcopy():
    x = torch.randn(3, 4).npu()
    view = x[1]
    a, b = copy.deepcopy((x, view))
    same(a, x.cpu())
    a[1].zero_()
    assert b.sum().item() == 0  # they still share
    assert x[1].abs().sum().item() > 0
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).npu()
    other = copy.deepcopy(net)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert q.is_npu and isinstance(q, nn.Parameter) and p is not q
        same(q.data, p.data.cpu())
    assert copy.copy(x) is not x


def saved(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


def test_save_and_load():
    x = torch.randn(3, 4)
    for tensor in (x, x.bfloat16(), x.to(torch.complex64), x > 0):
        same(torch.load(saved(tensor.npu())), tensor)
    assert torch.load(saved(x.npu()), map_location="cpu").is_cpu
    assert torch.load(saved(x), map_location="npu").is_npu
    assert torch.load(saved(x), map_location="npu:0").is_npu
    assert torch.load(saved(x), map_location=lambda s, _: s.npu()).is_npu
    shared = [x.npu()]
    shared.append(shared[0][1])
    a, b = torch.load(saved(shared))
    a[1].fill_(3)
    assert b.tolist() == [3] * 4
    net = nn.Linear(3, 3).npu()
    other = nn.Linear(3, 3).npu()
    other.load_state_dict(torch.load(saved(net.state_dict())))
    same(other.weight.data, net.weight.data.cpu())
    whole = torch.load(saved(net), weights_only=False)
    same(whole.bias.data, net.bias.data.cpu())


def test_pickle():
    x = torch.randn(3).npu().requires_grad_()
    y = pickle.loads(pickle.dumps(x))
    assert y.requires_grad
    same(y.data, x.data.cpu())


def test_storages():
    x = torch.arange(4, dtype=torch.uint8).npu()
    s = x.untyped_storage()
    assert s.device.type == "npu" and s.is_npu and s.nbytes() == 4
    assert s.clone().tolist() == s.cpu().tolist() == [0, 1, 2, 3]
    assert s.clone().is_npu and s.cpu().npu().is_npu and s[2] == 2
    assert torch.UntypedStorage(5, device="npu").nbytes() == 5
    assert torch.UntypedStorage([1, 2], device="npu").tolist() == [1, 2]
    assert torch.UntypedStorage(5).device.type == "cpu"
    s[1] = 9
    assert x.tolist() == [0, 9, 2, 3]
    with pytest.raises(NotImplementedError, match="resize a tensor"):
        s.resize_(100)


def test_sending_to_a_process_is_refused():
    from multiprocessing.reduction import ForkingPickler

    with pytest.raises(NotImplementedError, match=r"tensor\.cpu\(\)"):
        ForkingPickler.dumps(torch.ones(2).npu())
    with pytest.raises(NotImplementedError, match="not shared"):
        torch.ones(2).npu().share_memory_()


def test_random_numbers_are_the_cpus():
    def draw(device):
        torch.manual_seed(3)
        x = torch.randn(4, device=device)
        return (
            x,
            torch.rand(4, device=device),
            torch.randperm(6, device=device),
            F.dropout(torch.ones(20, device=device), 0.5),
            torch.bernoulli(torch.full((9,), 0.5, device=device)),
            torch.multinomial(torch.ones(4, device=device), 2),
            torch.empty(3, device=device).uniform_(2, 3),
        )

    for got, want in zip(draw("npu"), draw("cpu"), strict=True):
        same(got, want)


def test_generators():
    g = torch.Generator(device="npu").manual_seed(7)
    h = torch.Generator().manual_seed(7)
    assert isinstance(g, torch.Generator) and isinstance(h, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert g.device == torch.device("npu:0") and h.device.type == "cpu"
    same(torch.randn(3, device="npu", generator=g), torch.randn(3, generator=h))
    same(torch.randn(3, device="npu", generator=h), torch.randn(3, generator=g))
    state = g.get_state()
    a = torch.rand(2, device="npu", generator=g)
    g.set_state(state)
    assert torch.equal(a, torch.rand(2, device="npu", generator=g))
    twin = pickle.loads(pickle.dumps(g))
    assert twin.device.type == "npu"
    assert torch.equal(twin.get_state(), g.get_state())
    with pytest.raises(RuntimeError, match="there is one"):
        torch.Generator(device="npu:1")


def test_fork_rng():
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="npu"):
        torch.randn(5, device="npu")
    a = torch.randn(2, device="npu")
    torch.manual_seed(1)
    assert torch.equal(a, torch.randn(2, device="npu"))


def test_pinned_memory():
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(4.0)),
        batch_size=2,
        pin_memory=True,
    )
    got = [x.npu(non_blocking=True) for (x,) in loader]
    assert [x.tolist() for x in got] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match="host memory already"):
        torch.ones(2).npu().pin_memory()
    assert not torch.ones(2).npu().is_pinned()


def test_data_loader_workers():
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(6.0)),
        batch_size=3,
        num_workers=2,
    )
    assert sum(x.npu().sum().item() for (x,) in loader) == 15


class OnTheDevice(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        both = torch.full((4,), float(i)).npu()
        return {"x": both[1:3], "i": i}


@pytest.mark.parametrize("workers", [0, 2])
def test_data_sets_of_device_tensors(workers):
    """Workers send copies; a refusal in their threads would hang the loader."""
    loader = torch.utils.data.DataLoader(
        OnTheDevice(), batch_size=3, num_workers=workers, timeout=60 * workers
    )
    got = list(loader)
    assert all(b["x"].is_npu for b in got)
    assert [b["x"].tolist() for b in got] == [
        [[0, 0], [1, 1], [2, 2]],
        [[3, 3], [4, 4], [5, 5]],
    ]
    assert got[1]["i"].tolist() == [3, 4, 5]
    got[0]["x"].add_(1)  # ours alone


def test_single_samples_keep_their_views():
    loader = torch.utils.data.DataLoader(
        OnTheDevice(), batch_size=None, num_workers=1, timeout=60
    )
    assert [b["x"].tolist() for b in loader] == [[i, i] for i in range(6)]


def test_dlpack_says_what_to_do():
    x = torch.ones(2).npu()
    with pytest.raises(BufferError, match=r"export tensor\.cpu\(\)"):
        torch.from_dlpack(x)
    with pytest.raises(BufferError, match="no device npu"):
        numpy.from_dlpack(x)
    assert torch.from_dlpack(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        x.numpy()


def test_autocast():
    x = torch.randn(4, 4).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        assert F.linear(x, x).dtype is torch.bfloat16
        conv = F.conv2d(x[None, None], x[None, None, :2, :2])
        assert conv.dtype is torch.bfloat16
        low = x @ x
        assert low.softmax(-1).dtype is torch.float32
        assert low.softmax(-1, dtype=torch.float16).dtype is torch.float16
        assert F.layer_norm(low, (4,)).dtype is torch.float32
        assert torch.cat([low, x]).dtype is torch.float32
        assert torch.stack([low, low]).dtype is torch.bfloat16
        assert (x.double() @ x.double()).dtype is torch.float64
    assert (x @ x).dtype is torch.float32
    with torch.npu.amp.autocast():
        assert (x @ x).dtype is torch.float16
    with torch.autocast("npu", enabled=False):
        assert (x @ x).dtype is torch.float32
    want = x.cpu().bfloat16() @ x.cpu().bfloat16()
    same(low, want)


def test_backward_in_threads():
    """The engine of autograd runs a device's backward in its own thread."""
    torch.manual_seed(0)

    def work(seed):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))
        want = x.clone().requires_grad_()
        (want @ want).tanh().sum().backward()
        for _ in range(20):
            got = x.npu().requires_grad_()
            (got @ got).tanh().sum().backward()
            same(got.grad, want.grad)

    in_threads(range(4), work)


def test_memory_is_freed():
    start = torch.npu.memory_allocated()
    x = torch.empty(1000, device="npu")
    assert torch.npu.memory_allocated() == start + 4000
    y = x[10:]
    del x
    assert torch.npu.memory_allocated() == start + 4000
    del y
    assert torch.npu.memory_allocated() == start
    assert torch.npu.max_memory_allocated() >= start + 4000
    z = torch.ones(10, device="npu") + 1
    assert torch.npu.memory_allocated() == start + 40
    del z
    assert torch.npu.memory_allocated() == start


def test_functional_transforms():
    x = torch.randn(4, 3)

    def fn(v):
        return (v * v).sum()

    same(torch.vmap(fn)(x.npu()), torch.vmap(fn)(x))
    same(torch.func.grad(fn)(x.npu()), torch.func.grad(fn)(x))
    assert torch.autograd.gradcheck(
        torch.tanh, (x.double().npu().requires_grad_(),)
    )


def test_cpu_is_untouched():
    x = torch.randn(3)
    assert x.device.type == "cpu" and copy.deepcopy(x).is_cpu
    assert torch.load(saved(x)).is_cpu
    assert torch.Generator().device.type == "cpu"
    assert torch.compile(lambda t: t + 1, backend="eager")(x).is_cpu
