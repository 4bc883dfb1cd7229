"""torchair.ops.npu_print."""

import pytest
import torch
from helpers import make_backend

from torchair.ops import npu_print
from torchair.printing import summary

BACKENDS = [
    "eager",
    "aot_eager",
    "npu",
    make_backend("max-autotune"),
    make_backend("reduce-overhead"),
]


@pytest.mark.parametrize("backend", BACKENDS, ids=str)
def test_lines(capfd, backend):
    def fn(x, y):
        npu_print("hello, tensor:", x)
        z = x * 2
        npu_print(z, 1, True, 2.5, "{} and {0}", y, tensor_detail=True)
        return z.sum()

    run = fn
    if backend != "eager":
        run = torch.compile(fn, backend=backend, fullgraph=True)
    x, y = torch.arange(10), torch.tensor(0.5)
    for _ in range(3):
        assert run(x, y) == 90
        assert capfd.readouterr().out.splitlines() == [
            "hello, tensor: [0 1 2 ... 7 8 9]",
            "tensor([0 2 4 ... 14 16 18], shape=[10], dtype=torch.int64) 1 "
            "True 2.5 {} and {0} tensor(0.5, shape=[], dtype=torch.float32)",
        ]


def test_inputs_that_are_written(capfd):
    """Prints see the value of their place in the program."""

    def fn(x):
        npu_print("before", x)
        x.add_(1)
        npu_print("between", x)
        x.mul_(2)
        npu_print("after", x)

    run = torch.compile(fn, backend=make_backend(), fullgraph=True)
    x = torch.zeros(2)
    for first in (0, 2, 6):
        run(x)
        said = capfd.readouterr().out.split()
        assert said[1::3] == [
            f"[{v}" for v in (first, first + 1, 2 * first + 2)
        ]


def test_gradients_are_no_matter(capfd):
    def fn(x):
        y = x.sin()
        npu_print(y)
        return y.sum()

    x = torch.zeros(2, requires_grad=True)
    torch.compile(fn, backend=make_backend(), fullgraph=True)(x).backward()
    assert x.grad.tolist() == [1, 1]
    assert capfd.readouterr().out == "[0 0]\n"


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.bool,
    ],
)
def test_dtypes(dtype):
    t = torch.tensor([0, 1, 1]).to(dtype)
    assert summary(t, 3) == "[0 1 1]"


def test_summaries():
    assert summary(torch.tensor(3.0), 3) == "3"
    assert summary(torch.tensor([0.1, 1 / 3]), 3) == "[0.100000001 0.333333343]"
    assert summary(torch.empty(2, 0), 3) == "[]"
    assert summary(torch.arange(6), 3) == "[0 1 2 3 4 5]"
    assert summary(torch.arange(7), 3) == "[0 1 2 ... 4 5 6]"
    assert summary(torch.arange(7), -1) == "[0 1 2 3 4 5 6]"
    assert summary(torch.arange(4).reshape(2, 2), 3) == "[[0 1]\n [2 3]]"
    assert summary(torch.arange(9).reshape(3, 3), 1) == (
        "[[0 ... 2]\n ...\n [6 ... 8]]"
    )
    assert summary(torch.tensor([float("inf"), float("nan")]), 1) == "[inf nan]"


@pytest.mark.parametrize(
    "args, keywords, kind, said",
    [
        (("x",), {}, ValueError, "at least one tensor"),
        ((torch.ones(1), None), {}, TypeError, "NoneType"),
        ((torch.ones(1, dtype=torch.complex64),), {}, TypeError, "complex"),
        ((torch.ones(1),), {"summarize_size": 1.0}, TypeError, "float"),
        ((torch.ones(1),), {"summarize_size": 0}, ValueError, "positive"),
        ((torch.ones(1),), {"summarize_size": -2}, ValueError, "-2"),
        ((torch.ones(1),), {"tensor_detail": 1}, TypeError, "bool"),
    ],
)
def test_wrong_arguments(args, keywords, kind, said):
    with pytest.raises(kind, match=said):
        npu_print(*args, **keywords)
