"""set_dim_gears: sizes from lists, everything else static."""

import pytest
import torch

import torchair
from torchair import backend, gears
from torchair.inference import set_dim_gears


def build(fn, policy="zip", mode="max-autotune"):
    config = torchair.CompilerConfig()
    config.mode = mode
    config.inference_config.dynamic_gears_merge_policy = policy
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=made, dynamic=True, fullgraph=True)


def both(x, y):
    return x.sum(0) * 2 + y.relu().sum(0)


def marked(first, *lists):
    """Tensors [first, 4], dim 0 in gears."""
    tensors = [torch.randn(first, 4) for _ in lists]
    for t, sizes in zip(tensors, lists, strict=True):
        set_dim_gears(t, {0: sizes})
    return tensors


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_one_graph_for_all_gears(mode):
    backend.records.clear()
    run = build(both, mode=mode)
    inputs = marked(2, [2, 4, 8], [2, 4, 8])
    assert torch.equal(run(*inputs), both(*inputs))
    for n in (4, 8, 2, 8):
        x, y = torch.randn(n, 4), torch.randn(n, 4)
        torch.testing.assert_close(run(x, y), both(x, y))
    assert len(backend.records) == 1


def test_the_log_has_the_gears(caplog):
    with caplog.at_level("INFO", "torchair"):
        build(both)(*marked(2, [2, 4], [2, 4]))
    said = [r.getMessage() for r in caplog.records]
    assert "ge.inputShape: x:-1,4;y:-1,4" in said
    assert "ge.dynamicDims: 2,2;4,4" in said
    assert "ge.dynamicNodeType: 1" in said


def test_zip_takes_positions():
    run = build(both)
    run(*marked(2, [2, 4], [2, 4]))
    with pytest.raises(Exception, match=r"sizes \[2, 4\] are no combination"):
        run(torch.randn(2, 4), torch.randn(4, 4))
    with pytest.raises(Exception, match=r"sizes \[3, 3\] are no combination"):
        run(torch.randn(3, 4), torch.randn(3, 4))
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(run(x, y), both(x, y))


def test_frames_without_gears_are_free():
    run = build(both)
    for n in (2, 3, 5):
        x, y = torch.randn(n, 4), torch.randn(n, 4)
        torch.testing.assert_close(run(x, y), both(x, y))


def test_product_takes_all():
    backend.records.clear()
    run = build(both, "product")
    run(*marked(2, [2, 4], [2, 4]))
    for a, b in ((2, 4), (4, 2), (4, 4)):
        x, y = torch.randn(a, 4), torch.randn(b, 4)
        torch.testing.assert_close(run(x, y), both(x, y))
    assert len(backend.records) == 1


def test_first_sizes_must_be_gears():
    with pytest.raises(Exception, match=r"sizes \[3\] are no combination"):
        build(torch.relu)(*marked(3, [2, 4]))


def test_other_dims_are_static():
    backend.records.clear()
    run = build(both)
    run(*marked(2, [2, 4], [2, 4]))
    (record,) = backend.records
    text = record.program().text(0)
    assert "f32[s" in text and ", 4]" in text


@pytest.mark.parametrize(
    "given, text",
    [
        ({"0": [2, 4]}, "is no dim"),
        ({2: [2, 4]}, "is no dim"),
        ({-1: [2, 4]}, "is no dim"),
        ({0: 4}, "give a list"),
        ({0: [2]}, "give 2 to 100"),
        ({0: list(range(2, 103))}, "give 2 to 100"),
        ({0: [2, 4.0]}, "greater than 1"),
        ({0: [0, 4]}, "greater than 1"),
        ({0: [1, 4]}, "greater than 1"),
    ],
)
def test_mistakes(given, text):
    with pytest.raises(AssertionError, match=text):
        set_dim_gears(torch.zeros(2, 2), given)


def test_gears_are_set_once():
    t = torch.zeros(2, 2)
    set_dim_gears(t, {0: [2, 4]})
    set_dim_gears(t, {0: (2, 4)})
    with pytest.raises(AssertionError, match="already"):
        set_dim_gears(t, {0: [2, 8]})


def test_combinations():
    lists = [2, 3, 4], [10, 20]
    assert len(gears.combinations(lists, "product")) == 6
    assert gears.combinations([[2, 2], [4, 4]], "zip") == [(2, 4)]
    with pytest.raises(AssertionError, match="use product"):
        gears.combinations(lists, "zip")
    with pytest.raises(AssertionError, match="at most 100"):
        gears.combinations([range(2, 13)] * 2, "product")
