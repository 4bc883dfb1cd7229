"""What a caller can get wrong is an exception that says what."""

import re

import pytest
import torch
from helpers import assert_same, compiled, make_backend
from torch import nn

import torchair
from torchair import _native, cuda
from torchair.capture import CaptureOptions

ADD = """graph f(%x: f32[s0, 4], %b: f32[4]) {
  %1: f32[s0, 4] = add.Tensor(%x, %b)
  return %1
}
"""


@pytest.fixture(scope="module", autouse=True)
def _engine():
    compiled(lambda x: x + 1)(torch.ones(1))


X, B = torch.zeros(3, 4), torch.zeros(4)


class Plain(torch.Tensor):
    pass


def program(text=ADD, args=("float32", "float32"), results=1, **kwargs):
    outs = tuple(("result", i, "float32") for i in range(results))
    return _native.Program(
        _native.Graph.parse(text), args, (), results, outs, (), **kwargs
    )


@pytest.mark.host("a program of a text is of host memory")
def test_direct_call():
    x, b = torch.randn(3, 4), torch.randn(4)
    p = program()
    assert_same(p(x, b)[0], x + b)
    args = [x, b]
    assert_same(p(args)[0], x + b)
    assert args == []
    assert_same(p(x.t().contiguous().t(), b)[0], x + b)


@pytest.mark.host("a program of a text is of host memory")
@pytest.mark.parametrize(
    "args, error, text",
    [
        (
            (X,),
            TypeError,
            "b (input 1) is missing: 2 inputs expected, got 1",
        ),
        ((X, B, B), TypeError, "2 inputs expected, got 3"),
        ((X, 5), TypeError, "b (input 1) is not a tensor but int"),
        ((X, None), TypeError, "b (input 1) is not a tensor but NoneType"),
        (
            (X, B.double()),
            TypeError,
            "b (input 1) is float64, float32 is expected: convert it with "
            ".to(torch.float32)",
        ),
        (
            (X, B.to("meta")),
            ValueError,
            "b (input 1) is on device meta, not in host memory",
        ),
        (
            (X.to("meta").as_subclass(Plain), B),
            ValueError,
            "x (input 0) cannot be read: ",
        ),
        (
            (X.to_sparse(), B),
            torchair.AirUnsupportedError,
            "x (input 0) has layout torch.sparse_coo",
        ),
        (
            (torch.zeros(3, 5), B),
            ValueError,
            "%x (input 0 of graph f) has size 5 in dim 1, the graph wants 4",
        ),
        (
            (X, torch.zeros(5)),
            ValueError,
            "%b (input 1 of graph f) has size 5 in dim 0, the graph wants 4",
        ),
        (
            (torch.zeros(3), B),
            ValueError,
            "%x (input 0 of graph f) has 1 dims, the graph wants 2",
        ),
    ],
)
@pytest.mark.parametrize("captured", [False, True])
def test_wrong_input(args, error, text, captured):
    p = program(capture=CaptureOptions() if captured else None)
    for call in (lambda: p(*args), lambda: p(list(args))):
        with pytest.raises(error, match=re.escape(text)):
            call()
    assert_same(p(torch.ones(2, 4), torch.ones(4))[0], torch.full((2, 4), 2.0))


@pytest.mark.host("a program of a text is of host memory")
def test_wrong_input_changes_nothing():
    p = program()
    args = [torch.zeros(3, 4), torch.zeros(5)]
    with pytest.raises(torchair.AirShapeError):
        p(args)
    assert len(args) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("graph", "1:6: expected the name of the graph"),
        ("graph f(%x: f99[4]) { return %x }", "1:13: unknown dtype 'f99'"),
        (ADD.replace("add.Tensor", "no_such_op"), "2:20: unknown op 'no_such"),
        (ADD.replace("%b)\n", "%c)\n"), "2:36: unknown value 'c'"),
        (ADD.replace("%1: f32", "%1: i64"), "2:4: the op gives f32.*says i64"),
        (ADD[:-10], "3:3: unknown op 're'"),
        ("", "1:1: expected 'graph' or 'sym'"),
    ],
)
def test_text_with_errors(text, error):
    with pytest.raises(torchair.AirError, match=error):
        _native.Graph.parse(text)


def test_exceptions_fit():
    assert issubclass(torchair.AirShapeError, ValueError)
    assert issubclass(torchair.AirDtypeError, TypeError)
    assert issubclass(torchair.AirMemoryError, MemoryError)
    assert issubclass(torchair.AirUnsupportedError, NotImplementedError)
    assert issubclass(torchair.AirError, RuntimeError)


def test_host_exception_arrives():
    @torch.library.custom_op("torchair_test::fails", mutates_args=())
    def fails(x: torch.Tensor) -> torch.Tensor:
        if x[0] > 0:
            raise KeyError("from the operator")
        return x.clone()

    @fails.register_fake
    def _(x):
        return torch.empty_like(x)

    run = compiled(lambda x: fails(x * 1) + 1)
    assert_same(run(torch.zeros(2)), torch.ones(2))
    with pytest.raises(KeyError, match="from the operator"):
        run(torch.ones(2))
    assert_same(run(torch.zeros(2)), torch.ones(2))


def test_host_result_of_another_shape():
    @torch.library.custom_op("torchair_test::lies", mutates_args=())
    def lies(x: torch.Tensor) -> torch.Tensor:
        return x[:1].clone()

    @lies.register_fake
    def _(x):
        return torch.empty_like(x)

    with pytest.raises(RuntimeError, match="another dtype or shape"):
        compiled(lambda x: lies(x * 1) + 1)(torch.zeros(2))


def test_builder_refuses():
    g = _native.Graph("g")
    with pytest.raises((ValueError, TypeError)):
        g.input("x", 99, [g.dim(3)])
    with pytest.raises(ValueError):
        g.dim_op("**", g.dim(2), g.dim(3))
    with pytest.raises(torchair.AirError):
        g.node("no_such_op", (), None, 1)
    with pytest.raises(TypeError):
        g.input("x", 1, "dims")


def test_program_refuses():
    g = _native.Graph.parse(ADD)
    with pytest.raises(TypeError):
        _native.Program(g, ("float31", "float32"), (), 1, (), ())
    with pytest.raises(ValueError):
        _native.Program(
            g, ("float32",) * 2, (), 1, (("result", 5, "int8"),), ()
        )
    with pytest.raises(TypeError):
        _native.Program("graph", (), (), 0, (), ())


def test_keyword_arguments_of_a_program():
    with pytest.raises(TypeError, match="keywords"):
        program()(x=torch.zeros(3, 4))


def test_every_prefix_of_a_text():
    whole = ADD.rstrip()
    assert _native.Graph.parse(whole)
    for end in range(len(whole)):
        with pytest.raises(torchair.AirError) as caught:
            _native.Graph.parse(whole[:end])
        assert str(caught.value)


def test_freed_and_resized_inputs():
    run = torch.compile(lambda x: x * 2, backend=make_backend())
    x = torch.ones(8)
    run(x)
    x.resize_(4)
    assert_same(run(x), torch.full((4,), 2.0))
    x.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"x \(input 1\) has less memory"):
        run(x)
    assert_same(run(torch.ones(8)), torch.full((8,), 2.0))


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("size", [0, 16])
def test_parameter_without_its_memory(mode, size):
    net = nn.Linear(4, 4)
    run = torch.compile(net, backend=make_backend(mode))
    x = torch.randn(3, 4)
    with torch.no_grad():
        want = run(x)
        storage, kept = net.weight.untyped_storage(), net.weight.clone()
        storage.resize_(size)
        for _ in range(2):
            text = r"^fn.weight \(input 0\) has less memory"
            with pytest.raises(ValueError, match=text):
                run(x)
        storage.resize_(kept.nbytes)
        net.weight.copy_(kept)
        assert_same(run(x), want)


INTS = """graph f(%x: f32[s0], n: int) {
  %1: f32[s0] = add.Tensor(%x, n)
  return %1
}
"""


@pytest.mark.host("a program of a text is of host memory")
@pytest.mark.parametrize(
    "value, error, text",
    [
        ("2", TypeError, "n (input 1) is '2', an integer is expected"),
        (2.0, TypeError, "n (input 1) is 2.0, an integer is expected"),
        (2**63, OverflowError, f"n (input 1) is {2**63}: integers have 64"),
    ],
)
def test_wrong_integer(value, error, text):
    p = program(INTS, ("float32", "int"))
    with pytest.raises(error, match=re.escape(text)):
        p(torch.zeros(3), value)
    assert_same(p(torch.zeros(3), 2)[0], torch.full((3,), 2.0))


def free(tensor):
    tensor.untyped_storage().resize_(0)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "lost, name",
    [
        (lambda net, x, cache: x, "x"),
        (lambda net, x, cache: cache["k"], "cache.k"),
        (lambda net, x, cache: cache["v"][1], "cache.v.1"),
        (lambda net, x, cache: net.layers[1].bias, "self.layers.1.bias"),
        (lambda net, x, cache: net.scale, "self.scale"),
    ],
)
def test_freed_inputs_are_called_what_the_user_calls_them(mode, lost, name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            self.register_buffer("scale", torch.ones(4))

        def forward(self, x, cache):
            cache["k"].add_(x.sum(0))
            return self.layers(x) * self.scale + cache["k"] * cache["v"][1]

    net, x = Net(), torch.ones(3, 4)
    cache = {"k": torch.ones(4), "v": [torch.ones(4), torch.ones(4)]}
    run = torch.compile(net, backend=make_backend(mode))
    with torch.no_grad():
        run(x, cache)
        free(lost(net, x, cache))
        with pytest.raises(ValueError, match=rf"^{name} \(input \d\) has less"):
            run(x, cache)


def test_freed_gradient_has_a_name():
    x = torch.ones(3, requires_grad=True)
    y = compiled(lambda x: x * x * 3)(x)
    lost = torch.ones(3)
    free(lost)
    with pytest.raises(ValueError, match=r"^grad_of_output.0 \(input \d\)"):
        y.backward(lost)


@pytest.mark.host("it is a layout of the CPU")
def test_layout_that_the_engine_does_not_read_runs_with_torch():
    run = compiled(lambda x: x * 2)
    got = run(torch.ones(3).to_mkldnn())
    assert_same(got.to_dense(), torch.full((3,), 2.0))


def test_parameter_with_other_memory():
    net = nn.Linear(4, 4)
    run = torch.compile(net, backend=make_backend())
    x = torch.randn(3, 4)
    with torch.no_grad():
        run(x)
        net.weight.set_(torch.randn(4, 4).t())
        assert_same(run(x), net(x))
        net.weight.data = torch.randn(4, 4)
        assert_same(run(x), net(x))
        net.weight.set_(torch.randn(6, 4))
        net.bias.set_(torch.randn(6))
        assert_same(run(x), net(x))


@pytest.mark.host("a program of a text is of host memory")
def test_constant_without_its_memory():
    p = program()
    x, b = torch.ones(3, 4), torch.ones(4)
    part = torch.ones(8)[4:]
    assert_same(p(x, part)[0], x + 1)
    part.untyped_storage().resize_(16)
    with pytest.raises(ValueError, match=r"b \(input 1\) has less memory"):
        p(x, part)
    assert_same(p(x, b)[0], x + b)


def test_other_dtype_and_device_of_a_compiled_model():
    net = nn.Linear(4, 4)
    run = compiled(net)
    with torch.no_grad():
        for x in (torch.randn(3, 4), torch.randn(3, 4, dtype=torch.float64)):
            if x.dtype is torch.float32:
                assert_same(run(x), net(x))
                continue
            with pytest.raises(RuntimeError, match="dtype"):
                run(x)
        with pytest.raises(RuntimeError, match="device|meta"):
            run(torch.randn(3, 4, device="meta"))
        x = torch.randn(3, 4)
        assert_same(run(x), net(x))


def test_operator_that_gives_a_zero_tensor():
    """_efficientzerotensor has no memory to read."""
    x = torch.randn(5, requires_grad=True)
    compiled(lambda x: x.sgn() * 2)(x).sum().backward()
    assert_same(x.grad, torch.zeros(5))


def test_result_of_another_device_runs_with_torch():
    run = compiled(lambda x: x.to("meta") + 1)
    assert run(torch.ones(2)).device.type == "meta"


@pytest.mark.host("torch's assertion ends CUDA in that process")
@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: torch.nn.functional.embedding(i, x),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i[:, None]),
        lambda x, i: x.scatter(0, i[:, None], x),
        lambda x, i: x.index_add(0, i, x[:2]),
    ],
    ids=["embedding", "index_select", "gather", "scatter", "index_add"],
)
def test_an_index_below_zero_is_refused_where_eager_refuses_it(read):
    x, i = torch.randn(4, 3), torch.tensor([0, -1])
    with pytest.raises((IndexError, RuntimeError)):
        read(x, i)
    with pytest.raises(IndexError, match="index -1 is out of range"):
        compiled(read)(x, i)
    assert_same(compiled(lambda x, i: x[i])(x, i), x[i])


@pytest.mark.parametrize(
    "name, text, why",
    [
        ("PATIENCE", "2s", "give milliseconds"),
        ("PATIENCE", "-1", "give milliseconds"),
        ("PATIENCE", "1.5", "give milliseconds"),
        ("PERSISTENT", "yes", "give 0 "),
        ("PERSISTENT", "2", "give 0 "),
    ],
)
def test_a_variable_that_is_not_understood(monkeypatch, name, text, why):
    name = f"TORCHAIR_CUDA_{name}"
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=f"{name} is {text!r}; {why}"):
        cuda.start_once()
