"""Custom operators in graphs: the samples of both scenarios, in place and
not, in three ways: eager, reduce-overhead, max-autotune."""

import os
import re
import weakref

import pytest
import torch
from helpers import DEVICE, assert_same, make_backend, recorded

import torchair
from torchair import ge

# Scenario 1: all of it is new. Scenario 2 would start at the meta functions.
lib = torch.library.Library("cutest", "FRAGMENT")
lib.define(
    "my_op(Tensor x, Tensor? y, Tensor[] z, float attr1, int attr2) -> Tensor"
)
lib.define("my_inplace(Tensor(a!) x, Tensor y) -> Tensor")
lib.define("scalar(Tensor x, Scalar s) -> Tensor")
lib.define("two_functional(Tensor x) -> (Tensor, Tensor)")


def implement(name, kernel):
    for key in ("CPU", "CUDA"):  # with one for all it would be traced
        lib.impl(name, kernel, key)


def my_op_cpu(x, y, z, attr1, attr2):
    return x * attr1 + (0 if y is None else y) + sum(z) * attr2


def my_inplace_cpu(x, y):
    x.add_(y)
    return y * 2


lib.impl("my_op", my_op_cpu, "CompositeExplicitAutograd")
lib.impl("my_inplace", my_inplace_cpu, "CompositeExplicitAutograd")
lib.impl("scalar", lambda x, s: x * s, "CompositeExplicitAutograd")
lib.impl(
    "two_functional", lambda x: (x + 1, x - 1), "CompositeExplicitAutograd"
)

meta = torch.library.Library("cutest", "IMPL", "Meta")


@torch.library.impl(meta, "my_op")
def my_op_meta(x, y, z, attr1, attr2):
    return torch.empty_like(x)


@torch.library.impl(meta, "my_inplace")
def my_inplace_meta(x, y):
    return torch.empty_like(y)


meta.impl("scalar", lambda x, s: torch.empty_like(x))
meta.impl(
    "two_functional", lambda x: (torch.empty_like(x), torch.empty_like(x))
)
ops = torch.ops.cutest
MODES = ("max-autotune", "reduce-overhead")


def use_op(x, w):
    return ops.my_op(x, None, [w, w], 2.0, 5) + 1


def use_inplace(x, w):
    return ops.my_inplace(x, w) + x


def check(function, mode, dynamic=False):
    """Eager against compiled, results and what is written; twice, so that a
    capture replays. Gives what explain says."""
    torch._dynamo.reset()
    compiled = torch.compile(
        function, backend=make_backend(mode), dynamic=dynamic
    )
    for size in (4, 4, 6) if dynamic else (4, 4, 4):
        x, w = torch.ones(size, 8), torch.full((size, 8), 3.0)
        mine = x.clone()
        want = function(x, w)
        assert_same(compiled(mine, w), want)
        assert_same(mine, x)
    torch._dynamo.reset()
    return str(torchair.explain(compiled, torch.ones(4, 8), torch.ones(4, 8)))


@pytest.fixture
def converter():
    """Registers converters for one test."""
    made = []

    def register(op, function):
        torchair.register_fx_node_ge_converter(op)(function)
        made.append(op)

    yield register
    for op in made:
        del op._ge_converter


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [use_op, use_inplace])
def test_without_a_converter(function, mode, dynamic):
    said = check(function, mode, dynamic)
    assert "HOST cutest" in said
    if mode == "max-autotune" and function is use_op:
        assert "operator type MyOp is not registered" in said


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_samples_converters(converter, dynamic):
    converter(
        ops.my_op.default,
        lambda x, y, z, attr1, attr2: ge.custom_op(
            "MyOp", x, y, z, attr1, attr2
        ),
    )

    def convert_my_inplace(x, y):
        _, z = ge.custom_op(
            "MyInplace", inputs={"x": x, "y": y}, outputs=["x", "z"]
        )
        return z

    converter(ops.my_inplace.default, convert_my_inplace)
    assert "HOST MyOp" in check(use_op, "max-autotune", dynamic)
    assert "HOST MyInplace" in check(use_inplace, "max-autotune", dynamic)


def test_a_converter_into_rows_fuses(converter):
    def convert(x, y, z, attr1, attr2):
        scaled = ge.custom_op("Muls", x, attr1)
        total = ge.custom_op("Add", z[0], z[1])
        return ge.custom_op("AxpyV2", scaled, total, ge.Const(float(attr2)))

    converter(ops.my_op.default, convert)
    said = check(use_op, "max-autotune", True)
    assert "HOST" not in said
    assert said.count("\n  region ") == 1


def test_what_a_converter_builds_stands_where_the_operator_stood(converter):
    def function(x, w):
        with torchair.scope.limit_core_num(1, 1):
            return ops.scalar(x, 2.0)

    converter(
        ops.scalar.default, lambda x, s: ge.custom_op("Muls", x, float(s))
    )
    said = check(function, "max-autotune")
    line = function.__code__.co_firstlineno + 2
    assert f"at {os.path.basename(__file__)}:{line}" in said
    assert "at most 1 threads" in said


def test_constants_of_a_converter_are_apart(converter):
    def convert(x, s):
        more = ge.custom_op("Add", x, ge.Const(list(range(8))))
        one_more = ge.custom_op("Sub", more, ge.Const(list(range(-1, 7))))
        return ge.custom_op("Add", x, ge.custom_op("Adds", one_more, -1.0))

    converter(ops.scalar.default, convert)
    check(lambda x, w: ops.scalar(x, 2.0), "max-autotune")


def test_an_operator_that_writes_must_give_what_it_writes(converter):
    converter(ops.my_inplace.default, lambda x, y: ge.custom_op("Muls", y, 2.0))
    with pytest.raises(Exception, match=r"does not give the outputs \['x'\]"):
        check(use_inplace, "max-autotune")


def test_assign_says_what_an_argument_becomes(converter):
    def convert(x, y):
        with pytest.raises(RuntimeError, match="Assign writes an argument"):
            ge.custom_op("Assign", ge.Clone(x), y, True, False)
        new = ge.custom_op("Add", x, y)
        ge.custom_op("Assign", x, new, True, False)
        return ge.custom_op("Muls", y, 2.0)

    converter(ops.my_inplace.default, convert)
    assert "HOST" not in check(use_inplace, "max-autotune", True)


def test_automatic_conversion():
    ge.register_op("Scalar(x; s:Float!) -> y", kernel=lambda x, s: x * s)
    ge.register_op("Two(x) -> y1, y2", kernel=lambda x: (x + 1, x - 1))

    def two(x, w):
        a, b = ops.two_functional(x)
        return a * b + w

    assert "HOST Two" in check(two, "max-autotune")
    said = check(lambda x, w: ops.scalar(x, 2) + w, "max-autotune")
    assert "argument s is a Scalar" in said


def test_automatic_conversion_writes_in_place():
    lib.define("auto_write(Tensor(a!) x, Tensor y) -> Tensor")

    def kernel(x, y):
        x.mul_(y)
        return y + 1

    lib.impl("auto_write", kernel, "CompositeExplicitAutograd")
    meta.impl("auto_write", lambda x, y: torch.empty_like(y))
    ge.register_op("AutoWrite(x, y) -> x, z", kernel=kernel)
    said = check(lambda x, w: ops.auto_write(x, w) + x, "max-autotune")
    assert "HOST AutoWrite" in said


@pytest.mark.parametrize(
    ("prototype", "reason"),
    [
        ("Mismatch1(x) -> y", "has 2 inputs, operator type Mismatch1 1"),
        ("Mismatch2(x, y; a:Int!) -> z", "has 0 attrs"),
        ("Mismatch3(x, y) -> z, w", "has 1 outputs"),
        ("Mismatch4(x, y) -> x", r"writes \[\], operator type Mismatch4"),
    ],
)
def test_why_there_is_no_automatic_converter(prototype, reason):
    from torchair.converters import automatic

    name = "mismatch" + prototype[8]
    lib.define(f"{name}(Tensor x, Tensor y) -> Tensor")
    ge.register_op(prototype, kernel=lambda x, y: x)
    with pytest.raises(RuntimeError, match=reason):
        automatic(getattr(ops, name).default)


def test_there_is_none_for_other_things():
    from torchair.converters import automatic

    for op, reason in (
        (torch.ops.aten.add.Tensor, "PyTorch's own"),
        (len, "no operator overload"),
        (ops.scalar.default, "is a Scalar"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            automatic(op)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_what_an_operator_leaves_is_a_result_as_it_lies(mode):
    left = []

    def kernel(x):
        y = x * 3
        left.append(weakref.ref(y))
        return y, (x + 1).t()

    with torch.library._scoped_library("cutest", "FRAGMENT") as own:
        own.define("left(Tensor x) -> (Tensor, Tensor)")
        own.impl("left", kernel, "CompositeExplicitAutograd")
        own.impl("left", lambda x: (x + 0, (x + 1).t()), "Meta")
        fn = torch.compile(
            lambda x: torch.ops.cutest.left(x * 2),
            backend=make_backend(mode),
        )
        x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
        kept = []
        for i in range(4):
            y, turned = fn(x + i)
            assert y.data_ptr() == left[-1]().data_ptr()
            kept.append((y, (x + i) * 6))
            torch.testing.assert_close(turned, ((x + i) * 2 + 1).t())
            assert not turned.is_contiguous()
        for y, want in kept:
            torch.testing.assert_close(y, want)
        del kept, y
        assert all(ref() is None for ref in left)


def test_manual_functionalisation():
    """An operator that writes, replaced by its functional twin by hand."""
    lib.define("twin(Tensor x, Tensor y) -> (Tensor, Tensor)")
    lib.impl("twin", lambda x, y: (y * 2, x + y), "CompositeExplicitAutograd")
    meta.impl("twin", lambda x, y: (torch.empty_like(y), torch.empty_like(x)))

    def function(x, w):
        z, new = ops.twin(x, w)
        x.copy_(new)
        return z + x

    for mode in MODES:
        check(function, mode)


# ---- operators that write ----

lib.define("bump(Tensor(a!) x, Tensor y) -> ()")
lib.define("both(Tensor(a!) x, Tensor(b!) y, Tensor(c!)? z) -> Tensor")


def bump_cpu(x, y):
    x.copy_(x + y)


def become_cpu(x, y):
    x.copy_(y)


def both_cpu(x, y, z):
    total = x + y
    x.copy_(total)
    y.copy_(total * 2)
    return total + 1


implement("bump", bump_cpu)
implement("both", both_cpu)
meta.impl("bump", lambda x, y: None)
lib.define("become(Tensor(a!) x, Tensor y) -> ()")
implement("become", become_cpu)
meta.impl("become", lambda x, y: None)
meta.impl("both", lambda x, y, z: torch.empty_like(x))


def convert_bump(x, y, meta_outputs=None):
    assert meta_outputs == []
    ge.custom_op("Assign", x, ge.custom_op("Add", x, y), True, False)


def convert_both(x, y, z):
    assert z is None
    total = ge.custom_op("Add", x, y)
    ge.custom_op("Assign", x, total, True, False)
    ge.custom_op("Assign", y, ge.custom_op("Muls", total, 2.0), True, False)
    return ge.custom_op("Adds", total, 1.0)


def use_bump(x, w):
    ops.bump(x, w)
    return x * 2


def use_both(x, w):
    w = w + 0
    return ops.both(x, w, None) + w


@pytest.mark.parametrize("function", [use_bump, use_both])
def test_nothing_returned_and_arguments_absent(converter, function):
    for mode in MODES:
        check(function, mode)
    converter(ops.bump.default, convert_bump)
    converter(ops.both.default, convert_both)
    assert "HOST" not in check(function, "max-autotune", True)


@pytest.mark.parametrize("given", [lambda w: w[0], lambda w: w[:1]])
def test_what_is_assigned_takes_the_arguments_size(converter, given):
    op = ops.become.default

    def convert(x, y):
        ge.custom_op("Assign", x, y, True, False)

    def function(x, w):
        op(x, given(w))
        return x.reshape(-1) * 2

    converter(op, convert)
    assert "HOST" not in check(function, "max-autotune")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: ops.bump(x, x) or x + w,
        lambda x, w: ops.bump(x, x[:1]) or x + w,
        lambda x, w: ops.both(x, x, None) + x,
    ],
)
def test_arguments_that_are_one_tensor(converter, function):
    """What is written last counts, as in eager mode."""
    for mode in MODES:
        check(function, mode)
    converter(ops.bump.default, convert_bump)
    converter(ops.both.default, convert_both)
    check(function, "max-autotune")


# ---- kernels and Meta functions that are wrong ----


def wrong(kernel, made=torch.empty_like):
    name = f"wrong{len(torch.ops.cutest.__dict__)}"
    lib.define(f"{name}(Tensor x) -> Tensor")
    implement(name, kernel)
    meta.impl(name, made)
    return getattr(ops, name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kernel", "made", "error", "message"),
    [
        (
            lambda x: x * 1,
            lambda x: torch.empty_like(x, dtype=torch.float64),
            RuntimeError,
            r"result 0 is torch.float32\[2, 3\], its Meta function says "
            r"torch.float64\[2, 3\].*correct the Meta function",
        ),
        (
            lambda x: x * 1,
            lambda x: x.new_empty(3, 2),
            RuntimeError,
            r"cutest::wrong\d+: result 0 is .*\[2, 3\], its .*\[3, 2\]",
        ),
        (
            lambda x: None,
            torch.empty_like,
            TypeError,
            r"cutest.wrong\d+.default: the kernel gives a NoneType where",
        ),
    ],
)
def test_wrong_kernels_are_told(mode, kernel, made, error, message):
    op = wrong(kernel, made)
    torch._dynamo.reset()
    f = torch.compile(lambda x: op(x) + 1, backend=make_backend(mode))
    with pytest.raises(error, match=message):
        f(torch.ones(2, 3))


def test_graphs_say_which_integers_they_are_told():
    """A GPU records them for each of these, not for what others read."""

    def fn(x, n, m, k):
        return ops.scalar(x * m, 2 * n + x.shape[0]) + k

    x = torch.arange(6.0).reshape(2, 3)
    compiled = torch.compile(fn, backend="torchair", dynamic=True)
    with recorded() as records:
        for n, m, k in ((2, 3, 4), (3, 4, 5), (3, 5, 6)):
            assert torch.equal(compiled(x, n, m, k), fn(x, n, m, k))
    (record,) = records
    text = record.program().text(0)
    (told,) = re.findall(r"= host .*reads \[(.*?)\]", text)
    symbols = dict(re.findall(r"([\w.]+): int = (s\d+)", text))
    assert set(told.split(", ")) == {symbols["n"], symbols["x.size.0"]}
