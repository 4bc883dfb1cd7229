"""Pass expand: every composite op against eager and float64.

The op is traced alone, so that no decomposition of torch comes between. Our
error against float64 may be eager's, and two units in the last place of the
largest value.
"""

import operator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from torchair import artifacts, backend
from torchair.config import CompilerConfig

aten = torch.ops.aten
F32, F64, BF16, F16 = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
)
FLOATS = (F32, F64, BF16, F16)


def tensors_of(args):
    return [a for a in tree_leaves(list(args)) if isinstance(a, torch.Tensor)]


def traced(op, args, kwargs, result):
    """A graph of the one node, as AOTAutograd would hand it over."""
    mode = FakeTensorMode()
    graph = torch.fx.Graph()
    inputs = [mode.from_tensor(t) for t in tensors_of(args)]
    places = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    for place, fake in zip(places, inputs, strict=True):
        place.meta["val"] = fake
    rest, names = iter(inputs), iter(places)
    fakes, nodes = (
        tree_map_only(torch.Tensor, lambda _, it=it: next(it), list(args))
        for it in (rest, names)
    )
    node = graph.call_function(op, tuple(nodes), kwargs)
    with mode:
        node.meta["val"] = op(*fakes, **kwargs)
    outs = [node]
    if isinstance(result, (tuple, list)):
        outs = [
            graph.call_function(operator.getitem, (node, i))
            for i, r in enumerate(result)
            if r is not None
        ]
        for out in outs:
            out.meta["val"] = node.meta["val"][out.args[1]]
    for out, real in zip(outs, present(result), strict=True):
        if out.meta["val"].dtype != real.dtype:
            pytest.skip("torch traces another dtype than it computes")
    graph.output(tuple(outs))
    return torch.fx.GraphModule({}, graph)


def run(op, args, kwargs, mode, result):
    """op(*args) by the engine alone: a HOST node is a failure."""
    config = CompilerConfig()
    config.mode = mode
    tensors = tensors_of(args)
    gm = traced(op, args, kwargs, result)
    found, programs = [], []
    with backend.collect(found, programs):
        compiled = artifacts.get_compiler(config)(gm, tensors)
    assert not found[0].hosts, found[0].hosts
    assert not found[0].fallback, found[0].fallback
    return compiled(list(tensors))


def present(result):
    result = result if isinstance(result, (tuple, list)) else [result]
    return [r for r in result if r is not None]


def widened(args):
    args = tree_map_only(
        torch.Tensor,
        lambda t: t.double() if t.is_floating_point() else t,
        list(args),
    )
    return [F64 if isinstance(a, torch.dtype) else a for a in args]


def compare(got, want, exact):
    assert got.dtype == want.dtype and got.shape == want.shape
    if not want.is_floating_point():
        assert torch.equal(got, want)
        return
    eps = torch.finfo(got.dtype).eps
    got, want = got.double(), want.double()
    finite = exact.isfinite()
    assert torch.equal(got[~finite].nan_to_num(7), want[~finite].nan_to_num(7))
    if not finite.any():
        return
    got, want, exact = got[finite], want[finite], exact[finite].double()
    mine, theirs = (got - exact).abs().max(), (want - exact).abs().max()
    # float64 is compared with eager itself, which rounds as well
    ulps = 128 if eps == torch.finfo(F64).eps else 2
    unit = eps * exact.abs().max()
    assert mine <= 1.1 * theirs + ulps * unit, (
        f"{mine / unit} ulp, eager {theirs / unit}"
    )


def check(op, args, mode, **kwargs):
    want = op(*args, **kwargs)
    exact = present(op(*widened(args), **kwargs))
    got = run(op, args, kwargs, mode, want)
    want = present(want)
    assert len(got) == len(want)
    for g, w, e in zip(got, want, exact, strict=True):
        if w.numel():
            compare(g, w, e)


def cast(args, dtype):
    return [
        a.to(dtype)
        if isinstance(a, torch.Tensor) and a.is_floating_point()
        else dtype
        if a is FLOATS
        else a
        for a in args
    ]


X = torch.linspace(-30, 30, 960).sin().mul(4).add(0.7).reshape(6, 10, 16)
G = X.flip(0).cos() + 0.3
W, B = X[0, 0] + 1.5, X[1, 1]
P, T = X.sigmoid(), G.sigmoid()
NEG = X - 1000
MASKED = X.clone()
MASKED[0, 0] = -torch.inf
MASKED[1] = -torch.inf
IMAGE = X.reshape(4, 6, 5, 8)
CHANNEL = X.flatten()[:6] + 2
CLASSES = torch.arange(6) * 3 % 10
LOGP = X[:, :, 0].log_softmax(1)
LOGP2 = X.log_softmax(1)
PIXELS = torch.arange(6 * 16).reshape(6, 16) % 10
WEIGHTS = X[0, :, 0].abs() + 0.5


def layer_norm_grad(w, mask):
    y, m, r = aten.native_layer_norm(X, [16], W, B, 1e-5)
    return [G, X, [16], m, r, w, None if w is None else B, mask]


def group_norm_grad(w, mask):
    y, m, r = aten.native_group_norm(IMAGE, CHANNEL, CHANNEL, 4, 6, 40, 3, 1e-5)
    return [G.reshape(4, 6, 5, 8), IMAGE, m, r, w, 4, 6, 40, 3, mask]


def batch_norm_grad(train, w, mask):
    y, m, r = aten.native_batch_norm(IMAGE, w, w, None, None, True, 0.1, 1e-5)
    return [
        G.reshape(4, 6, 5, 8),
        IMAGE,
        w,
        CHANNEL,
        CHANNEL,
        m,
        r,
        train,
        1e-5,
        mask,
    ]


ALL, SOME = [True, True, True], [True, False, False]
CASES = {
    "softmax": (aten._softmax.default, [X, -1, False]),
    "softmax_outer": (aten._softmax.default, [X, 0, False]),
    "softmax_middle": (aten._softmax.default, [X, 1, False]),
    "softmax_low": (aten._softmax.default, [NEG, 2, False]),
    "softmax_masked": (aten._softmax.default, [MASKED, 2, False]),
    "softmax_scalar": (aten._softmax.default, [X[0, 0, 0], 0, False]),
    "log_softmax": (aten._log_softmax.default, [X, -1, False]),
    "log_softmax_middle": (aten._log_softmax.default, [NEG, 1, False]),
    "softmax_grad": (
        aten._softmax_backward_data.default,
        [G, X.softmax(-1), -1, FLOATS],
    ),
    "log_softmax_grad": (
        aten._log_softmax_backward_data.default,
        [G, X.log_softmax(1), 1, FLOATS],
    ),
    "logsumexp": (aten.logsumexp.default, [X, [1], False]),
    "logsumexp_two": (aten.logsumexp.default, [X, [0, -1], True]),
    "logsumexp_masked": (aten.logsumexp.default, [MASKED, [2], False]),
    "mean": (aten.mean.default, [X]),
    "mean_dim": (aten.mean.dim, [X, [-1]]),
    "mean_two": (aten.mean.dim, [X, [0, 2], True]),
    "var": (aten.var.correction, [X, [1]]),
    "var_all": (aten.var.correction, [X]),
    "var_biased": (aten.var.dim, [X, [-1], False, True]),
    "var_far": (aten.var.correction, [X + 100, [2]]),
    "std": (aten.std.correction, [X, [0, 1]]),
    "std_dim": (aten.std.dim, [X, [2]]),
    "var_mean": (aten.var_mean.correction, [X, [1]]),
    "std_mean": (aten.std_mean.correction, [X, [0, 2]]),
    "norm_2": (aten.linalg_vector_norm.default, [X, 2, [1]]),
    "norm_1": (aten.linalg_vector_norm.default, [X, 1, [1, 2], True]),
    "norm_inf": (aten.linalg_vector_norm.default, [X, float("inf"), [0]]),
    "norm_low": (aten.linalg_vector_norm.default, [X, -float("inf"), [0]]),
    "norm_0": (aten.linalg_vector_norm.default, [X.relu(), 0, [2]]),
    "norm_3": (aten.linalg_vector_norm.default, [X, 3, [2]]),
    "norm_all": (aten.linalg_vector_norm.default, [X]),
    "norm_p": (aten.norm.ScalarOpt_dim, [X, 2, [1], True]),
    "norm_scalar": (aten.norm.Scalar, [X, 2]),
    "nansum": (aten.nansum.default, [MASKED / MASKED, [1]]),
    "aminmax": (aten.aminmax.default, [X]),
    "count_nonzero": (aten.count_nonzero.dim_IntList, [X.relu(), [1]]),
    "count_all": (aten.count_nonzero.default, [X.relu()]),
    "layer_norm": (aten.native_layer_norm.default, [X, [16], W, B, 1e-5]),
    "layer_norm_plain": (
        aten.native_layer_norm.default,
        [X, [10, 16], None, None, 1e-5],
    ),
    "layer_norm_all": (
        aten.native_layer_norm.default,
        [X, [6, 10, 16], None, None, 1e-3],
    ),
    "layer_norm_grad": (
        aten.native_layer_norm_backward.default,
        layer_norm_grad(W, ALL),
    ),
    "layer_norm_grad_x": (
        aten.native_layer_norm_backward.default,
        layer_norm_grad(None, SOME),
    ),
    "group_norm": (
        aten.native_group_norm.default,
        [IMAGE, CHANNEL, B[:6], 4, 6, 40, 3, 1e-5],
    ),
    "group_norm_plain": (
        aten.native_group_norm.default,
        [IMAGE, None, None, 4, 6, 40, 2, 1e-5],
    ),
    "group_norm_grad": (
        aten.native_group_norm_backward.default,
        group_norm_grad(CHANNEL, ALL),
    ),
    "batch_norm": (
        aten._native_batch_norm_legit_functional.default,
        [IMAGE, CHANNEL, B[:6], B[6:12], CHANNEL, True, 0.1, 1e-5],
    ),
    "batch_norm_frozen": (
        aten._native_batch_norm_legit_functional.default,
        [IMAGE, CHANNEL, B[:6], B[6:12], CHANNEL, False, 0.1, 1e-5],
    ),
    "batch_norm_infer": (
        aten._native_batch_norm_legit_no_training.default,
        [IMAGE, None, None, B[6:12], CHANNEL, 0.1, 1e-5],
    ),
    "batch_norm_plain": (
        aten._native_batch_norm_legit.no_stats,
        [IMAGE, CHANNEL, B[:6], True, 0.1, 1e-5],
    ),
    "batch_norm_grad": (
        aten.native_batch_norm_backward.default,
        batch_norm_grad(True, CHANNEL, ALL),
    ),
    "batch_norm_grad_frozen": (
        aten.native_batch_norm_backward.default,
        batch_norm_grad(False, CHANNEL, ALL),
    ),
    "rms_norm": (aten._fused_rms_norm.default, [X, [16], W, 1e-6]),
    "rms_norm_eps": (aten._fused_rms_norm.default, [X, [16], None, None]),
    "mse": (aten.mse_loss.default, [X, G]),
    "mse_sum": (aten.mse_loss.default, [X, G, 2]),
    "mse_none": (aten.mse_loss.default, [X, G, 0]),
    "mse_grad": (aten.mse_loss_backward.default, [G[0, 0, 0], X, G, 1]),
    "smooth_l1": (aten.smooth_l1_loss.default, [X, G, 1, 0.7]),
    "smooth_l1_zero": (aten.smooth_l1_loss.default, [X, G, 1, 0.0]),
    "smooth_l1_grad": (aten.smooth_l1_loss_backward.default, [G, X, G, 0, 0.7]),
    "huber": (aten.huber_loss.default, [X, G, 1, 1.3]),
    "huber_grad": (aten.huber_loss_backward.default, [G, X, G, 0, 1.3]),
    "bce": (aten.binary_cross_entropy.default, [P, T]),
    "bce_weight": (aten.binary_cross_entropy.default, [P, T, P, 2]),
    "bce_edge": (aten.binary_cross_entropy.default, [(X > 0).float(), T]),
    "bce_grad": (
        aten.binary_cross_entropy_backward.default,
        [G[0, 0, 0], P, T, None, 1],
    ),
    "bce_logits": (
        aten.binary_cross_entropy_with_logits.default,
        [X, T, None, None, 1],
    ),
    "bce_logits_weight": (
        aten.binary_cross_entropy_with_logits.default,
        [X, T, P, W, 1],
    ),
    "soft_margin": (aten.soft_margin_loss.default, [X, G.sign()]),
    "glu": (aten.glu.default, [X, 1]),
    "glu_grad": (aten.glu_backward.default, [G[:, :5], X, 1]),
    "repeat": (aten.repeat.default, [X, [2, 1, 3, 1]]),
    "repeat_lead": (aten.repeat.default, [X[0], [2, 3, 1, 2]]),
    "roll": (aten.roll.default, [X, [3, -2], [1, 2]]),
    "roll_flat": (aten.roll.default, [X, [7]]),
    "select_grad": (aten.select_backward.default, [G[0], [6, 10, 16], 0, 2]),
    "slice_grad": (
        aten.slice_backward.default,
        [G[:, :4], [6, 10, 16], 1, 1, 9, 2],
    ),
}
LOSSES = {
    "nll": [LOGP, CLASSES, None, 1, -100],
    "nll_ignore": [LOGP, CLASSES, None, 1, 3],
    "nll_weight": [LOGP, CLASSES, WEIGHTS, 1, 0],
    "nll_none": [LOGP, CLASSES, WEIGHTS, 0, 6],
    "nll_sum": [LOGP, CLASSES, WEIGHTS, 2, 6],
    "nll_one": [LOGP[0], CLASSES[2], None, 1, -100],
}
PRODUCTS = {
    "mv": (aten.mv.default, [X[0], W]),
    "dot": (aten.dot.default, [W, B]),
    "addmv": (aten.addmv.default, [X[0, :, 0], X[0], W]),
    "addmm": (aten.addmm.default, [W, X[0].T, X[1]]),
    "addr": (aten.addr.default, [X[0], X[0, :, 0], W]),
}

modes = pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])


@modes
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_op(name, dtype, mode):
    op, args = CASES[name]
    check(op, cast(args, dtype), mode)


@modes
@pytest.mark.parametrize("dtype", (BF16, F16), ids=str)
@pytest.mark.parametrize(
    "name", ["layer_norm", "group_norm", "batch_norm", "batch_norm_infer"]
)
def test_half_with_float_weights(name, dtype, mode):
    op, args = CASES[name]
    check(op, [args[0].to(dtype), *args[1:]], mode)


@modes
@pytest.mark.parametrize("dtype", (F32, F64), ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_nll(name, dtype, mode):
    args = cast(LOSSES[name], dtype)
    check(aten.nll_loss_forward.default, args, mode)
    y, total = aten.nll_loss_forward(*args)
    check(
        aten.nll_loss_backward.default, [torch.ones_like(y), *args, total], mode
    )


@modes
def test_nll_pixels(mode):
    args = [LOGP2, PIXELS, WEIGHTS, 1, 4]
    args[0] = LOGP2.unsqueeze(2).contiguous()
    args[1] = PIXELS.unsqueeze(1).contiguous()
    check(aten.nll_loss2d_forward.default, args, mode)
    y, total = aten.nll_loss2d_forward(*args)
    check(
        aten.nll_loss2d_backward.default,
        [torch.ones_like(y), *args, total],
        mode,
    )


@modes
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name, dtype, mode):
    op, args = PRODUCTS[name]
    check(op, cast(args, dtype), mode)


@modes
@pytest.mark.parametrize("beta,alpha", [(1, 1), (0, 1), (0.5, 2.0)])
def test_scaled_products(beta, alpha, mode):
    scales = {"beta": beta, "alpha": alpha}
    bias = W * torch.nan if beta == 0 else W
    check(aten.addmm.default, [bias, X[0].T, X[1]], mode, **scales)
    check(aten.baddbmm.default, [X[:, :, :10], X, G.mT], mode, **scales)


@modes
def test_stack(mode):
    check(aten.stack.default, [[X, G, X * 2], 1], mode)


@modes
def test_one_element_variance_is_nan(mode):
    check(aten.var.correction, [X[:, :, :1], [2]], mode)
