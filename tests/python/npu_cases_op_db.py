"""Every operator of PyTorch's own samples: device npu against the CPU."""

import itertools
import warnings

import torch
from torch.testing import assert_close
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map_only

import torch_npu  # noqa: F401

# name: why a sample differs from the CPU
EXPECTED = {
    "as_strided.partial_views": "reads memory outside of what was moved",
    "sparse.mm.reduce": "sparse tensors",
    "sparse.sampled_addmm": "sparse tensors",
    "tensor_split": "wants its indices on the CPU on every device",
    "to_sparse": "sparse tensors",
}
UNINITIALISED = ("empty", "new_empty")


def moved(tree, device):
    tree = tree_map_only(torch.Tensor, lambda t: t.to(device), tree)
    return tree_map_only(torch.device, lambda d: torch.device(device), tree)


def run(op, sample, device):
    torch.manual_seed(0)
    args, kwargs = moved(((sample.input, *sample.args), sample.kwargs), device)
    if "device" in kwargs:
        kwargs["device"] = device
    return op(*args, **kwargs)


def problem(op, sample):
    try:
        want = run(op, sample, "cpu")
    except Exception:
        return None  # a sample the CPU refuses
    try:
        got = run(op, sample, "npu")
    except Exception as error:
        return str(error).partition("\n")[0]
    if op.name.startswith(UNINITIALISED):
        return None
    for g in torch.utils._pytree.tree_leaves(got):
        if isinstance(g, torch.Tensor) and not g.is_npu and op.name != "to":
            return f"a result on {g.device}"
    try:
        assert_close(moved(got, "cpu"), want, equal_nan=True)
    except AssertionError as error:
        return str(error).partition("\n")[0]
    return None


def test_samples():
    found, count = {}, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if torch.float32 not in op.dtypes:
                continue
            name = ".".join(filter(None, (op.name, op.variant_test_name)))
            samples = op.sample_inputs("cpu", torch.float32)
            for sample in itertools.islice(samples, 2):
                count += 1
                why = problem(op, sample)
                if why is not None:
                    found.setdefault(name, why)
    assert count > 1000
    surprises = {k: v for k, v in found.items() if k not in EXPECTED}
    assert not surprises, surprises
    assert not EXPECTED.keys() - found.keys(), "expected to fail, but passed"
