"""torchair.ge: builders inside converters, their rules and errors."""

import re
import types

import pytest
import torch
from helpers import assert_same, make_backend

import torchair
from torchair import backend, ge

lib = torch.library.Library("getest", "FRAGMENT")
lib.define("pair(Tensor x, Tensor y) -> Tensor")
lib.impl("pair", lambda x, y: (x + y) * 2, "CompositeExplicitAutograd")
lib.impl("pair", lambda x, y: torch.empty_like(x), "Meta")
OP = torch.ops.getest.pair.default
X = torch.arange(8.0).reshape(2, 4)
Y = torch.full((2, 4), 0.5)


def run(converter, x=X, y=Y, mode="max-autotune", **kwargs):
    """The result of OP, converted so; also whether a HOST node was needed."""
    torchair.register_fx_node_ge_converter(OP)(converter)
    torch._dynamo.reset()

    def f(x, y):
        return torch.ops.getest.pair(x, y)

    g = torch.compile(f, backend=make_backend(mode), **kwargs)
    try:
        with torch.no_grad():
            return g(x, y)
    finally:
        del OP._ge_converter


def fails(converter, error):
    """The message of the exception that a converter's call raises."""
    seen = []

    def convert(x, y):
        with pytest.raises(error) as info:
            converter(x, y)
        seen.append(str(info.value))
        return ge.custom_op("Muls", ge.custom_op("Add", x, y), 2.0)

    assert_same(run(convert), (X + Y) * 2)
    return seen[0]


def scaled(x, y):
    return ge.custom_op("Muls", ge.custom_op("Add", x, y), 2.0)


# ---- converters ----


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda x, y: ge.custom_op("Nope", x), RuntimeError),
        (lambda x, y: ge.custom_op("Add", x), IndexError),
        (lambda x, y: ge.custom_op("Add", x, 1), TypeError),
        (lambda x, y: ge.Const(x), ValueError),
        (lambda x, y: ge.Clone(3), AssertionError),
    ],
)
def test_an_exception_of_a_converter_keeps_its_type(wrong, error):
    """It comes out of the first call, inside torch's but for IndexError, and
    names the operator and the line of the converter."""
    with pytest.raises(Exception) as info:
        run(wrong)
    inner = getattr(info.value, "inner_exception", info.value)
    assert type(inner) is error
    said = (
        r"^the converter of \S*pair.default failed \(.*test_ge.py, line \d+\)"
    )
    assert re.search(said, str(inner))


def test_a_converter_builds_engine_nodes():
    assert_same(run(scaled), (X + Y) * 2)
    explained = torchair.explain(
        torch.compile(lambda x: x * 2, backend=make_backend()), X
    )
    assert "HOST" not in str(explained)


def test_a_converter_runs_for_symbolic_sizes():
    x, y = torch.randn(5, 3), torch.randn(5, 3)
    assert_same(run(scaled, x, y, dynamic=True), (x + y) * 2)


def test_capture_mode_does_not_convert():
    def convert(x, y):
        raise AssertionError("called")

    assert_same(run(convert, mode="reduce-overhead"), (X + Y) * 2)


def test_the_decorator_gives_a_converter_and_registering_again_replaces():
    first = torchair.register_fx_node_ge_converter(OP)(lambda x, y: x)
    assert not isinstance(first, types.FunctionType)
    assert OP._ge_converter is first
    second = torchair.register_fx_node_ge_converter(OP)(scaled)
    assert OP._ge_converter is second
    del OP._ge_converter
    assert torchair.register_fx_node_ge_converter(None)(scaled) is None
    import math

    torchair.register_fx_node_ge_converter(math.gcd)(scaled)
    with pytest.raises(TypeError, match="aten_op is an overload"):
        torchair.register_fx_node_ge_converter("getest::pair")


def test_a_case_that_is_not_implemented_is_left_to_torch():
    def convert(x, y):
        raise NotImplementedError("only on Tuesdays")

    assert_same(run(convert), (X + Y) * 2)


@pytest.mark.parametrize(
    ("converter", "message"),
    [
        (
            lambda x, y: ge.Cast(x, dst_type=1),
            "default gives torch.fl",
        ),
        (
            lambda x, y: ge.custom_op("Transpose", x, ge.Const([1, 0])),
            r"gives torch.float32\[4, 2\] as result 0, .*float32\[2, 4\]",
        ),
        (
            lambda x, y: ge.custom_op("ReduceSum", x, ge.Const([1]), False),
            r"gives torch.float32\[2\] as result 0, .* torch.float32\[2, 4\]",
        ),
        (lambda x, y: (x, y), "gives 2 results, the operator has 1"),
        (lambda x, y: 3, "gives a int as result 0"),
        (
            lambda x, y: x.nothing,
            rf"pair.default failed \({__file__}, line \d+\): .*'nothing'",
        ),
        (lambda x: x, "pair.default failed: .* takes 1 positional"),
    ],
)
def test_wrong_converters_name_the_operator(converter, message):
    with pytest.raises(Exception, match=message):
        run(converter)


def test_meta_outputs():
    seen = []

    def convert(x, y, meta_outputs):
        seen.append(meta_outputs)
        return scaled(x, y)

    run(convert)
    (spec,) = seen
    assert isinstance(spec, ge.TensorSpec)
    assert (spec.dtype, spec.rank, spec.size) == (0, 2, [2, 4])


def test_size_of_a_symbolic_spec():
    def convert(x, y, meta_outputs):
        with pytest.raises(AssertionError, match="symbolic"):
            _ = meta_outputs.size
        return scaled(x, y)

    run(convert, torch.randn(5, 3), torch.randn(5, 3), dynamic=True)


def test_outside_of_a_converter():
    with pytest.raises(RuntimeError, match="inside a converter"):
        ge.Const(1)


def test_aten_operators_can_be_converted():
    op = torch.ops.aten.add.Tensor

    @torchair.register_fx_node_ge_converter(op)
    def convert(x, y, alpha=1):
        return ge.custom_op("Sub", x, y)

    torch._dynamo.reset()
    try:
        got = torch.compile(lambda x, y: x + y, backend=make_backend())(X, Y)
    finally:
        del op._ge_converter
    assert_same(got, X - Y)


# ---- elements ----


def test_tensor_properties():
    def convert(x, y):
        assert isinstance(x, ge.Tensor)
        assert (x.dtype, x.rank, x.index) == (ge.DataType.DT_FLOAT, 2, 0)
        assert x.symsize == [2, 4]
        made = ge.custom_op("Add", x, y)
        assert (made.tensor, made.controller) == ("Add:0", "Add:-1")
        return ge.custom_op("Muls", made, 2.0)

    run(convert)


def test_const_dtypes():
    kinds = ge.DataType

    def convert(x, y):
        assert ge.Const(1).dtype == kinds.DT_INT64
        assert ge.Const(1.5).dtype == kinds.DT_FLOAT
        assert ge.Const([1.5]).dtype == kinds.DT_DOUBLE
        assert ge.Const([]).dtype == kinds.DT_INT32
        assert ge.Const(True).dtype == kinds.DT_BOOL
        assert ge.Const(torch.ones(2).half()).dtype == kinds.DT_FLOAT16
        assert ge.Const([1, 2], dtype=kinds.DT_FLOAT).dtype == kinds.DT_FLOAT
        two = ge.Const([2.0] * 4, dtype=kinds.DT_FLOAT)
        assert two.rank == 1
        return ge.custom_op("Mul", ge.custom_op("Add", x, y), two)

    assert_same(run(convert), (X + Y) * 2)
    text = fails(lambda x, y: ge.Const(x), ValueError)
    assert "not a Tensor" in text


def test_cast_and_clone():
    def convert(x, y):
        half = ge.Cast(x, dst_type=ge.DataType.DT_FLOAT16)
        assert half.dtype == ge.DataType.DT_FLOAT16
        back = ge.Cast(
            ge.Clone(half), dst_type=ge.DataType.DT_FLOAT, dependencies=[y]
        )
        two = ge.Cast(2, dst_type=ge.DataType.DT_FLOAT)
        return ge.custom_op("Mul", ge.custom_op("Add", back, y), two)

    assert_same(run(convert), (X + Y) * 2)
    assert "Clone takes" in fails(lambda x, y: ge.Clone(1), AssertionError)
    fails(lambda x, y: ge.Clone(x, dependencies=[1]), AssertionError)
    fails(lambda x, y: ge.Cast(x, dst_type=13), RuntimeError)


def test_dependencies_come_first():
    def convert(x, y):
        first = ge.custom_op("Muls", y, 3.0)
        later = ge.Clone(x, dependencies=[first])
        twice = ge.custom_op("Muls", ge.custom_op("Add", later, y), 2.0)
        return ge.custom_op("Sub", ge.custom_op("Add", twice, first), first)

    backend.records.clear()
    assert_same(run(convert), (X + Y) * 2)
    text = backend.records[0].program().text(0)
    (line,) = [s for s in text.splitlines() if "air::after" in s]
    assert "= mul" in text.split(line)[0]


def test_names():
    def convert(x, y):
        assert ge.Const(1).tensor == "Const:0"
        assert ge.Const(1).tensor == "Const_1:0"
        assert ge.Clone(x, node_name="mine").tensor == "mine:0"
        with pytest.raises(AssertionError, match="two nodes"):
            ge.Clone(x, node_name="mine")
        with pytest.raises(AssertionError, match="empty"):
            ge.Clone(x, node_name="")
        return scaled(x, y)

    run(convert)


# ---- custom_op ----


def test_dumps_have_the_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def convert(x, y):
        half = ge.Const([0.5] * 4, dtype=0, node_name="half")
        two = ge.Const(2.0, dtype=0, node_name="two")
        made = ge.custom_op("Mul", x, two, node_name="double")
        values, _ = ge.custom_op(
            "TopKV2", made, ge.Const(4), True, 1, True, node_name="ordered"
        )
        made = ge.Cast(values, dst_type=11, node_name="wide")
        made = ge.Clone(ge.Cast(made, dst_type=0), node_name="own")
        return ge.custom_op("Mul", made, half, node_name="last")

    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "txt"
    torchair.register_fx_node_ge_converter(OP)(convert)
    torch._dynamo.reset()
    f = torch.compile(
        lambda x, y: OP(x, y),
        backend=torchair.get_npu_backend(compiler_config=config),
    )
    try:
        assert_same(f(X, Y), X.sort(1, True).values)
    finally:
        del OP._ge_converter
    (text,) = (p.read_text() for p in tmp_path.glob("*original*"))
    for name in ("two", "double", "ordered", "wide", "own", "last"):
        assert f's: "{name}-aten.' in text
    assert 'name: "const_half' in text


def test_custom_op_by_keyword():
    def convert(x, y):
        total = ge.custom_op(
            "AxpyV2",
            inputs={"x1": x, "x2": y, "alpha": ge.Const(1.0)},
            outputs=["y"],
        )
        axes = ge.Const([0])
        kept = ge.custom_op(
            "ReduceMax",
            inputs={"x": total, "axes": axes},
            attrs={"keep_dims": ge.attr.Bool(True)},
            outputs=["y"],
        )
        zero = ge.custom_op("Sub", kept, kept)
        return scaled(total, zero)

    assert_same(run(convert), (X + Y) * 2)


def test_outputs_are_in_the_order_of_the_prototype():
    def convert(x, y):
        index, values = ge.custom_op("ArgMaxWithValue", x, 1, False)
        assert index.dtype == ge.DataType.DT_INT64
        assert values.dtype == ge.DataType.DT_FLOAT
        assert ge.custom_op("Neg", inputs={"x": x}) is None
        return scaled(x, y)

    run(convert)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: ge.custom_op("Nope", x), RuntimeError, "register_op"),
        (lambda x, y: ge.custom_op("Add", x), IndexError, "takes 2"),
        (lambda x, y: ge.custom_op("Add", x, 1), TypeError, "input x2"),
        (lambda x, y: ge.custom_op("Pack", x, 0, 1), TypeError, "a list"),
        (
            lambda x, y: ge.custom_op("Add", inputs={"a": x}),
            AssertionError,
            "no input a",
        ),
        (
            lambda x, y: ge.custom_op(
                "Muls", inputs={"x": x}, attrs={"value": 2.0}
            ),
            AssertionError,
            "attr.X",
        ),
        (
            lambda x, y: ge.custom_op("Neg", inputs={"x": x}, outputs=["q"]),
            AssertionError,
            "no output q",
        ),
        (
            lambda x, y: ge.custom_op("Neg", inputs={"x": x}, outputs="y"),
            AssertionError,
            'outputs is a list of names: ["y"]',
        ),
        (
            lambda x, y: ge.custom_op("Neg", inputs={"x": x}, outputs=["q"]),
            AssertionError,
            "it has y",
        ),
        (
            lambda x, y: ge.custom_op("Neg", inputs=[x], outputs=["y"]),
            AssertionError,
            "inputs is a dict",
        ),
        (
            lambda x, y: ge.custom_op("Muls", inputs={"x": x}, attrs=[2.0]),
            AssertionError,
            "attrs is a dict",
        ),
        (
            lambda x, y: ge.custom_op(
                "Muls", inputs={"x": x}, attrs={"scale": ge.attr.Float(2.0)}
            ),
            AssertionError,
            "Muls has no attribute scale; it has value",
        ),
        (
            lambda x, y: ge.custom_op("Add", inputs={"x1": x}, outputs=["y"]),
            AssertionError,
            "Add: input x2 must be given",
        ),
        (lambda x, y: ge.custom_op("Muls", x, None), RuntimeError, "given"),
        (
            lambda x, y: ge.custom_op("Muls", x, "s"),
            AssertionError,
            "attribute value: Float",
        ),
        (lambda x, y: ge.Const("s"), TypeError, "Const takes a number"),
        (lambda x, y: ge.Const(None), TypeError, "not None"),
        (lambda x, y: ge.Cast(x, dst_type="f"), RuntimeError, "a DataType"),
        (
            lambda x, y: ge.custom_op("TransData", x, "ND", "NZ", 0, 0, 1),
            RuntimeError,
            "kernel",
        ),
        (
            lambda x, y: ge.custom_op("Reshape", x, y, 0, -1),
            RuntimeError,
            "Const",
        ),
    ],
)
def test_errors_of_custom_op(call, error, message):
    assert message in fails(call, error)


@pytest.mark.parametrize(
    ("name", "arguments", "want"),
    [
        ("Relu", lambda x: (x,), torch.relu),
        ("GeluV2", lambda x: (x, "tanh"), None),
        ("Gelu", lambda x: (ge.custom_op("Adds", x, -3.0),), None),
        ("SoftmaxV2", lambda x: (x, [-1], False), lambda x: x.softmax(-1)),
        ("Transpose", lambda x: (x, ge.Const([1, 0])), lambda x: x.t()),
        ("Reshape", lambda x: (x, ge.Const([4, 2]), 0, -1),
         lambda x: x.reshape(4, 2)),
        ("ReduceSum", lambda x: (x, ge.Const([1]), True),
         lambda x: x.sum(1, True)),
        ("FloorDiv", lambda x: (x, x), lambda x: x // x),
        ("ConcatV2", lambda x: ([x, x], ge.Const(0), 2),
         lambda x: torch.cat([x, x])),
        ("MatMul", lambda x: (x, ge.custom_op("Transpose", x, ge.Const([1, 0])),
                              None, False, False), lambda x: x @ x.t()),
        ("GatherV2", lambda x: (x, ge.Const([1, 0]), ge.Const(0), 0, False,
                                False), lambda x: x[[1, 0]]),
        ("Fill", lambda x: (ge.Const([2, 2]), ge.Const(3.0)),
         lambda x: torch.full((2, 2), 3.0, device=x.device)),
        ("MseLoss", lambda x: (x, x, "sum"), lambda x: (x - x).sum()),
        ("Unsqueeze", lambda x: (x, [0]), lambda x: x[None]),
        ("Log1p", lambda x: (x,), torch.log1p),
        ("IndexByTensor", lambda x: (x, [ge.Const([1, 0, 3])], [0, 1]),
         lambda x: x[:, [1, 0, 3]]),
    ],
)  # fmt: skip
def test_types_of_the_table(name, arguments, want):
    """What the type gives, summed, so that OP's own size comes out."""
    functions = {
        "GeluV2": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "Gelu": lambda x: torch.nn.functional.gelu(x - 3, approximate="tanh"),
    }

    def convert(x, y):
        made = ge.custom_op(name, *arguments(x))
        axes = ge.Const(list(range(made.rank)))
        total = ge.custom_op("ReduceSum", made, axes, False)
        return ge.custom_op("Add", ge.custom_op("Sub", x, x), total)

    want = want or functions[name]
    x = X + 1
    assert_same(run(convert, x), x - x + want(x).sum())


# ---- kernels ----


@pytest.mark.parametrize(
    ("prototype", "given", "error", "message"),
    [
        (3, {}, TypeError, "prototype is a str, not int"),
        ("Wrong1", {}, ValueError, "write it like"),
        ("Wrong2(x; a:Intt) -> y", {}, ValueError, "unknown kind 'Intt'; th"),
        ("Wrong3(x; a:Int=z) -> y", {}, ValueError, "default z is no Int"),
        ("Wrong4(x, x) -> y", {}, ValueError, "x stands there twice"),
        ("Wrong5(x) -> y, y", {}, ValueError, "y stands there twice"),
        ("Wrong6(x y) -> z", {}, ValueError, "'x y' is no name"),
        ("Wrong7(x; a) -> y", {}, ValueError, "attribute a has the unknown"),
        ("Wrong8(x) -> y", {"kernel": 3}, TypeError, "kernel is a function"),
        ("Wrong9(x) -> y", {"infer": 3}, TypeError, "infer is a function"),
        ("Add(x) -> y", {}, ValueError, "another prototype: take another n"),
    ],
)
def test_wrong_prototypes(prototype, given, error, message):
    with pytest.raises(error, match=message):
        ge.register_op(prototype, **given)


def test_a_converter_is_a_function():
    with pytest.raises(TypeError, match="a converter is a function, not int"):
        torchair.register_fx_node_ge_converter(OP)(3)
    assert not hasattr(OP, "_ge_converter")


def test_a_registered_kernel():
    ge.register_op(
        "GeTestKernel(x, y?; scale:Float=2.0) -> z",
        kernel=lambda x, y, scale: (x if y is None else x + y) * scale,
    )

    def convert(x, y):
        return ge.custom_op("GeTestKernel", x, y, None)

    assert_same(run(convert), (X + Y) * 2)
    with pytest.raises(ValueError, match="another prototype"):
        ge.register_op("GeTestKernel(x) -> z")
    with pytest.raises(ValueError, match="write it like"):
        ge.register_op("GeTestKernel")


def test_a_kernel_with_a_meta_function():
    """That reads its inputs, which no trace of it may."""
    ge.register_op(
        "GeTestArrays(x, y) -> z",
        kernel=lambda x, y: torch.from_numpy((x.numpy() + y.numpy()) * 2),
        infer=lambda x, y: torch.empty_like(x),
    )
    assert_same(
        run(lambda x, y: ge.custom_op("GeTestArrays", x, y)), (X + Y) * 2
    )


def test_a_kernel_that_writes_an_input():
    def kernel(x, y):
        x.add_(y)
        return y * 2

    ge.register_op("GeTestWrites(x, y) -> x, z", kernel=kernel)

    def convert(x, y):
        new, twice = ge.custom_op("GeTestWrites", x, y)
        return ge.custom_op("Add", ge.custom_op("Add", new, x), twice)

    x = X.clone()
    assert_same(run(convert, x), X + Y + X + Y * 2)
    assert_same(x, X)


# ---- tables ----


def test_data_types_and_formats():
    kinds = ge.DataType
    assert (kinds.DT_FLOAT, kinds.DT_BF16, kinds.DT_UNDEFINED) == (0, 27, 28)
    assert (kinds.DT_INT16, kinds.DT_MAX) == (6, 42)
    assert ge.Format.FORMAT_UNDEFINED.value == -1
    assert ge.Format.FORMAT_FRACTAL_NZ.value == 29
    assert len(ge.Format) == 19
    from torchair.ge.types import ge_dtype, torch_dtype

    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.complex64):
        assert torch_dtype(ge_dtype(dtype)) is dtype
    assert torch_dtype(kinds.DT_HIFLOAT8) is torch.uint8
    with pytest.raises(RuntimeError, match="DT_STRING"):
        torch_dtype(kinds.DT_STRING)


def test_attributes():
    attr = ge.attr
    assert attr.Int(3).value == 3
    assert attr.Int(3) == attr.Int(3) != attr.Float(3)
    assert attr.ListListInt([[1], [2, 3]]).value == [[1], [2, 3]]
    assert attr.DataType(torch.bfloat16).value == 27
    wrong = [(attr.Int, 1.5), (attr.Int, True), (attr.Float, True)]
    for kind, value in [*wrong, (attr.Bool, 1), (attr.ListInt, 3)]:
        with pytest.raises(AssertionError):
            kind(value)

    class Message:
        def __init__(self):
            self.list = types.SimpleNamespace(s=[], i=[], val_type=0)

    proto = attr.Str("none").merge_to(Message())
    assert (proto.s, attr.Str.get(proto)) == (b"none", "none")
    proto = attr.ListInt([1, 2]).merge_to(Message())
    assert (proto.list.val_type, attr.ListInt.get(proto)) == (2, [1, 2])
    proto = attr.ListStr(["a"]).merge_to(Message())
    assert proto.list.val_type == 1
