"""The engine infers the dtypes and sizes that torch does: samples of PyTorch's
own operator database, over dtypes, imported without running them."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from torchair import engine, importer

COVERED = """
add sub mul div rsub pow remainder fmod floor_divide maximum minimum clamp
addcmul addcdiv lerp eq lt isnan isinf signbit logical_and logical_not where
masked_fill bitwise_and bitwise_not bitwise_left_shift abs sign round frac
copysign reciprocal rsqrt exp log1p atan2 xlogy logaddexp sigmoid tanh logit
nan_to_num nn.functional.gelu nn.functional.softplus nn.functional.elu
nn.functional.leaky_relu nn.functional.hardtanh arange full eye zeros_like
new_full scalar_tensor sum prod mean amax any all var std var_mean argmax
logsumexp cumsum cumprod cummax sort topk aminmax count_nonzero norm
linalg.vector_norm view reshape permute transpose unsqueeze squeeze expand
select as_strided split split_with_sizes unbind unfold diagonal index_put
index_select gather scatter scatter_add scatter_reduce index_copy index_add
index_fill take_along_dim slice_scatter select_scatter diagonal_scatter
nn.functional.embedding flip roll cat stack nn.functional.pad repeat tril mm
bmm addmm baddbmm mv addmv addr dot nn.functional.conv2d
nn.functional.conv_transpose2d nn.functional.max_pool2d
nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d
nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm
nn.functional.rms_norm softmax log_softmax nn.functional.nll_loss
nn.functional.mse_loss nn.functional.huber_loss nn.functional.glu
"""
NAMES = set(COVERED.split())
OPS = [op for op in op_db if op.name in NAMES]
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


def run(sample, op, tensors):
    spec = (sample.input, sample.args, sample.kwargs)
    leaves, tree = pytree.tree_flatten(spec)
    fresh = iter(tensors)
    leaves = [next(fresh) if isinstance(x, torch.Tensor) else x for x in leaves]
    first, args, kwargs = pytree.tree_unflatten(leaves, tree)
    return tuple(
        x
        for x in pytree.tree_leaves(op.op(first, *args, **kwargs))
        if isinstance(x, torch.Tensor)
    )


@pytest.fixture(scope="module", autouse=True)
def _engine():
    engine.start()


@pytest.mark.parametrize(
    "op", OPS, ids=lambda op: op.name + op.variant_test_name
)
def test_infer(op) -> None:
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        samples = [
            s
            for s in op.sample_inputs("cpu", dtype)
            if "cuda" not in str(s.kwargs.get("device"))  # where there is one
        ]
        for sample in samples[:1] + samples[1:][-1:]:
            tensors = [
                x
                for x in pytree.tree_leaves(
                    (sample.input, sample.args, sample.kwargs)
                )
                if isinstance(x, torch.Tensor)
            ]
            if any(x.is_cuda for x in tensors):  # made by the sample itself
                continue
            graph = make_fx(
                lambda *t, s=sample: run(s, op, t), tracing_mode="fake"
            )(*tensors)
            got = importer.import_graph(graph, "t", {})
            wrong = [
                h for h in got.host_nodes if "the engine infers" in h.reason
            ]
            assert not wrong, (dtype, sample, wrong)


def test_ops_are_found() -> None:
    assert {op.name for op in OPS} == NAMES
