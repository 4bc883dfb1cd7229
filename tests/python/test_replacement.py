"""register_replacement: patterns of the user, and which matches count."""

import pytest
import torch
from helpers import BEFORE_215, assert_same
from torch._inductor.pattern_matcher import fwd_only

import torchair
from torchair import backend, passes, scope
from torchair.npugraph_ex import register_replacement

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _no_patterns():
    """Patterns are registered for good; a test starts without any."""
    kept = passes._registered[:]
    passes._registered.clear()
    yield
    passes._registered[:] = kept


def compile_with(fn, **chosen):
    return torch.compile(fn, backend=backend.npugraph_ex, options=chosen)


def operators(fn, *args, **chosen):
    """(result, names of the operators that the engine gets)."""
    seen = []

    def look(gm, inputs, config):
        seen.extend(
            n.target._schema.name.removeprefix("aten::")
            for n in gm.graph.nodes
            if isinstance(n.target, torch._ops.OpOverload)
        )

    got = compile_with(fn, post_grad_custom_post_pass=look, **chosen)(*args)
    return got, seen


def search(x, y):
    return torch.sin(x) + torch.cos(y)


def replace(x, y):
    return torch.relu(x) - y


PAIR = (torch.empty(4), torch.empty(4))


def test_a_match_is_replaced():
    register_replacement(search, replace, PAIR)
    x, y = torch.randn(4), torch.randn(4)
    got, seen = operators(lambda x, y: search(x, y) * 2, x, y)
    assert_same(got, replace(x, y) * 2)
    assert "sin" not in seen and "relu" in seen


def test_one_example_may_stand_for_several_arguments():
    register_replacement(search, replace, [torch.empty(4)] * 2)
    x, y = torch.randn(4), torch.randn(4)
    for fn in (search, lambda x, y: search(x, x) + y):
        _, seen = operators(fn, x, y)
        assert "sin" not in seen and "relu" in seen


@pytest.mark.parametrize("dynamic", [False, True])
def test_other_sizes_and_dtypes_match(dynamic):
    register_replacement(search, replace, PAIR)
    run = torch.compile(search, backend=backend.npugraph_ex, dynamic=dynamic)
    for shape in ((3, 5), (2, 5), (7, 4)):
        x, y = torch.randn(shape), torch.randn(shape)
        assert_same(run(x, y), replace(x, y))


def test_the_option_switches_it_off():
    register_replacement(search, replace, PAIR)
    x, y = torch.randn(4), torch.randn(4)
    got, seen = operators(search, x, y, pattern_fusion_pass=False)
    assert_same(got, search(x, y))
    assert "sin" in seen


def test_what_is_used_elsewhere_stays():
    register_replacement(search, replace, PAIR)

    def fn(x, y):
        s = torch.sin(x)
        return s + torch.cos(y), s

    x, y = torch.randn(4), torch.randn(4)
    got, _ = operators(fn, x, y)
    assert_same(got, fn(x, y))


def test_several_results_and_a_library_operator():
    """The published sample: add and norm in one, both results used."""

    def pattern(x, r, w):
        total = x + r
        return torch.rms_norm(total, [4], w), total

    def fused(x, r, w):
        total = r + x
        return torch.rms_norm(total, [4], w) * 1, total

    register_replacement(
        pattern,
        fused,
        [torch.empty(2, 4), torch.empty(2, 4), torch.empty(4)],
    )

    def fn(x, r, w):
        normed, total = pattern(x, r, w)
        return normed * 2, total

    args = torch.randn(2, 4), torch.randn(2, 4), torch.randn(4)
    got, _ = operators(fn, *args)
    assert_same(got, fn(*args))


def test_extra_check():
    asked = []

    def only_large(match):
        value = match.kwargs["x"].meta["val"]
        asked.append(value.shape[0])
        return value.shape[0] > 8

    register_replacement(search, replace, PAIR, extra_check=only_large)
    for n, want in ((4, search), (16, replace)):
        torch._dynamo.reset()
        x, y = torch.randn(n), torch.randn(n)
        assert_same(compile_with(search)(x, y), want(x, y))
    assert asked == [4, 16]


def test_a_match_across_streams_does_not_count():
    register_replacement(search, replace, PAIR)

    def fn(x, y):
        with scope.npu_stream_switch("1"):
            a = torch.sin(x)
        return a + torch.cos(y)

    def inside(x, y):
        with scope.npu_stream_switch("1"):
            return torch.sin(x) + torch.cos(y)

    x, y = torch.randn(4), torch.randn(4)
    assert_same(compile_with(fn)(x, y), search(x, y))
    torch._dynamo.reset()
    assert_same(compile_with(inside)(x, y), replace(x, y))


def test_trace_fn_and_scalar_workaround():
    traced = []

    def trace(fn, args, **kwargs):
        traced.append(fn)
        return passes.trace(fn, args)

    def scaled(x, factor):
        return torch.sin(x) * factor

    def shifted(x, factor):
        return torch.cos(x) + factor

    register_replacement(
        scaled,
        shifted,
        (torch.empty(4),),
        trace_fn=trace,
        scalar_workaround={"factor": 0.113377},
    )
    assert scaled in traced
    x = torch.randn(4)
    for factor in (3.0, 0.5):
        torch._dynamo.reset()
        got = compile_with(lambda x, f=factor: torch.sin(x) * f)(x)
        assert_same(got, torch.cos(x) + factor)


def test_search_fn_pattern():
    from torch._inductor.pattern_matcher import CallFunction, KeywordArg

    pattern = CallFunction(
        aten.add.Tensor,
        CallFunction(aten.sin.default, KeywordArg("x")),
        CallFunction(aten.cos.default, KeywordArg("y")),
    )

    def other(x, y):
        return x * y

    x, y = torch.randn(4), torch.randn(4)
    register_replacement(other, replace, PAIR, search_fn_pattern=pattern)
    # Since 2.15 torch looks whether a match is search_fn's as well.
    want = (replace if BEFORE_215 else search)(x, y)
    assert_same(compile_with(search)(x, y), want)

    passes._registered.clear()
    torch._dynamo.reset()
    register_replacement(search, replace, PAIR, search_fn_pattern=pattern)
    assert_same(compile_with(search)(x, y), replace(x, y))


def test_duplicates():
    register_replacement(search, replace, PAIR)
    with pytest.raises(RuntimeError, match="[Dd]uplicate"):
        register_replacement(search, replace, PAIR)
    register_replacement(search, replace, PAIR, skip_duplicates=True)


def test_replacements_show_in_dumps(debug_folder):
    register_replacement(search, replace, PAIR)
    compile_with(search)(torch.ones(4), torch.ones(4))
    (path,) = debug_folder.rglob("*_after_pattern_fusion.txt")
    before = path.with_name("000_aot_forward_graph.txt").read_text()
    assert "aten.sin" in before and "aten.sin" not in path.read_text()


def test_it_runs_when_torch_runs_the_graph():
    register_replacement(search, replace, PAIR)
    x, y = torch.randn(4), torch.randn(4)
    assert_same(compile_with(search, force_eager=True)(x, y), replace(x, y))


def test_one_function_by_three_names():
    assert torchair.register_replacement is register_replacement
    assert passes.register_replacement is register_replacement


@pytest.mark.parametrize("own", [None, fwd_only])
def test_an_argument_that_the_pattern_does_not_use(own):
    """At once, not in the middle of somebody's compilation."""
    with pytest.raises(ValueError, match="does not use its argument y"):
        register_replacement(
            lambda x, y: torch.sin(x) + 1, replace, PAIR, trace_fn=own
        )
    x, y = torch.randn(4), torch.randn(4)
    got, seen = operators(lambda x, y: torch.sin(x) + 1, x, y)
    assert_same(got, torch.sin(x) + 1)
