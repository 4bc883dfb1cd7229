"""Every row of the supported ATen list runs compiled as it does eagerly: its
overloads and optional arguments, over its dtypes, in both modes, with sizes
that are fixed and that change."""

import re

import aten_list
import pytest
import torch
from aten_variants import VARIANTS
from helpers import (
    BEFORE_213,
    DEVICE,
    assert_same,
    copy_of,
    make_backend,
    recorded,
    seeded,
)

from torchair import importer


class Maker:
    """Tensors of one dtype; grown: sizes but 1 are twice as large."""

    def __init__(self, dtype, grown=False):
        self.dtype = getattr(torch, dtype)
        self.grown = grown
        self.generator = seeded(1)

    def size(self, size):
        return [n * 2 if self.grown and n > 1 else n for n in size]

    def f(self, *size):
        return torch.randn(self.size(size), generator=self.generator)

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
            return torch.ones(self.size(size), dtype=torch.bool)
        return (self.f(*size).abs() + 1).to(self.dtype)

    def u(self, *size):
        """Between 0.1 and 0.9; integers: small ones."""
        size = self.size(size)
        values = torch.rand(size, generator=self.generator) * 0.8 + 0.1
        if not self.dtype.is_floating_point:
            values = values * 9
        return values.to(self.dtype)

    def i(self, n, *size, dtype=torch.int64):
        size = self.size(size)
        return torch.randint(n, size, generator=self.generator).to(dtype)


def row_of(case):
    name, dtypes, make, *grad = case
    return name, dtypes, make, bool(grad and grad[0])


COMBINATIONS = (
    ("max-autotune", False),
    ("reduce-overhead", True),
    ("reduce-overhead", False),
    ("max-autotune", True),
)


def main_dtype(case):
    return aten_list.S if aten_list.S in case[1] else case[1][0]


def _cases():
    """Dtypes take turns in the combinations of mode and sizes, the main one
    in the second; a row of few dtypes has them all in its first."""
    for case in aten_list.ROWS:
        main = main_dtype(case)
        dtypes = [d for d in case[1] if d != main]
        dtypes.insert(1, main)
        for i, combination in enumerate(COMBINATIONS):
            for dtype in dtypes[i::4] or dtypes[:1]:
                mode, dynamic = combination
                sizes = "dynamic" if dynamic else "static"
                yield pytest.param(
                    case, dtype, mode, dynamic,
                    id=f"{case[0]}-{dtype}-{mode}-{sizes}",
                )  # fmt: skip


CASES = list(_cases())


def calls_of(case):
    return [case[2], *VARIANTS.get(case[0], ())]


def accepted(make, dtype, grown=False):
    """(function, inputs) where eager takes the call, else None."""
    try:
        f, inputs = make(Maker(dtype, grown))
        with torch.no_grad():
            f(*copy_of(tuple(inputs)))
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    return f, inputs


def joined(parts):
    """One function of all the calls."""
    counts = [len(inputs) for _, inputs in parts]

    def f(*all_inputs):
        out, start = [], 0
        for (g, _), n in zip(parts, counts, strict=True):
            out.append(g(*all_inputs[start : start + n]))
            start += n
        return out

    return f, [x for _, inputs in parts for x in inputs]


def same(f, g, inputs):
    """Results, and what became of the inputs."""
    mine, theirs = copy_of(tuple(inputs)), copy_of(tuple(inputs))
    with torch.no_grad():
        torch.manual_seed(3)
        want = f(*theirs)
        torch.manual_seed(3)
        got = g(*mine)
    assert_same(got, want)
    assert_same(mine, theirs)


def test_the_list_is_complete():
    names = [case[0] for case in aten_list.ROWS]
    assert len(names) == len(set(names)) == 151
    assert set(aten_list.HOST) <= set(names)
    assert set(VARIANTS) == set(names)
    assert set(aten_list.computed_by()) == set(names)


@pytest.mark.parametrize(
    "case", aten_list.ROWS, ids=[case[0] for case in aten_list.ROWS]
)
def test_every_call_is_one(case):
    """That eager takes it for a dtype of the row; the first, for all."""
    for i, make in enumerate(calls_of(case)):
        found = [d for d in case[1] if accepted(make, d)]
        assert found == list(case[1]) if i == 0 else found, i


_MADE = "Dynamo of this torch makes it on the CPU"
_ZERO = "what a division by 0 gives is not defined there"
# Rows that a GPU cannot be compared in: why, up to torch 2.12 or of any.
OLD = {
    **dict.fromkeys(("torch.arange", "torch.linspace", "torch.scatter"), _MADE),
    **dict.fromkeys(("torch.rand", "torch.randn", "torch.randint"), _MADE),
    "torch.nn.functional.grid_sample": "it has no Meta function there",
    "torch._native_batch_norm_legit": "its Meta function says float16",
}
ANY = {"torch.remainder": _ZERO}


def _is_comparable(name):
    why = ANY.get(name) or (OLD.get(name) if BEFORE_213 else None)
    if DEVICE.type == "cuda" and why:
        pytest.skip(f"on a GPU: {why}")


@pytest.mark.parametrize(("case", "dtype", "mode", "dynamic"), CASES)
def test_row(case, dtype, mode, dynamic):
    _is_comparable(case[0])
    makes = [m for m in calls_of(case) if accepted(m, dtype)]
    grows = (mode, dtype) == ("reduce-overhead", main_dtype(case)) and dynamic
    grown = [m for m in makes if grows and accepted(m, dtype, True)]
    f, inputs = joined([m(Maker(dtype)) for m in grown or makes])
    torch._dynamo.reset()
    g = torch.compile(
        f,
        backend=make_backend(mode),
        fullgraph=case[0] not in aten_list.BREAKS,
        dynamic=dynamic,
    )
    same(f, g, inputs)
    if grown:
        _, inputs = joined([m(Maker(dtype, True)) for m in grown])
        same(f, g, inputs)
    grad = row_of(case)[3]
    if grad and dtype in aten_list.FLOAT:
        f, inputs = case[2](Maker(dtype))
        check_backward(f, mode, inputs)


def check_backward(f, mode, inputs):
    leaves = [
        x.clone().requires_grad_(x.dtype.is_floating_point) for x in inputs
    ]
    wanted = [x for x in leaves if x.requires_grad]
    want = torch.autograd.grad(f(*leaves).float().sum(), wanted)
    torch._dynamo.reset()
    g = torch.compile(f, backend=make_backend(mode), fullgraph=True)
    got = torch.autograd.grad(g(*leaves).float().sum(), wanted)
    assert_same(list(got), list(want))


@pytest.mark.host("aten_rows.txt is of the CPU")
@pytest.mark.parametrize(
    "case", aten_list.ROWS, ids=[case[0] for case in aten_list.ROWS]
)
def test_who_runs_it(case, monkeypatch):
    """In float32 where the row has it, else in its first dtype: the rows of
    the engine that aten_rows.txt names, and HOST where aten_list says why."""
    name, dtype = case[0], main_dtype(case)
    rows, hosts = set(), set()
    import_graph = importer.import_graph

    def seen(*args):
        found = import_graph(*args)
        rows.update(re.findall(r" = ([\w:.]+)[(<]", found.graph.text()))
        return found

    monkeypatch.setattr(importer, "import_graph", seen)
    for make in calls_of(case):
        part = accepted(make, dtype)
        if part is None:
            continue
        torch._dynamo.reset()
        with torch.no_grad(), recorded() as records:
            torch.compile(part[0], backend=make_backend())(*part[1])
        assert not [r.fallback for r in records if r.fallback]
        hosts |= {h.op for r in records for h in r.hosts}
    assert bool(hosts) == (name in aten_list.HOST), hosts
    want = aten_list.computed_by()[name]
    found = ", ".join(sorted(rows - {"air::host"})) or "-"
    other = aten_list.TILL_2_12 if BEFORE_213 else aten_list.SINCE_2_14
    if found != other.get(name):
        assert want == found, "aten_rows.txt"
