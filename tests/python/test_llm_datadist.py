"""create_npu_tensors: tensors over memory that somebody else owns."""

import ctypes

import pytest
import torch
from helpers import compiled

from torchair import llm_datadist
from torchair.llm_datadist import _DTYPES, create_npu_tensors


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    """A process that has had tensors of device npu captures only those by hand,
    and other tests capture the CPU's. npu_cases_* have both to themselves."""
    monkeypatch.setattr(llm_datadist, "_on_device", lambda tensor: tensor)


@pytest.mark.parametrize("dtype", sorted(_DTYPES, key=str), ids=str)
def test_memory_is_shared(dtype):
    memory = (ctypes.c_ubyte * (2 * 6 * dtype.itemsize))()
    begin = ctypes.addressof(memory)
    half = 6 * dtype.itemsize
    keys, values = create_npu_tensors([2, 3], dtype, (begin, begin + half))
    for t in (keys, values):
        assert t.shape == (2, 3) and t.dtype == dtype and t.is_contiguous()
    keys.fill_(1)
    assert any(bytes(memory)[:half]) and not any(bytes(memory)[half:])
    ctypes.memmove(begin + half, begin, half)
    assert torch.equal(keys.cpu(), values.cpu())


def test_memory_is_the_callers():
    block = torch.arange(6.0)
    made = create_npu_tensors([6], torch.float32, [block.data_ptr()])
    made[0].mul_(2)
    assert block.tolist() == [0, 2, 4, 6, 8, 10]
    del made
    block.add_(1)
    assert block.sum() == 36


def test_nothing_and_scalars():
    assert create_npu_tensors([2], torch.int8, []) == []
    (empty,) = create_npu_tensors([0, 4], torch.int8, [0])
    assert empty.shape == (0, 4)
    one = torch.tensor(7)
    (scalar,) = create_npu_tensors([], torch.int64, [one.data_ptr()])
    assert scalar.item() == 7


def test_compiled_functions_write_into_it():
    block = torch.zeros(2, 4)
    (cache,) = create_npu_tensors([2, 4], torch.float32, [block.data_ptr()])

    def put(cache, x):
        cache[:, 1] = x
        return cache.sum()

    new = torch.ones(2).to(cache.device)
    assert compiled(put, fullgraph=True)(cache, new).item() == 2
    assert block[:, 1].tolist() == [1, 1]


@pytest.mark.parametrize(
    "args, error, text",
    [
        ((4, torch.int8, [1]), TypeError, "shape must be a list"),
        (([2.0], torch.int8, [1]), TypeError, "shape must be a list"),
        (([True], torch.int8, [1]), TypeError, "shape must be a list"),
        (([2], torch.int8, 1), TypeError, "addresses must be a list"),
        (([2], torch.int8, ["1"]), TypeError, "addresses must be a list"),
        (([2], "int8", [1]), TypeError, "must be a torch.dtype"),
        (([2], torch.uint16, [1]), ValueError, "uint16 is not supported"),
        (([-1], torch.int8, [1]), RuntimeError, "below 0"),
        (([2], torch.int8, [0]), RuntimeError, "no address"),
    ],
)
def test_mistakes(args, error, text):
    with pytest.raises(error, match=text):
        create_npu_tensors(*args)
