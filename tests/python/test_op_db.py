"""PyTorch's own operator samples through the engine, in both modes.

Each sample is traced to ATen operators as AOTAutograd does it, imported and
run; Dynamo has no part in it. In reduce-overhead a result may be as far from
float64 as eager's is, times 1.1, and one ulp. What is not gets a second look:
the error of one sample is partly luck, one rounding of several that are
equally good. The sample is run again with other numbers of its kind, many
times; then the root mean square of our errors may be 1.1 times eager's, no
ulp more, in the geometric mean of all runs (where terms cancel, one run would
outweigh all others), and the error of the sample itself twice the largest
that eager makes. In max-autotune a result also passes if
torch.testing.assert_close takes it. op_db_expect.py lists what does none of
these, with figures.

TORCHAIR_OP_DB=full runs every dtype and more samples; the default takes one
dtype of each operator, so that it ends in a minute. With --device=cuda the
samples are on a GPU.
"""

import math
import os
import zlib

import pytest
import torch
from op_db_expect import (
    EXPECT,
    HAS_NO_VALUE,
    MADE_OF_CHOICES,
    ON_GPU,
    ROUGH_ON_GPU,
)
from op_samples import (
    SUMS,
    closed,
    error,
    gradients,
    in_double,
    is_pointwise,
    moved,
    program_of,
    rms,
    rows_of,
    tensors_of,
    term_scale,
    trace,
    usable,
)
from torch.testing._internal.common_methods_invocations import op_db

from torchair import _native, backend
from torchair.sizes import Unexpressible

FULL = os.environ.get("TORCHAIR_OP_DB") == "full"
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]
MORE_DTYPES = [torch.float16, torch.float64, torch.int32, torch.uint8]
SAMPLES = 8 if FULL else 2
MODES = {"reduce-overhead": True, "max-autotune": False}
SEED = 42  # the one that random samples set themselves
DRAWS = 128  # of a sample at the second look

# Whose gradients the default run looks at.
USUAL_GRADIENTS = {
    "add",
    "mul",
    "div",
    "sub",
    "matmul",
    "bmm",
    "softmax",
    "log_softmax",
    "nn.functional.layer_norm",
    "nn.functional.gelu",
    "nn.functional.silu",
    "sigmoid",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "sum",
    "mean",
    "var",
    "amax",
    "max",
    "cat",
    "stack",
    "gather",
    "index_select",
    "where",
    "clamp",
    "pow",
    "nn.functional.linear",
    "nn.functional.conv2d",
    "nn.functional.batch_norm",
    "cumsum",
    "nn.functional.embedding",
    "permute",
    "expand",
    "scatter_add",
    "nn.functional.nll_loss",
    "nn.functional.max_pool2d",
    "nn.functional.avg_pool2d",
    "norm",
    "prod",
    "rsqrt",
    "atan2",
}


@pytest.fixture(scope="module", autouse=True)
def _engine():
    torch.compile(lambda x: x + 1, backend=backend.torchair)(torch.ones(1))


def _device():
    return torch.get_default_device().type


def _name(op):
    return f"{op.name}.{op.variant_test_name}".rstrip(".")


def _dtypes(op):
    supported = op.supported_dtypes("cpu")
    if FULL:
        return [d for d in DTYPES + MORE_DTYPES if d in supported]
    usual = [d for d in DTYPES if d in supported]
    floats = [d for d in usual if d.is_floating_point]
    key = zlib.crc32(_name(op).encode())  # a fixed one for each operator
    pick = floats if floats and key % 4 else usual
    return [pick[key % len(pick)]] if pick else []


def _forward_cases():
    for op in op_db:
        if op.name.startswith("jiterator"):  # CUDA only
            continue
        for dtype in _dtypes(op):
            yield pytest.param(op, dtype, id=f"{_name(op)}-{str(dtype)[6:]}")


def _backward_cases():
    for op in op_db:
        if (
            FULL or _name(op) in USUAL_GRADIENTS
        ) and torch.float32 in op.supported_backward_dtypes("cpu"):
            yield pytest.param(op, id=_name(op))


class Sample:
    """One sample, what eager makes of it, and float64."""

    def __init__(self, op, fn, tensors, kind):
        self.key = _name(op), kind
        self.fn, self.tensors = fn, tensors
        torch.manual_seed(SEED)
        self.want = tensors_of(fn(*[t.clone() for t in tensors]))
        if not self.want or not usable(self.want):
            raise NotImplementedError("nothing to compare")
        self.gm = trace(fn, tensors)
        torch.manual_seed(SEED)
        exact = in_double(fn, tensors) or []
        self.exact = exact if len(exact) == len(self.want) else None

    def run(self, exact):
        program = program_of(self.gm, exact)
        torch.manual_seed(SEED)
        return program([t.clone() for t in self.tensors])

    def room(self, mode):
        """Ulps that the error may be beyond 1.1 times eager's."""
        expect = {**EXPECT, **ON_GPU} if _device() == "cuda" else EXPECT
        for (name, kind, modes), (ulps, _) in expect.items():
            if (name, kind) == self.key and mode in modes:
                return ulps
        return 1.0

    def check(self, mode):
        got = self.run(MODES[mode])
        assert len(got) == len(self.want)
        for i, (g, w) in enumerate(zip(got, self.want, strict=True)):
            assert g.dtype == w.dtype
            assert g.shape == w.shape
            if self.key[0] not in HAS_NO_VALUE and not _bitwise(g, w):
                self.check_result(i, g, w, mode)

    def check_result(self, i, got, want, mode):
        name = self.key[0]
        if not want.is_floating_point():
            assert name in MADE_OF_CHOICES, "integers differ"
            MADE_OF_CHOICES[name](self.tensors, got, want)
            return
        exact = self.exact[i] if self.exact else None
        if want.dtype is torch.float64 or exact is None:
            rough = ROUGH_ON_GPU.get(name) if got.is_cuda else None
            _close(got, want, rough)
            return
        if exact.dtype is not torch.float64 or exact.shape != want.shape:
            _close(got, want)
            return
        room = self.room(mode)
        rows = rows_of(self.gm)
        pointwise = is_pointwise(self.gm)
        scale = 0.0
        if any(r.split(".")[0] in SUMS | {"sum", "mean"} for r in rows):
            scale = term_scale(self.fn, self.tensors, i)
        mine, theirs = error(got, exact, scale), error(want, exact, scale)
        assert mine.special or not theirs.special, "NaN or infinity"
        if pointwise:
            good = mine.own <= 1.1 * theirs.own + room
        else:
            good = mine.whole <= 1.1 * theirs.whole + room
        again = None
        if not good:
            again = ratio, largest = self.again(i, mode, pointwise, scale)
            own = mine.own if pointwise else mine.whole
            good = ratio <= 1.1 and own <= 2 * largest
        if not good and mode == "max-autotune":
            _close(got, exact.to(want.dtype))
            good = True
        assert good, (mine, theirs, again)

    def again(self, i, mode, pointwise, scale):
        """The second look at result i: how many times eager's error ours is,
        and eager's largest error."""
        program = program_of(self.gm, MODES[mode])
        ratio = largest = 0.0
        for draw in range(DRAWS):
            tensors = moved(self.tensors, draw)
            torch.manual_seed(SEED)
            got = program([t.clone() for t in tensors])[i]
            torch.manual_seed(SEED)
            want = tensors_of(self.fn(*[t.clone() for t in tensors]))[i]
            torch.manual_seed(SEED)
            exact = in_double(self.fn, tensors)[i]
            ours = rms(got, exact, scale, pointwise)
            ratio += math.log(ours / rms(want, exact, scale, pointwise))
            theirs = error(want, exact, scale)
            largest = max(largest, theirs.own if pointwise else theirs.whole)
        return math.exp(ratio / DRAWS), largest


def _bitwise(got, want):
    if not want.is_floating_point():
        return torch.equal(got, want)
    return torch.equal(got.isnan(), want.isnan()) and torch.equal(
        got.nan_to_num(), want.nan_to_num()
    )


def _close(got, want, rough=None):
    """rough: what an absolute difference may be; None: as for its dtype."""
    room = {} if rough is None else {"rtol": 0.016, "atol": rough}
    torch.testing.assert_close(got, want, equal_nan=True, **room)


def _samples(op, dtype, grad):
    """What of the first samples can be traced."""
    made = op.sample_inputs(_device(), dtype, requires_grad=grad)
    for i, s in enumerate(made):
        if i == SAMPLES:
            return
        fn, tensors = closed(op, s)
        if not tensors or not usable(tensors):
            continue
        if grad:
            fn, tensors = gradients(fn, tensors)
        try:
            yield Sample(op, fn, tensors, "gradient" if grad else "value")
        except (RuntimeError, NotImplementedError, TypeError) as why:
            # sizes that depend on data, or torch refuses to trace it
            assert not isinstance(why, _native.AirError)


def _supports(op, dtype, grad):
    if grad:
        return dtype in op.supported_backward_dtypes(_device())
    return dtype in op.supported_dtypes(_device())


def _check(op, dtype, grad):
    ran = 0
    if not _supports(op, dtype, grad):
        pytest.skip(f"{_device()} has no kernel of {dtype}")
    torch.manual_seed(0)
    for sample in _samples(op, dtype, grad):
        try:
            for mode in MODES:
                sample.check(mode)
        except Unexpressible:
            continue
        ran += 1
    if not ran:
        pytest.skip("no sample that can be traced")


@pytest.mark.parametrize("op, dtype", list(_forward_cases()))
def test_forward(op, dtype):
    _check(op, dtype, grad=False)


@pytest.mark.parametrize("op", list(_backward_cases()))
def test_backward(op):
    _check(op, torch.float32, grad=True)


def test_expected_names_exist():
    known = {_name(op) for op in op_db}
    named = (
        {name for name, *_ in (*EXPECT, *ON_GPU)}
        | set(ROUGH_ON_GPU)
        | HAS_NO_VALUE
        | set(MADE_OF_CHOICES)
    )
    assert named <= known
