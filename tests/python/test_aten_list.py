"""Every row of the supported ATen list runs compiled as it does eagerly, over
its dtypes, in max-autotune mode."""

import aten_list
import pytest
import torch
from aten_list import HOST
from helpers import assert_same, make_backend, seeded

import torchair


class Maker:
    """Tensors of one dtype."""

    def __init__(self, dtype):
        self.dtype = getattr(torch, dtype)
        self.generator = seeded(1)

    def f(self, *size):
        return torch.randn(*size, generator=self.generator)

    def __call__(self, *size):
        values = self.f(*size)
        if self.dtype == torch.bool:
            return values > 0
        if not self.dtype.is_floating_point and not self.dtype.is_complex:
            values = (
                (values * 3).abs()
                if self.dtype == torch.uint8
                else (values * 3)
            )
        return values.to(self.dtype)

    def p(self, *size):
        """Above zero."""
        if self.dtype == torch.bool:
            return torch.ones(*size, dtype=torch.bool)
        return (self.f(*size).abs() + 1).to(self.dtype)

    def u(self, *size):
        """Between 0.1 and 0.9; integers: small ones."""
        values = torch.rand(*size, generator=self.generator) * 0.8 + 0.1
        if not self.dtype.is_floating_point:
            values = values * 9
        return values.to(self.dtype)

    def i(self, n, *size, dtype=torch.int64):
        return torch.randint(n, size, generator=self.generator).to(dtype)


def row_of(case):
    name, dtypes, make, *grad = case
    return name, dtypes, make, bool(grad and grad[0])


CASES = [
    pytest.param(case, dtype, id=f"{case[0]}-{dtype}")
    for case in aten_list.ROWS
    for dtype in case[1]
]


def test_the_list_is_complete():
    names = [case[0] for case in aten_list.ROWS]
    assert len(names) == len(set(names)) == 151
    assert set(HOST) <= set(names)


@pytest.mark.parametrize(("case", "dtype"), CASES)
def test_row(case, dtype):
    name, dtypes, make, grad = row_of(case)
    f, inputs = make(Maker(dtype))
    torch._dynamo.reset()
    g = torch.compile(
        f,
        backend=make_backend(),
        fullgraph=True,
        dynamic=True if name in ("torch.sym_sum", "math.ceil") else None,
    )
    ours = [x.clone() for x in inputs]
    with torch.no_grad():
        want, got = f(*inputs), g(*ours)
    assert_same(got, want)
    if grad and dtype in (aten_list.S, aten_list.H):
        check_backward(f, g, inputs)


def check_backward(f, g, inputs):
    leaves = [
        x.clone().requires_grad_(x.dtype.is_floating_point) for x in inputs
    ]
    wanted = [x for x in leaves if x.requires_grad]
    want = torch.autograd.grad(f(*leaves).float().sum(), wanted)
    torch._dynamo.reset()
    got = torch.autograd.grad(g(*leaves).float().sum(), wanted)
    assert_same(list(got), list(want))


@pytest.mark.parametrize(
    "case", aten_list.ROWS, ids=[case[0] for case in aten_list.ROWS]
)
def test_who_runs_it(case):
    """In float32 where the row has it, else in its first dtype: the engine,
    but for HOST."""
    name, dtypes, make, _ = row_of(case)
    dtype = "float32" if "float32" in dtypes else dtypes[0]
    f, inputs = make(Maker(dtype))
    torch._dynamo.reset()
    with torch.no_grad():
        said = str(torchair.explain(f, *inputs))
    assert ("HOST" in said) == (name in HOST), said
