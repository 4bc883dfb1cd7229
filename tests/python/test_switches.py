"""Passes switched by level, file and text; the order of steps; lists; memory;
counts of passes: each changes the program as it should, never a result."""

import json
import subprocess
import sys
import warnings

import pytest
import torch
from helpers import TEXT_PASSES, assert_same, recorded

import torchair
from torchair import _native, backend, pass_names, switches


def configured(**chosen):
    """A configuration; __ stands for the dots of a path."""
    made = torchair.CompilerConfig()
    for path, value in chosen.items():
        *sections, name = path.split("__")
        at = made
        for section in sections:
            at = getattr(at, section)
        setattr(at, name, value)
    return made


def off(**chosen):
    return switches.asked(configured(**chosen)).off


def compiled(fn, config, **kwargs):
    entry = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=entry, **kwargs)


def model(x, y):
    a = torch.softmax((x @ y).relu() * 2.0, -1)
    b = torch.cat([x.t().t() + 1, y.sin()]).view(-1, 4, 4).view(-1, 16)
    return a + y.sin(), b * torch.ones(16)


def inputs():
    return torch.randn(16, 16), torch.randn(16, 16)


@pytest.fixture
def programs():
    found = []
    with backend.collect([], found):
        yield found


# ---- which passes ----


def test_all_are_on():
    assert switches.asked(torchair.CompilerConfig()) == switches.Asked()


def test_levels():
    fusions = {"attention", "quantised", "group", "cat"}
    assert off(ge_config__oo_level="O1") == fusions
    assert off(ge_config__oo_constant_folding=False) == {"fold"}
    assert off(ge_config__oo_dead_code_elimination=False) == {"dce"}
    assert off(experimental_config__enable_view_optimize=False) == {"view"}
    assert off(experimental_config__remove_noop_ops=False) == {"noop"}


def test_by_text():
    text = "CommonSubexpressionEliminationPass:off; group:off;fold:on;"
    assert off(ge_config__optimization_switch=text) == {"cse", "group"}


def test_later_switches_win(tmp_path):
    path = tmp_path / "switch.cfg"
    path.write_text(
        json.dumps(
            {
                "Switch": {
                    "GraphFusion": {"cse": "on", "ALL": "off", "fold": "on"},
                    "UBFusion": {"AutomaticUbFusion": "off"},
                }
            }
        )
    )
    chosen = {"fusion_config__fusion_switch_file": str(path)}
    assert off(**chosen) == {"attention", "quantised", "group"}
    chosen["ge_config__optimization_switch"] = "group:on;dce:off"
    assert off(**chosen) == {"attention", "quantised", "dce"}
    chosen["ge_config__oo_level"] = "O1"
    assert off(**chosen) == {"attention", "quantised", "dce", "cat"}


def test_captures_have_switches_of_their_own():
    made = configured(ge_config__oo_level="O1")
    made.mode = "reduce-overhead"
    assert switches.asked(made).off == set()
    made.remove_cat_ops = False
    assert switches.asked(made).off == {"cat"}


def test_every_name_of_the_interface_is_known():
    names = set(pass_names.COUNTERPARTS) | pass_names.WITHOUT_COUNTERPART
    # 102 of the string, 8 more of files, AutomaticUbFusion
    assert len(names) == 111
    assert not set(pass_names.COUNTERPARTS) & pass_names.WITHOUT_COUNTERPART
    ours = {name for name, _ in _native.without()}
    assert set(pass_names.COUNTERPARTS.values()) <= ours
    assert {n for group in switches.GROUPS.values() for n in group} <= ours


def test_names_without_a_counterpart_are_logged(caplog):
    with caplog.at_level("INFO", "torchair"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert off(ge_config__optimization_switch="SPPPass:off") == set()
    assert "SPPPass has no counterpart here" in caplog.text


def test_unknown_names_name_the_nearest():
    text = "CommonSubexpressionElimination:off"
    with pytest.warns(UserWarning, match="no pass CommonSub.*did you mean Com"):
        assert off(ge_config__optimization_switch=text) == set()
    with pytest.warns(UserWarning, match="no pass Qqq, nothing is switched; "):
        off(ge_config__optimization_switch="Qqq:off")


@pytest.mark.parametrize("text", ["cse", "cse:of", ":", "cse=off", 7])
def test_wrong_text(text):
    with pytest.raises(ValueError, match="optimization_switch"):
        off(ge_config__optimization_switch=text)


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "not JSON of the form"),
        ("[]", "not JSON of the form"),
        ('{"Switch": {"GraphFusion": 1}}', "not JSON of the form"),
        ('{"Switch": {"Graph": {}}}', "'Graph' is not one of GraphFusion"),
        ('{"Switch": {"UBFusion": {"group": 0}}}', 'has to be "on" or "off"'),
    ],
)
def test_wrong_files(tmp_path, text, said):
    path = tmp_path / "switch.cfg"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        off(fusion_config__fusion_switch_file=str(path))


def test_a_wrong_switch_comes_out_of_the_first_call():
    made = configured(ge_config__optimization_switch="cse")
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="NAME:on nor NAME:off"
    ):
        compiled(lambda x: x + 1, made)(torch.ones(2))


# ---- what they do ----


def ran(program):
    """name: (found, made, nodes before, nodes after)"""
    rows = [line.split() for line in program.text(TEXT_PASSES).splitlines()]
    return {name: tuple(map(int, counts[:4])) for name, *counts in rows}


@pytest.mark.parametrize(
    "name", [n for n, _ in _native.without()[6:]] + ["cat", "view", "noop"]
)
def test_each_pass_may_be_left_out(programs, name):
    made = configured(ge_config__optimization_switch=f"{name}:off")
    x, y = inputs()
    assert_same(compiled(model, made)(x, y), model(x, y))
    assert name not in ran(programs[-1])


def test_o1_does_not_fuse(programs):
    x, y = inputs()
    for level in ("O3", "O1"):
        torch._dynamo.reset()
        made = configured(ge_config__oo_level=level)
        assert_same(compiled(model, made)(x, y), model(x, y))
    assert "group" in ran(programs[0]) and "fold" in ran(programs[1])
    regions = [p.stats()["regions"] for p in programs]
    assert regions[0] < regions[1]


def test_constant_folding(programs):
    def fn(x):
        return x * torch.full((4,), 3.0).view(2, 2)

    for fold in (None, False):
        torch._dynamo.reset()
        made = configured(ge_config__oo_constant_folding=fold)
        assert_same(compiled(fn, made)(torch.ones(2, 2)), fn(torch.ones(2, 2)))
    assert "full" not in programs[0].text(0)
    assert "full" in programs[1].text(0)


def test_views(programs):
    x, y = inputs()
    for merge in (True, False):
        torch._dynamo.reset()
        made = configured(experimental_config__enable_view_optimize=merge)
        assert_same(compiled(model, made)(x, y), model(x, y))
    views = [
        sum(p.text(0).count(op) for op in (" view(", "permute(", " t("))
        for p in programs
    ]
    assert views[0] < views[1]


# ---- the order of steps ----


def wide(x, y):
    a, b = x @ y, y[:, :3] + 1
    return a @ a[:, :2], b.t() @ x[:, :5], x @ b


ORDERS = ("BFS", "DFS", "RDFS", "StableRDFS")


def test_orders_differ_and_results_do_not(programs):
    x, y = inputs()
    for order in ORDERS:
        torch._dynamo.reset()
        made = configured(experimental_config__topology_sorting_strategy=order)
        assert_same(compiled(wide, made)(x, y), wide(x, y))
    texts = [p.text(1) for p in programs]
    assert len(set(texts)) >= 3
    torch._dynamo.reset()
    compiled(wide, torchair.CompilerConfig())(x, y)
    assert programs[-1].text(1) == texts[ORDERS.index("StableRDFS")]


@pytest.mark.parametrize("order", ORDERS)
def test_orders_keep_writes_and_draws(order):
    def fn(x, cache):
        before = cache + 1
        cache.add_(x)
        noise = torch.rand(4, device=x.device)
        noise = noise + torch.rand(4, device=x.device) * 2
        after = cache * 2
        cache.mul_(3)
        return before, after, noise, cache + 0

    made = configured(experimental_config__topology_sorting_strategy=order)
    mine, theirs, x = torch.ones(4), torch.ones(4), torch.randn(4)
    torch.manual_seed(3)
    want = fn(x, theirs)
    torch.manual_seed(3)
    assert_same(compiled(fn, made)(x, mine), want)
    assert_same(mine, theirs)


def test_o1_keeps_the_written_order():
    made = configured(
        ge_config__oo_level="O1",
        experimental_config__topology_sorting_strategy="BFS",
    )
    assert switches.asked(made).order == "StableRDFS"


def test_o1_is_told_with_that_order():
    config = torchair.CompilerConfig()
    config.experimental_config.topology_sorting_strategy = "BFS"
    assert config.as_dict()[0]["ge.topoSortingMode"] == "0"
    config.ge_config.oo_level = "O1"
    assert config.as_dict()[0]["ge.topoSortingMode"] == "3"


def test_sends_keep_the_written_order():
    made = configured(experimental_config__topology_sorting_strategy="BFS")
    assert switches.asked(made, 1).order == "BFS"
    with pytest.warns(UserWarning, match="2 send and recv"):
        assert switches.asked(made, 2).order == "StableRDFS"


# ---- lists and memory ----


@pytest.mark.parametrize(
    "least, lists", [(None, [3]), (3, [3]), (4, [1, 1, 1]), (-1, [1, 1, 1])]
)
def test_lists_of_dynamic_graphs(least, lists, programs):
    def fn(x):
        return (x @ x) @ (x @ x.t())

    made = torchair.CompilerConfig()
    if least is not None:
        made.experimental_config.static_model_ops_lower_limit = least
    run = compiled(fn, made, dynamic=True)
    for size in (5, 8):
        x = torch.randn(size, size)
        assert_same(run(x), fn(x))
    assert f"lists: {' '.join(map(str, lists))}\n" in programs[-1].text(2)
    torch._dynamo.reset()
    (graph,) = torchair.explain(
        fn, torch.randn(6, 6), compiler_config=made
    ).graphs
    assert graph.lists == [3]  # of fixed sizes: one list


@pytest.mark.host("memory of a GPU is torch's allocator's")
def test_memory_of_static_graphs_goes_back(programs):
    x = torch.randn(300, 300)

    def fn(x):
        return ((x @ x) @ x) @ (x @ x)

    for efficient in (True, False):
        torch._dynamo.reset()
        made = configured(experimental_config__memory_efficiency=efficient)
        run = compiled(fn, made)
        assert_same(run(x), fn(x))
        _native.trim()
        assert_same(run(x), fn(x))
        kept = _native.pool_stats()["kept_bytes"]
        arena = programs[-1].stats()["arena_bytes"]
        assert arena > 300 * 300 * 4
        assert (kept < arena) == efficient


def test_explain_says_what_options_did():
    made = configured(
        ge_config__oo_level="O1",
        experimental_config__memory_efficiency=True,
        experimental_config__static_model_ops_lower_limit=9,
    )
    text = str(torchair.explain(model, *inputs(), compiler_config=made))
    assert (
        "options: without attention, without cat, without group, without "
        "quantised, lists of at least 9 steps, memory of intermediate results "
        "is given back" in text
    )
    made = configured(experimental_config__topology_sorting_strategy="BFS")
    text = str(torchair.explain(model, *inputs(), compiler_config=made))
    assert "options: steps in BFS order" in text
    assert "options:" not in str(torchair.explain(model, *inputs()))


# ---- cores ----


def test_core_limit_of_a_program(caplog):
    made = configured(ge_config__aicore_num="1|1")
    (graph,) = torchair.explain(model, *inputs(), compiler_config=made).graphs
    assert {r.get("threads") for r in graph.regions} == {"at most 1"}
    assert all("(at most 1 threads)" in call for call in graph.calls)
    x, y = inputs()
    assert_same(compiled(model, made)(x, y), model(x, y))
    with caplog.at_level("INFO", "torchair"):
        limit = switches.core_limit(configured(ge_config__aicore_num="9999|1"))
    assert limit == (str(torch.get_num_threads()), "1")
    assert "9999|1 were asked for" in caplog.text


def test_a_scope_wins_over_the_core_limit():
    def fn(x):
        with torchair.scope.limit_core_num(2, 2):
            y = x @ x
        return y @ x

    made = configured(ge_config__aicore_num="1|1")
    (graph,) = torchair.explain(
        fn, torch.randn(8, 8), compiler_config=made
    ).graphs
    assert [c.split("(")[1] for c in graph.calls] == [
        "at most 2 threads)",
        "at most 1 threads)",
    ]


@pytest.mark.parametrize("wrong", ["2", "0|1", "a|b", 3, "1|2|3"])
def test_wrong_core_limits(wrong):
    with pytest.raises(ValueError, match="aicore_num"):
        switches.core_limit(configured(ge_config__aicore_num=wrong))


# ---- one stream ----


def with_streams(x):
    with torchair.scope.npu_stream_switch("side"):
        y = x + 1
    return y * x


def test_one_stream_refuses_several(monkeypatch):
    made = configured(ge_config__enable_single_stream=True)
    x = torch.ones(3)
    assert_same(compiled(lambda x: x + 1, made)(x), x + 1)
    with pytest.raises(Exception, match=r"single_stream.*npu_stream_switch"):
        compiled(with_streams, made)(x)
    torch._dynamo.reset()
    monkeypatch.setenv("HCCL_OP_EXPANSION_MODE", "AIV")
    with pytest.raises(Exception, match=r"single_stream.*HCCL_OP_EXPANSION"):
        compiled(lambda x: x + 2, made)(x)
    with pytest.raises(RuntimeError, match="npu_prefetch"):
        switches.check_single_stream(made, False, {"npu.npu_prefetch"})
    torch._dynamo.reset()
    made.mode = "reduce-overhead"  # where it is not looked at
    assert_same(compiled(with_streams, made)(x), with_streams(x))


# ---- fusion_result.json ----


def test_statistics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = inputs()
    compiled(model, torchair.CompilerConfig())(x, y)
    assert not list(tmp_path.iterdir())  # nobody asked
    torch._dynamo.reset()
    made = configured(
        ge_config__export_compile_stat="2",
        ge_config__optimization_switch="cse:off",
    )
    with recorded() as records:
        compiled(model, made)(x, y)
    got = json.loads((tmp_path / "fusion_result.json").read_text())
    passes = got[f"session_and_graph_id_0_{records[0].number}"]
    assert set(passes) == {"graph_fusion", "ub_fusion"}
    assert "cse" not in passes["graph_fusion"]
    counts = passes["graph_fusion"]["canonicalise"]
    assert int(counts["match_times"]) == int(counts["effect_times"]) > 0
    assert passes["ub_fusion"]["group"]["repository_hit_times"] == "0"
    assert int(passes["ub_fusion"]["group"]["effect_times"]) > 0


def test_statistics_of_switched_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "switch.cfg"
    path.write_text('{"Switch": {"UBFusion": {"ALL": "off"}}}')
    made = configured(fusion_config__fusion_switch_file=str(path))
    compiled(model, made)(*inputs())
    got = json.loads((tmp_path / "fusion_result.json").read_text())
    assert any(graph["ub_fusion"] == {} for graph in got.values())


def test_statistics_at_exit(tmp_path):
    code = (
        "import os, torch, torchair\n"
        "made = torchair.CompilerConfig()\n"
        "made.ge_config.export_compile_stat = '1'\n"
        "entry = torchair.get_npu_backend(compiler_config=made)\n"
        "torch.compile(lambda x: x + 1, backend=entry)(torch.ones(2))\n"
        "assert not os.path.exists('fusion_result.json')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert json.loads((tmp_path / "fusion_result.json").read_text())


def test_no_statistics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = configured(ge_config__export_compile_stat="0")
    compiled(lambda x: x + 1, made)(torch.ones(2))
    assert not list(tmp_path.iterdir())


def test_precision_of_products_on_a_gpu():
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("high", "highest"):
            torch.set_float32_matmul_precision(precision)
            for mode in ("max-autotune", "reduce-overhead"):
                config = torchair.CompilerConfig()
                config.mode = mode
                found = switches.asked(config)
                assert found.tf32 == (precision == "high")
                assert found.keywords()["tf32"] == found.tf32
                said = any("TF32" in word for word in found.words())
                assert said == found.tf32
    finally:
        torch.set_float32_matmul_precision(before)
