"""Sums, variances and norms are as near to float64 as eager's."""

import pytest
import torch
from helpers import DEVICE
from torch.nn import functional as F

import torchair

CASES = {
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "mean_of_var_mean": lambda x: torch.var_mean(x, -1)[1],
    "sum_of_few_columns": lambda x: x.view(-1, 16, 8).sum(1),
    "norm": lambda x: torch.linalg.vector_norm(x, -0.5, -1),
    "norm_of_one": lambda x: torch.linalg.vector_norm(x.view(-1, 1), 6, -1),
    "batch_norm": lambda x: F.batch_norm(
        x.view(1, 32, -1), None, None, training=True
    ),
    "group_norm": lambda x: F.group_norm(x.view(4, 8, -1), 8),
}


def rounding(fn, mode, mean):
    """Roots of the sums of squared errors, of ours and of eager's."""
    config = torchair.CompilerConfig()
    config.mode = mode
    backend = torchair.get_npu_backend(compiler_config=config)
    compiled = torch.compile(fn, backend=backend)
    ours = eager = 0.0
    for seed in range(8):
        torch.manual_seed(seed)
        x = torch.randn(32, 1000) + mean
        exact = fn(x.double())
        ours += (compiled(x).double() - exact).square().sum().item()
        eager += (fn(x).double() - exact).square().sum().item()
    return ours**0.5, eager**0.5


def _norm_keeps_a_dimension():
    return CASES["norm_of_one"](torch.empty(2, device="meta")).dim() == 2


@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_error_is_not_beyond_eagers(name, mean):
    if name == "norm_of_one" and _norm_keeps_a_dimension():
        pytest.skip("the Meta function of this torch keeps a dimension")
    ours, eager = rounding(CASES[name], "reduce-overhead", mean)
    bound = 1.1
    if name == "group_norm":  # that sums in f32, as eager; a GPU's adds others
        bound = 1.3 if DEVICE.type == "cpu" else 1.5
    assert ours <= bound * eager


def test_scale_of_fused_statistics_is_rounded_once():
    """Sums are of f32 there, what is made of them for a channel is not."""
    ours, eager = rounding(CASES["batch_norm"], "max-autotune", 0.0)
    assert ours <= 1.17 * eager  # 1.24 where the scale is made in f32
