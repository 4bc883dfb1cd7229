"""One tensor of another dtype than the operator's samples have.

FX graphs can hold what eager refuses: torch's shape functions do not look at
every dtype. The engine then leaves the node to torch, whose error is seen; a
kernel that believed the graph would read past the end of a tensor.
"""

import itertools
import os
import warnings

import pytest
import torch
from helpers import BEFORE_213
from op_samples import closed, program_of, tensors_of, trace, usable
from torch.testing._internal.common_methods_invocations import op_db

from torchair import backend
from torchair.sizes import Unexpressible

SAMPLES = 4 if os.environ.get("TORCHAIR_OP_DB") == "full" else 1
OTHER = {
    torch.float32: (torch.float64, torch.bfloat16),
    torch.int64: (torch.int32,),
    torch.bool: (torch.uint8,),
}
# Here torch's shape functions and its kernels give results of different
# dtypes, and a compiled graph follows the former.
TORCH_DISAGREES = {
    "addr",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_batch_norm_with_update",
    "normal",
    "nn.functional.soft_margin_loss",
    "nn.functional.huber_loss",
}
if BEFORE_213:
    TORCH_DISAGREES |= {
        "addmv",
        "nn.functional.binary_cross_entropy_with_logits",
    }
# Indices of i32 where ATen wants i64: the engine takes both.
MORE_INDICES = {"index_fill", "index_copy"}


def _ops():
    for op in op_db:
        if (
            torch.float32 in op.supported_dtypes("cpu")
            and not op.name.startswith("jiterator")
            and op.name not in TORCH_DISAGREES
        ):
            yield pytest.param(
                op, id=f"{op.name}.{op.variant_test_name}".rstrip(".")
            )


@pytest.fixture(scope="module", autouse=True)
def _engine():
    torch.compile(lambda x: x + 1, backend=backend.torchair)(torch.ones(1))


def _mixed(tensors):
    for i, t in enumerate(tensors):
        for dtype in OTHER.get(t.dtype, ()):
            given = [u.detach().clone() for u in tensors]
            given[i] = given[i].to(dtype)
            yield given


ERRORS = (RuntimeError, IndexError, TypeError, NotImplementedError)


def _results(fn, tensors):
    """None: torch refuses."""
    try:
        return tensors_of(fn(*[t.clone() for t in tensors]))
    except ERRORS:
        return None


def _check(fn, tensors, name):
    want = _results(fn, tensors)
    try:
        program = program_of(trace(fn, tensors), True)
    except (*ERRORS, Unexpressible):
        return  # torch cannot trace it, or the sizes depend on data
    if want is None:
        int32 = any(t.dtype is torch.int32 for t in tensors)
        if not (int32 and name in MORE_INDICES):
            with pytest.raises(ERRORS):
                program(*tensors)
        return
    for got, w in zip(program(*tensors), want, strict=True):
        assert got.dtype is w.dtype
        torch.testing.assert_close(got, w, rtol=2e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize("op", list(_ops()))
def test_one_tensor_of_another_dtype(op):
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", torch.float32)
    for sample in itertools.islice(samples, SAMPLES):
        fn, tensors = closed(op, sample)
        if 2 <= len(tensors) <= 6 and usable(tensors):
            for given in _mixed(tensors):
                _check(fn, given, op.name)


def test_the_error_is_eagers():
    run = torch.compile(lambda a, b: (a @ b).relu(), backend=backend.torchair)
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    run(a, b)
    with pytest.raises(RuntimeError, match="same dtype"):
        run(a.double(), b)
    torch.testing.assert_close(run(a, b), (a @ b).relu())
