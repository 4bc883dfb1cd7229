"""Private formats: the layout of FRACTAL_NZ, and what casts do here."""

import logging
import random
import types

import pytest
import torch
from torch import nn

import torchair
from torchair import formats


def offset(b, h, w, height, width, columns):
    """Where element (h, w) of matrix b lies, counted in elements."""
    across, down = -(-width // columns), -(-height // 16)
    return ((b * across + w // columns) * down * 16 + h) * columns + w % columns


@pytest.mark.parametrize("dtype", formats._COLUMNS, ids=str)
def test_every_element_lies_where_the_formula_says(dtype):
    columns = formats._COLUMNS[dtype]
    rng = random.Random(0)
    for outer in ([], [3], [2, 3]):
        height, width = rng.randint(1, 40), rng.randint(1, 70)
        x = torch.randint(1, 100, [*outer, height, width]).to(dtype)
        packed = formats.to_fractal_nz(x)
        assert list(packed.shape) == formats.fractal_nz_shape(x.shape, dtype)
        flat, used = packed.flatten(), set()
        matrices = x.view(-1, height, width)
        for b in range(matrices.shape[0]):
            for h in range(height):
                for w in range(width):
                    at = offset(b, h, w, height, width, columns)
                    used.add(at)
                    assert flat[at] == matrices[b, h, w]
        rest = [i for i in range(flat.numel()) if i not in used]
        assert not flat[rest].any()  # padding
        assert torch.equal(formats.from_fractal_nz(packed, x.shape), x)


def test_worked_example():
    x = torch.zeros(17, 20, dtype=torch.float16)
    x[16, 19] = 1
    packed = formats.to_fractal_nz(x)
    assert packed.shape == (2, 2, 16, 16)
    assert packed.flatten().nonzero().item() == 771


def test_a_transposed_matrix_is_packed_as_it_reads():
    x = torch.arange(20.0 * 33).view(20, 33).half()
    assert torch.equal(
        formats.to_fractal_nz(x.t()), formats.to_fractal_nz(x.t().contiguous())
    )


def test_refusals():
    with pytest.raises(TypeError, match="float64"):
        formats.to_fractal_nz(torch.zeros(4, 4, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"\[1, n\]"):
        formats.to_fractal_nz(torch.zeros(4))
    with pytest.raises(ValueError, match=r"has \[1, 1, 16, 16\]"):
        formats.from_fractal_nz(torch.zeros(2, 1, 16, 16), (4, 4))


def test_cast_via_cpu():
    x = torch.randn(8, 8)
    assert torchair.npu_format_cast_via_cpu(x, 29) is x
    with pytest.raises(ValueError, match="acl_format=2"):
        torchair.npu_format_cast_via_cpu(x, 2)
    with pytest.raises(NotImplementedError, match="customize_dtype"):
        torchair.npu_format_cast_via_cpu(x, 29, customize_dtype=torch.int8)
    with pytest.raises(NotImplementedError, match="input_dtype"):
        torchair.npu_format_cast_via_cpu(x, 29, input_dtype=torch.int8)
    with pytest.raises(TypeError, match="float64"):
        torchair.npu_format_cast_via_cpu(x.double(), 29)


@pytest.fixture
def without_npu(monkeypatch):
    """As if nobody had imported torch_npu."""
    monkeypatch.delitem(formats.sys.modules, "torch_npu", raising=False)


def test_weights_without_torch_npu(without_npu, caplog):
    model = nn.Linear(4, 4)
    before = model.weight.data_ptr()
    torchair.logger.propagate = True
    with caplog.at_level(logging.ERROR, "torchair"):
        assert torchair.use_internal_format_weight(model) is None
    assert "torch_npu is not imported" in caplog.text
    assert model.weight.data_ptr() == before


@pytest.mark.host("it is about weights left on the CPU")
def test_weights_on_the_cpu_are_refused(monkeypatch):
    monkeypatch.setitem(
        formats.sys.modules, "torch_npu", types.ModuleType("torch_npu")
    )
    model = nn.Sequential(nn.ReLU(), nn.Linear(4, 4))
    with pytest.raises(RuntimeError, match=r"1\.weight is on the CPU"):
        torchair.use_internal_format_weight(model)
    torchair.use_internal_format_weight(nn.ReLU())  # has none


class LinearAllreduce(nn.Module):
    """As DeepSpeed's is called."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4, device="meta"))


def test_each_kind_of_layer_gets_its_format(monkeypatch):
    casts = []
    vendor = types.ModuleType("torch_npu")
    vendor.npu_format_cast = lambda t, form: (casts.append(form), t)[1]
    monkeypatch.setitem(formats.sys.modules, "torch_npu", vendor)
    monkeypatch.setattr(formats, "vendor_version", lambda: "2.7")
    model = nn.Sequential(
        nn.Linear(4, 4, device="meta"),
        nn.Conv2d(4, 4, 3, device="meta", dtype=torch.float16),
        nn.Conv2d(4, 4, 3, device="meta"),
        nn.Conv2d(4, 4, 3, groups=2, device="meta", dtype=torch.float16),
        nn.Sequential(LinearAllreduce(), nn.LayerNorm(4, device="meta")),
    )
    torchair.use_internal_format_weight(model)
    assert casts == [29, 4, 29]
