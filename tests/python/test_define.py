"""torchair.ops.define: eager, meta, compiled, autograd, errors."""

import itertools

import pytest
import torch
from helpers import assert_same, compiled, make_backend

import torchair
from torchair import ops

numbers = itertools.count()
MODES = ("max-autotune", "reduce-overhead")


def name():
    return f"deftest::op{next(numbers)}"


def check(op, reference, *args, modes=MODES):
    """The operator against a function, eager and compiled; float64 too."""
    assert_same(op(*args), reference(*args))
    for mode in modes:
        torch._dynamo.reset()
        assert_same(compiled(lambda *a: op(*a), mode)(*args), reference(*args))
    wide = [a.double() if isinstance(a, torch.Tensor) else a for a in args]
    assert_same(op(*wide), reference(*wide))


def test_one_text_makes_the_operator():
    op = ops.define(
        f"{name()}(Tensor a, Tensor b) -> Tensor", body="a * sigmoid(b) + 1"
    )
    check(op, lambda a, b: a * b.sigmoid() + 1, *torch.randn(2, 3, 5))
    assert op is torch.ops.deftest.op0.default


def test_it_broadcasts_and_promotes():
    op = ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body="a + b / 2")
    a, b = torch.randn(4, 1, 3), torch.randint(0, 9, (5, 1))
    check(op, lambda a, b: a + b / 2, a, b)
    check(op, lambda a, b: a + b / 2, a.bfloat16(), b)
    got = op(torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int32))
    assert got.dtype == torch.float32


def test_numbers_defaults_and_keywords():
    op = ops.define(
        f"{name()}(Tensor a, float s=2.0, int n=3, *, bool flip=False)"
        " -> Tensor",
        body="a * (1 - s) + n + flip",
    )
    x = torch.randn(6)
    check(lambda a: op(a), lambda a: a * -1 + 3, x)
    check(lambda a: op(a, n=5, flip=True), lambda a: a * -1 + 6, x)


@pytest.mark.parametrize(
    ("body", "reference"),
    [
        ("a < b ? a : b", torch.minimum),
        ("max(a, 0) - min(b, 0)", lambda a, b: a.clamp_min(0) - b.clamp_max(0)),
        ("2 / a", lambda a, b: 2 / a),
        ("1 - a", lambda a, b: 1 - a),
        ("(a > 0) && !(b > 0)", lambda a, b: (a > 0) & ~(b > 0)),
        ("m = mean(a, -1); v = mean(square(a - m), -1);"
         "(a - m) * rsqrt(v + 1e-5) * b",
         lambda a, b: torch.nn.functional.layer_norm(a, a.shape[-1:]) * b),
        ("e = exp(a - amax(a, -1)); e / sum(e, -1)",
         lambda a, b: a.softmax(-1)),
        ("pow(abs(a) + 1, b)", lambda a, b: (a.abs() + 1) ** b),
        ("where(a == b, 1.0, tanh(a))", lambda a, b: a.tanh()),
        ("0 < a ? 1 : -1", lambda a, b: torch.where(a > 0, 1, -1)),
        ("t = a; t = t * t; t + b", lambda a, b: a * a + b),
    ],
)  # fmt: skip
def test_bodies(body, reference):
    op = ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body=body)
    check(op, reference, *torch.randn(2, 4, 8), modes=MODES[:1])


def test_several_results():
    op = ops.define(
        f"{name()}(Tensor a, Tensor b) -> (Tensor, Tensor)",
        body="x = a + b; y = a - b",
    )
    check(op, lambda a, b: (a + b, a - b), *torch.randn(2, 3))


def test_results_do_not_alias_parameters():
    op = ops.define(f"{name()}(Tensor a) -> (Tensor, Tensor)", body="a; a")
    x = torch.randn(3)
    one, two = op(x)
    assert len({x.data_ptr(), one.data_ptr(), two.data_ptr()}) == 3
    assert_same(compiled(lambda a: op(a))(x), (x, x))


def test_it_fuses_with_its_neighbours_at_any_size():
    op = ops.define(
        f"{name()}(Tensor a, Tensor b) -> Tensor", body="silu(a) * b"
    )

    def f(a, b):
        return op(a + 1, b) * 2

    g = torch.compile(f, backend=make_backend(), dynamic=True)
    for n in (3, 7, 64):
        a, b = torch.randn(2, n, 4)
        assert_same(g(a, b), f(a, b))
    torch._dynamo.reset()
    said = str(torchair.explain(g, *torch.randn(2, 5, 4)))
    assert "HOST" not in said
    assert said.count("\n  region ") == 1


@pytest.mark.parametrize("mode", MODES)
def test_an_operator_that_writes(mode):
    op = ops.define(
        f"{name()}(Tensor(a!) x, Tensor y) -> Tensor",
        body="x + y; y * 2",
    )

    def f(x, y):
        return op(x, y) + x

    torch._dynamo.reset()
    g = compiled(f, mode)
    for _ in range(3):
        x, y = torch.randn(2, 4)
        mine = x.clone()
        want = x + y + y * 2
        assert_same(g(mine, y), want)
        assert_same(mine, x + y)
        assert_same(f(x, y), want)
        assert_same(x, mine)


@pytest.mark.parametrize("mode", MODES)
def test_arguments_that_are_written_and_one(mode):
    """Nothing returned; one tensor twice: what is written last counts."""
    bump = ops.define(f"{name()}(Tensor(a!) x, Tensor y) -> ()", body="x + y")
    both = ops.define(
        f"{name()}(Tensor(a!) x, Tensor(b!) y) -> Tensor",
        body="x + y; x - y; x * y",
    )

    def same(x):
        bump(x, x)
        return both(x, x) + x

    def parts(x):
        bump(x[0], x[1])
        bump(x, x[:1])
        return both(x[0], x[1]), x * 1

    for f in (same, parts):
        torch._dynamo.reset()
        x = torch.randn(2, 3)
        mine = x.clone()
        want = f(x)
        assert_same(compiled(f, mode)(mine), want)
        assert_same(mine, x)


def test_what_writes_has_no_derivatives():
    """Said instead of a gradient that knows nothing of it."""
    op = ops.define(f"{name()}(Tensor(a!) x, Tensor y) -> ()", body="x + y")
    x = torch.ones(3, requires_grad=True)

    def f(x, y):
        z = x * 1
        op(z, y)
        return z

    for g in (f, compiled(f)):
        with pytest.raises(Exception, match="writes an arg.*torch.no_grad"):
            g(x, torch.ones(3))
        with pytest.raises(Exception, match="and y requires grad"):
            g(torch.ones(3), x)
        with torch.no_grad():
            assert_same(g(x, x), torch.full((3,), 2.0))


@pytest.mark.host("eager calls of a GPU take ATen's operators")
@pytest.mark.parametrize("whole", [False, True])
def test_none_asked_for_is_said_in_the_backward_pass(whole):
    op = ops.define(f"{name()}(Tensor a) -> Tensor", "a * 2", derivatives={})
    f = compiled(lambda a: op(a)) if whole else op
    x = torch.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match="an autograd kernel was not regist"):
        f(x).sum().backward()
    assert x.grad is None


def test_derivatives():
    op = ops.define(
        f"{name()}(Tensor a, Tensor b, float s) -> Tensor",
        body="a * sigmoid(b) * s",
        derivatives={
            "a": "grad * sigmoid(b) * s",
            "b": "g = sigmoid(b); grad * a * g * (1 - g) * s",
        },
    )
    a = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: op(a, b, 1.5), (a, b))
    want = torch.autograd.grad((a * b.sigmoid() * 1.5).sum(), (a, b))
    for mode in MODES:
        torch._dynamo.reset()
        f = compiled(lambda a, b: op(a, b, 1.5), mode)
        assert_same(torch.autograd.grad(f(a, b).sum(), (a, b)), want)


@pytest.mark.parametrize(
    "derivatives",
    [None, {"a": "grad * b", "b": "grad * a"}, {"a": "sum(b, -1)"}],
)
def test_gradients_have_the_parameters_size_and_dtype(derivatives):
    op = ops.define(
        f"{name()}(Tensor a, Tensor b) -> Tensor", "a * b", derivatives
    )
    a = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    b = torch.tensor([0.5, -1.25, 3.0], requires_grad=True)
    (want_a, want_b) = torch.autograd.grad((a * b).sum(), (a, b))
    if derivatives is not None and "b" not in derivatives:
        want_a, want_b = b.sum().detach().double().expand(4, 3), None
    for f in (op, *(compiled(lambda a, b: op(a, b), mode) for mode in MODES)):
        torch._dynamo.reset()
        a.grad = b.grad = None
        f(a, b).sum().backward()
        assert_same(a.grad, want_a)
        assert_same([b.grad], [want_b])


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_of_the_body(mode):
    op = ops.define(
        f"{name()}(Tensor a, Tensor b, float s) -> (Tensor, Tensor)",
        body="t = tanh(a) * b; m = sum(t, -1); t * s; exp(m)",
    )
    a = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, dtype=torch.float64, requires_grad=True)
    whole = lambda a, b: op(a, b, 1.5)  # noqa: E731
    assert torch.autograd.gradcheck(whole, (a, b))
    assert torch.autograd.gradgradcheck(whole, (a, b))

    def loss(op, a, b):
        x, y = op(a, b)
        return (x * x).sum() + y.sum()

    def plain(a, b):
        t = a.tanh() * b
        return t * 1.5, t.sum(-1, keepdim=True).exp()

    want = torch.autograd.grad(loss(plain, a, b), (a, b))
    f = compiled(lambda a, b: loss(whole, a, b), mode)
    assert_same(torch.autograd.grad(f(a, b), (a, b)), want)
    f = compiled(lambda a, b: whole(a, b)[1], mode)
    (got,) = torch.autograd.grad(f(a, b.detach()).sum(), (a,))
    (want,) = torch.autograd.grad(plain(a, b)[1].sum(), (a,))
    assert_same(got, want)


def test_arguments_that_are_one_or_depend_on_each_other():
    """Each gradient counts once, also where it is differentiated again."""
    op = ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body="a * b")
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    for other in (lambda x: x, torch.tanh, lambda x: x[0]):
        for again in (False, True):
            got, want = (
                torch.autograd.grad(y.sum(), x, create_graph=again)[0]
                for y in (op(x, other(x)), x * other(x))
            )
            assert_same(got, want)
    assert torch.autograd.gradgradcheck(lambda x: op(x, x.tanh()), (x,))


def test_no_derivatives_where_none_is_asked_for():
    schema = f"{name()}(Tensor a, Tensor b) -> Tensor"
    op = ops.define(schema, body="a * b", derivatives={"a": "grad * b"})
    a, b = torch.randn(2, 3).requires_grad_().unbind()
    grads = torch.autograd.grad(op(a, b).sum(), (a, b), allow_unused=True)
    assert_same(grads[0], b)
    assert grads[1] is None


def test_integers_have_no_derivatives():
    op = ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body="a < b")
    a = torch.randn(3, requires_grad=True)
    assert_same(op(a, a * 2), a < a * 2)


@pytest.mark.parametrize("derivatives", [None, {"a": "grad*b", "b": "grad*a"}])
def test_opcheck(derivatives):
    op = ops.define(
        f"{name()}(Tensor a, Tensor b) -> Tensor",
        body="a * b",
        derivatives=derivatives,
    )
    a, b = torch.randn(2, 3, 4).requires_grad_().unbind()
    torch.library.opcheck(op, (a, b))


def test_many_sizes_and_strides_in_eager():
    op = ops.define(f"{name()}(Tensor a) -> Tensor", body="a * 2 + 1")
    for n in range(1, 40):
        x = torch.randn(n, 3)
        assert_same(op(x), x * 2 + 1)
    x = torch.randn(6, 4).t()
    assert_same(op(x), (x * 2 + 1).contiguous())
    assert op(torch.randn(0, 3)).shape == (0, 3)


@pytest.mark.host("eager calls of a GPU take ATen's operators")
def test_programs_of_eager_calls_are_limited(monkeypatch):
    """A size that comes late takes ATen's operators; the first ones stay."""
    from torchair import define

    made, plain = [], define.Defined._compile

    def counts(self, values):
        made.append(values[0].shape[0])
        return plain(self, values)

    monkeypatch.setattr(define.Defined, "_compile", counts)
    op = ops.define(f"{name()}(Tensor a) -> Tensor", body="a * 2 + 1")
    for n in [*range(1, 50), *range(1, 50)]:
        op(torch.ones(n))
    assert made == list(range(1, 33))


def test_every_device_has_a_kernel():
    op = ops.define(f"{name()}(Tensor a) -> Tensor", body="a * 2 + 1")
    for key in ("CPU", "CUDA", "Meta", "PrivateUse1"):
        assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(
            op.name(), key
        ), key


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[0].expand(3, 4),
        lambda x: x[:, 1:3],
    ],
)
def test_the_first_call_may_have_any_strides(view):
    """And the result those of the Meta function."""
    op = ops.define(f"{name()}(Tensor a) -> Tensor", body="a * 2 + 1")
    x = view(torch.randn(3, 4))
    for y in (x, x.contiguous(), x):
        assert_same(op(y), y * 2 + 1)
        assert op(y).stride() == (y * 2 + 1).stride()
        assert op(y.to("meta")).stride() == op(y).stride()


# ---- errors ----


def test_errors_in_long_lines_show_what_is_around():
    body = "a + " * 300 + "* b" + " + a" * 300
    with pytest.raises(torchair.AirSyntaxError) as info:
        ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body=body)
    said, line, caret = str(info.value).split("\n")
    assert said.endswith("column 1201: a value is due, not '*'")
    assert len(line) <= 76
    assert line[caret.index("^")] == "*"


@pytest.mark.parametrize(
    ("body", "where", "what"),
    [
        ("a * sigmoyd(b)", "line 1, column 5", "no function sigmoyd"),
        ("a +\n  c", "line 2, column 3", "c is no parameter"),
        ("a + ", "line 1, column 5", "ends where a value is due"),
        ("a b", "line 1, column 3", "is due here"),
        ("1 + 2", "line 1, column 1", "a number, not a tensor"),
        ("", "line 1, column 1", "ends where a value is due"),
    ],
)
def test_errors_point_into_the_text(body, where, what):
    with pytest.raises(torchair.AirSyntaxError) as info:
        ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body=body)
    text = str(info.value)
    assert where in text
    assert what in text
    column = int(where.rsplit(" ", 1)[1])
    line, caret = text.split("\n")[1:]
    assert line == "    " + body.split("\n")[int(where[5]) - 1]
    assert caret == " " * (column + 3) + "^"


@pytest.mark.parametrize(
    ("schema", "error", "what"),
    [
        ("op(Tensor a) -> Tensor", ValueError, "no namespace"),
        (
            "deftest::bad(Tensr a) -> Tensor",
            ValueError,
            r"cannot be read: unknown type [^\n]*\n.*\n *~+.*HERE",
        ),
        ("deftest::bad(Tensor a -> Tensor", ValueError, "cannot be read: ."),
        ("deftest::bad(Tensor[] a) -> Tensor", ValueError, "parameter a is"),
        ("deftest::bad(Tensor? a) -> Tensor", ValueError, "parameter a is"),
        ("deftest::bad(float s) -> Tensor", ValueError, "no parameter is"),
        ("deftest::bad(Tensor a) -> int", ValueError, "it returns int"),
        ("deftest::bad(Tensor(a) a) -> Tensor(a)", ValueError, "are new Tens"),
        ("deftest::bad(Tensor a) -> ()", ValueError, "no results"),
        ("aten::add(Tensor a) -> Tensor", RuntimeError, "defined already"),
        (3, TypeError, "schema is a str"),
    ],
)
def test_wrong_schemas(schema, error, what):
    with pytest.raises(error, match=what):
        ops.define(schema, body="a + 1")
    assert not hasattr(torch.ops.deftest, "bad")


def test_redefinition_keeps_the_first():
    schema = f"{name()}(Tensor a) -> Tensor"
    op = ops.define(schema, body="a + 1")
    with pytest.raises(RuntimeError, match="defined already"):
        ops.define(schema, body="a + 2")
    assert_same(op(torch.zeros(2)), torch.ones(2))


def test_wrong_derivatives():
    schema = f"{name()}(Tensor a, float s) -> Tensor"
    with pytest.raises(ValueError, match="derivative of s"):
        ops.define(schema, body="a * s", derivatives={"s": "grad"})
    with pytest.raises(torchair.AirSyntaxError, match="by a, line 1, column 8"):
        ops.define(schema, body="a * s", derivatives={"a": "grad * q"})
    with pytest.raises(TypeError, match="is a str"):
        ops.define(schema, body=None)
    ops.define(schema, body="a * s", derivatives={"a": "grad * s"})


def test_wrong_arguments():
    op = ops.define(f"{name()}(Tensor a, Tensor b) -> Tensor", body="a + b")
    with pytest.raises(RuntimeError, match="size|broadcast"):
        op(torch.ones(2), torch.ones(3))
    with pytest.raises((RuntimeError, TypeError)):
        op(torch.ones(2), 3)
