"""torchair.explain."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from helpers import in_threads
from torch import nn

import torchair
from torchair import npugraph_ex


def test_model():
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
    with torch.no_grad():
        got = torchair.explain(net, torch.randn(3, 8))
    assert not got.error
    (graph,) = got.as_dict()["graphs"]
    assert graph["kind"] == "inference"
    assert graph["nodes"] >= 3
    assert graph["stats"]["runs"] == 2
    assert not got.recompiles
    assert "1 graph(s)" in str(got)


def test_training_does_not_touch_gradients():
    net = nn.Linear(4, 4)
    got = torchair.explain(net, torch.randn(2, 4))
    assert [g.kind for g in got.graphs] == ["forward", "backward"]
    assert net.weight.grad is None


def test_host_nodes_and_lines():
    def fn(x):
        y = F.gelu(x) * 2
        return torch.linalg.inv(y @ y.t() + torch.eye(4, device=x.device))

    got = torchair.explain(fn, torch.randn(4, 4))
    hosts = got.graphs[0].hosts
    assert hosts and all(h["reason"] for h in hosts)
    assert any(h["at"].startswith("test_explain.py:") for h in hosts)
    assert "HOST" in str(got)
    assert any("test_explain.py:" in r["at"] for r in got.graphs[0].regions)


def test_graph_breaks():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    got = torchair.explain(fn, torch.randn(3))
    assert len(got.graphs) == 2
    assert got.graph_breaks
    assert "graph break" in str(got)


def test_recompile():
    calls = []

    def fn(x):
        calls.append(1)
        return x * len(calls)

    got = torchair.explain(fn, torch.randn(3))
    assert got.recompiles


def test_never_raises():
    def fails(x):
        raise ValueError("no")

    for model, args in (
        (fails, (1,)),
        (None, ()),
        (nn.Linear(2, 2), ()),
        (nn.Linear(2, 2), (torch.randn(3, 5),)),
        ("text", (1, 2)),
    ):
        got = torchair.explain(model, *args)
        assert got.error
        assert str(got)
        assert got.as_dict()["error"]


def test_whole_graph_by_torch():
    def fn(x):
        return x.to(torch.complex128) * 2

    got = torchair.explain(fn, torch.randn(3))
    assert "complex128" in got.graphs[0].fallback
    assert "complex128" in str(got)


def test_another_default_device():
    net, x = nn.Linear(4, 3), torch.randn(2, 4)
    with torch.device("meta"):
        got = torchair.explain(net, x)
    assert not got.error
    assert [g.kind for g in got.graphs] == ["forward", "backward"]


# ---- what torch.compile returned ----


def counted(graph):
    """Calls by what they were."""
    found = graph.stats["capture"]
    words = [w for w, _ in torchair._native.call_classes()]
    return {w: found[w] for w in words if found[w]}


def configured():
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    config.debug.aclgraph.enable_output_clone = True
    return torchair.get_npu_backend(compiler_config=config)


FRONT_ENDS = {
    "mode": ({"backend": "torchair", "mode": "reduce-overhead"}, {}),
    "npu_backend": (
        {"backend": configured()},
        {"debug.aclgraph.enable_output_clone": "True"},
    ),
    "npugraph_ex": (
        {"backend": "npugraph_ex", "options": {"clone_input": False}},
        {"debug.aclgraph.clone_input": "False"},
    ),
    "npugraphs": ({"backend": "npugraphs"}, {}),
}


@pytest.mark.parametrize("how", FRONT_ENDS)
def test_counts_and_options_of_a_compiled_function(how):
    keywords, said = FRONT_ENDS[how]
    fn = torch.compile(lambda x: (x * 2).sin(), **keywords)
    other = torch.compile(lambda x: (x * 2).cos(), **keywords)
    x = torch.randn(5)
    for _ in range(3):
        fn(x)
    other(x)
    got = torchair.explain(fn)  # runs nothing
    assert not got.error
    (graph,) = got.graphs
    assert counted(graph) == {"captured": 1, "replayed": 2}
    assert graph.settings == said
    assert graph.mode in ("reduce-overhead", "npugraph_ex")
    assert got.calls["dispatched"] == 2
    assert "calls of the function: dispatched 2x" in str(got)
    fn(x)
    (graph,) = torchair.explain(fn, x).graphs  # one call more
    assert counted(graph) == {"captured": 1, "replayed": 4}
    assert graph.steps
    assert f"mode {graph.mode}" in str(got)
    assert all(f"{path}={value}" in str(got) for path, value in said.items())


def test_why_calls_were_no_replays():
    options = {"capture_limit": 2, "force_recapture": True}
    fn = torch.compile(
        lambda x: x.sin() + 1,
        backend="npugraph_ex",
        options=options,
        dynamic=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in (3, 3, 4, 5, 6):
            fn(torch.randn(size))
    got = torchair.explain(fn)
    (graph,) = got.graphs
    assert counted(graph) == {
        "captured": 2,
        "recaptured_force": 1,
        "beyond_limit": 2,
    }
    assert graph.by_torch == 0
    text = str(got)
    assert "recaptured_force 1x (captured again: force_recapture" in text
    assert "beyond_limit 2x (run without a capture: capture_limit" in text


def test_a_moved_input_that_is_written():
    fn = torch.compile(lambda x: x.add_(1), backend="npugraph_ex")
    for _ in range(3):
        fn(torch.zeros(4))
        keep = torch.zeros(100)  # noqa: F841
    first, second = torch.zeros(4), torch.zeros(4)
    fn(first)
    fn(second)
    got = torchair.explain(fn)
    assert counted(got.graphs[0])["recaptured_mutated_input"] >= 1
    assert "an input that the graph writes lies elsewhere" in str(got)


def test_a_compiled_module_and_its_backward():
    for net in (nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())):
        run = torch.compile(net, backend="torchair", mode="reduce-overhead")
        for _ in range(2):
            run(torch.randn(2, 4)).sum().backward()
        got = torchair.explain(run)
        assert [g.kind for g in got.graphs] == ["forward", "backward"]
        assert all(sum(counted(g).values()) == 2 for g in got.graphs)


class Net(nn.Module):
    """A user's: Dynamo leaves those of torch.nn alone here."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()


def test_a_module_compiled_in_place():
    net = Net()
    net.compile(backend="torchair")
    with torch.no_grad():
        net(torch.randn(2, 4))
        (graph,) = torchair.explain(net).graphs
    assert graph.mode == "max-autotune" and graph.stats["runs"] == 1


def test_graphs_on_both_sides_of_a_break():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y.sin()

    run = torch.compile(fn, backend="npugraphs")
    for _ in range(2):
        run(torch.randn(3))
    got = torchair.explain(run)
    assert [counted(g) for g in got.graphs] == [
        {"captured": 1, "replayed": 1}
    ] * 2


def test_a_function_compiled_twice_shares_its_graphs():
    """Dynamo compiles it once; its arguments say which graphs are its."""

    def fn(x):
        return x.exp() - 1

    one, two = (torch.compile(fn, backend="torchair") for _ in range(2))
    x = torch.randn(3)
    one(x)
    two(x)
    (graph,) = torchair.explain(two, x).graphs
    assert graph.stats["runs"] == 3


def test_owners_of_threads():
    """Compiled at once in two threads: each has its own graph."""
    functions = [
        torch.compile(lambda x: x.sin(), backend="torchair"),
        torch.compile(lambda x: x.cos(), backend="torchair"),
    ]
    in_threads(functions, lambda fn: fn(torch.randn(3)))
    regions = [torchair.explain(fn).graphs[0].regions for fn in functions]
    assert [r[0]["ops"] for r in regions] == ["sin", "cos"]


def test_calls_that_torch_runs():
    fn = torch.compile(lambda x: x.to(torch.complex128) * 2, backend="torchair")
    for _ in range(3):
        fn(torch.randn(2))
    (graph,) = torchair.explain(fn).graphs
    assert graph.by_torch == 3 and "complex128" in graph.fallback


def test_a_function_of_another_backend():
    fn = torch.compile(lambda x: x + 1, backend="eager")
    for args in ((), (torch.ones(2),)):
        got = torchair.explain(fn, *args)
        assert "compile it with one of its backends" in got.error


def test_a_configuration_compiles_anew():
    fn = torch.compile(lambda x: x + 2, backend="npugraph_ex")
    fn(torch.ones(2))
    config = torchair.CompilerConfig()
    got = torchair.explain(fn, torch.ones(2), compiler_config=config)
    (graph,) = got.graphs
    assert graph.mode == "max-autotune"
    assert counted(torchair.explain(fn).graphs[0]) == {"captured": 1}


def test_what_is_compiled_after_a_call_is_not_the_functions():
    fn = torch.compile(lambda x: x.sinh(), backend="torchair")
    fn(torch.ones(2))
    gm = torch.fx.symbolic_trace(lambda x: torch.ops.aten.exp.default(x))
    compile_it = torchair.get_compiler()
    compile_it(gm, [torch.ones(2)])
    (graph,) = torchair.explain(fn).graphs
    assert graph.regions[0]["ops"] == "sinh"


def test_a_graph_of_compile_fx():
    """A backend of the user: known by its calls."""
    from torch._dynamo.backends.common import aot_autograd

    def compile_it(gm, inputs):
        return npugraph_ex.compile_fx(gm, inputs, {"clone_output": True})

    fn = torch.compile(
        lambda x: x.tan(), backend=aot_autograd(fw_compiler=compile_it)
    )
    x = torch.randn(3)
    fn(x)
    (graph,) = torchair.explain(fn, x).graphs
    assert graph.settings == {"debug.aclgraph.enable_output_clone": "True"}
    assert counted(graph) == {"captured": 1, "replayed": 1}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 24)
        self.down = nn.Linear(24, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


@pytest.mark.host("other steps are fused on a GPU")
def test_equal_layers_are_one_line_each():
    model = nn.Sequential(*(Layer() for _ in range(5)))
    with torch.no_grad():
        said = str(torchair.explain(model, torch.randn(32, 8))).split("\n")
    first = [line for line in said if line.startswith(("  region", "  call "))]
    assert len(first) == len(set(first)) == 4
    counted = [line for line in said if line.endswith(" (5x)")]
    assert "  region gelu (5x)" in counted
    assert sum(line.startswith("  call addmm ") for line in counted) == 2
    at = said.index("  together:")
    assert any(line.endswith("call addmm (10x)") for line in said[at:])


@pytest.mark.host("other steps are fused on a GPU")
def test_few_steps_are_not_put_together():
    model = nn.Sequential(Layer(), Layer())
    with torch.no_grad():
        said = str(torchair.explain(model, torch.randn(32, 8)))
    assert "the slowest steps:" in said
    assert "together:" not in said
