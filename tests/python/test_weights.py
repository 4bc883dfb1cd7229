"""Options weights.*: a model's linear weights as 8 and 4 bits."""

import pytest
import torch
from helpers import DEVICE
from torch import nn

import torchair
from torchair import backend, quantised


class Net(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.up = nn.Linear(256, 384, dtype=dtype)
        self.down = nn.Linear(384, 256, bias=False, dtype=dtype)
        self.last = nn.Linear(256, 8, dtype=dtype)
        self.table = nn.Parameter(torch.randn(256, 320).to(dtype) / 16)

    def forward(self, x):
        y = self.down(self.up(x).relu()) + x
        return self.last(y) + (x @ self.table)[..., :8]


def _config(mode="max-autotune", **options):
    made = torchair.CompilerConfig()
    made.mode = mode
    for name, value in options.items():
        setattr(made.weights, name, value)
    return made


def _compiled(net, mode="max-autotune", **options):
    made = _config(mode, **options)
    return torch.compile(
        net, backend=torchair.get_npu_backend(compiler_config=made)
    )


def _stored(weight, bits, group):
    s = quantised.store(weight, bits, group)
    return quantised.dequantise(s.weight, s.scale, None, bits)


def _expected(net, x, bits, group):
    """In float64, of what the stored numbers stand for."""
    wide = Net().double()
    wide.load_state_dict(net.state_dict())
    with torch.no_grad():
        for layer, own in ((wide.up, net.up), (wide.down, net.down)):
            layer.weight.copy_(_stored(own.weight, bits, group))
        wide.table.copy_(_stored(net.table.t(), bits, group).t())
        return wide(x.double())


CASES = [("int8", 8, 32), ("int4", 4, 32), ("int4", 4, 64), ("int4", 4, 128)]


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how, bits, group", CASES)
def test_results_are_those_of_the_stored_numbers(how, bits, group, dtype, mode):
    net = Net(dtype)
    run = _compiled(net, mode, quantise=how, group=group, smallest=4096)
    for rows in (1, 24):
        x = torch.randn(rows, 256).to(dtype)
        with torch.no_grad():
            got = run(x).double()
        want = _expected(net, x, bits, group)
        limit = 1e-5 if dtype == torch.float32 else 3e-2
        assert (got - want).abs().max() <= limit * want.abs().max()


def test_explain_says_what_was_quantised():
    asked = _config(quantise="int4", group=64, smallest=4096)
    with torch.no_grad():
        got = torchair.explain(
            Net(), torch.randn(2, 256), compiler_config=asked
        )
    (graph,) = got.as_dict()["graphs"]
    rows = {w["name"]: w for w in graph["weights"]}
    assert set(rows) == {
        "self.up.weight", "self.down.weight", "self.last.weight", "self.table",
    }  # fmt: skip
    up = rows["self.up.weight"]
    assert (up["bits"], up["group"], up["kept"]) == (4, 64, "")
    assert 0.02 < up["error"] < 0.2
    assert up["bytes"] == 384 * 256 // 2 + 2 * 384 * 4
    assert up["was"] == 384 * 256 * 4
    assert "weights.smallest" in rows["self.last.weight"]["kept"]
    text = str(got)
    assert "weights: 3 of 4 quantised" in text
    assert "self.up.weight [384, 256]: int4, groups of 64, error" in text
    assert graph["wrapper"] == ""


def test_a_parameter_that_is_written_is_quantised_again():
    net = Net()
    run = _compiled(net, quantise="int8", smallest=4096)
    x = torch.randn(3, 256)
    with torch.no_grad():
        first = run(x)
        assert torch.equal(run(x), first)
        net.up.weight.mul_(-0.5)
        second = run(x)
        net.down.weight.data = torch.randn(256, 384) / 20  # other memory
        third = run(x)
    with torch.no_grad():
        assert not torch.allclose(second, first, atol=1e-3)
        want = _expected(net, x, 8, 0)
    assert not torch.allclose(third, second, atol=1e-3)
    assert (third.double() - want).abs().max() <= 1e-5 * want.abs().max()


def test_another_parameter_in_its_place():
    net = Net()
    run = _compiled(net, quantise="int8", smallest=4096)
    x = torch.randn(3, 256)
    with torch.no_grad():
        run(x)
        net.up.weight = nn.Parameter(torch.randn(384, 256) / 16)
        got = run(x)
    want = _expected(net, x, 8, 0)
    assert (got.double() - want).abs().max() <= 1e-5 * want.abs().max()


def test_a_graph_that_is_differentiated_keeps_its_weights():
    net, x = Net(), torch.randn(3, 256)
    got = torchair.explain(
        net, x, compiler_config=_config(quantise="int8", smallest=1)
    )
    assert "weights stay as they are: the graph is differentiated" in str(got)
    assert not got.graphs[0].weights
    run = _compiled(net, quantise="int8", smallest=1)
    torch.testing.assert_close(run(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "net, why",
    [
        (nn.Linear(250, 64), "its rows of 250 are not groups of 32"),
        (nn.Linear(256, 64).double(), "torch.float64 has no kernel"),
        (nn.Linear(64, 32), "less than weights.smallest = 4096 numbers"),
    ],
)
def test_what_stays(net, why):
    asked = _config(quantise="int4", smallest=4096)
    weight = net.to(DEVICE).weight
    with torch.no_grad():
        got = torchair.explain(
            net,
            torch.randn(2, weight.shape[1], dtype=weight.dtype),
            compiler_config=asked,
        )
    (found,) = got.graphs[0].weights
    assert found["kept"] == why and found["bits"] == 0
    assert got.graphs[0].wrapper == ""


def test_an_empty_weight_stays():
    with pytest.warns(UserWarning, match="zero-element"):
        net = nn.Linear(0, 64)
    got = torchair.explain(
        net,
        torch.randn(2, 0),
        compiler_config=_config(quantise="int4", smallest=0),
    )
    assert all(w["kept"] for w in got.graphs[0].weights)
    x = torch.randn(2, 0)
    with torch.no_grad():
        run = _compiled(net, quantise="int8", smallest=0)
        torch.testing.assert_close(run(x), net(x))


def test_one_weight_for_a_table_and_a_product():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(200, 128)

        def forward(self, i):
            return self.table(i) @ self.table.weight.t()

    net, i = Tied(), torch.tensor([3, 199, 0])
    run = _compiled(net, quantise="int8", smallest=1)
    with torch.no_grad():
        want = net.table(i) @ _stored(net.table.weight, 8, 0).t()
        torch.testing.assert_close(run(i), want, rtol=1e-4, atol=1e-4)


def test_a_product_of_a_product():
    net = nn.Sequential(nn.Linear(128, 64), nn.Linear(64, 32, bias=False))
    run = _compiled(net, quantise="int8", smallest=1)
    x = torch.randn(2, 128)
    with torch.no_grad():
        got = run(x)
        for layer in net:
            layer.weight.copy_(_stored(layer.weight, 8, 0))
        torch.testing.assert_close(got, net(x), rtol=1e-4, atol=1e-4)


def test_nothing_is_asked_for():
    with torch.no_grad():
        got = torchair.explain(Net(), torch.randn(2, 256))
    assert got.graphs[0].weights == [] and "quantised" not in str(got)


def test_programs_do_not_keep_the_model():
    import gc
    import weakref

    net = Net()
    seen = weakref.ref(net.up.weight)
    run = _compiled(net, quantise="int8", smallest=1)
    with torch.no_grad():
        run(torch.randn(1, 256))
    del net, run
    torch._dynamo.reset()
    backend.records.clear()
    gc.collect()
    assert seen() is None
