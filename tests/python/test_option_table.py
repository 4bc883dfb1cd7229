"""The 71 options of the interface: each is there, has its default, takes what
it should, refuses the rest with the right exception, and reads back as text;
what a graph engine is told of them."""

import os
import re
import warnings

import pytest
import torch
from helpers import TEXT_PASSES, assert_same

import torchair
from torchair import backend, config, decorate, options
from torchair.config import find_option

BOTH, NONE = (True, False), ()
# path: (default, good values, {bad value: exception}). A path that ends in *
# stands for several options of the same kind.
_BOOL = ((1, 0, *BOTH), {"yes": ValueError, 2: ValueError, None: ValueError})
_CALL = ((print, None), {7: TypeError, "f": TypeError})
_DICT = (({}, None), {7: TypeError, "a": TypeError})
_PATH = ((".", "/no/such"), {None: TypeError, 7: TypeError})
_FOLDER = (("/tmp",), {None: FileNotFoundError, "/no/x": FileNotFoundError})
_FILE = ((__file__, None), {"/no/x": FileNotFoundError})
_INT = {"1": ValueError, 1.0: ValueError, None: ValueError}
_FREE = ((None, "a", 3), {})


def _one_of(*values):
    return values, {"no": ValueError, 7: ValueError}


_E, _G, _S = "experimental_config.", "debug.aclgraph.", "export."
_K = _E + "aclgraph._"
_STATIC = _K + "aclnn_static_shape_kernel"
SPECIFIED = {
    "mode": (
        "max-autotune",
        *_one_of("max-autotune", "reduce-overhead", "npugraph_ex"),
    ),
    "post_grad_custom_pre_pass": (None, *_CALL),
    "post_grad_custom_post_pass": (None, *_CALL),
    "debug.graph_dump.type": (None, *_one_of(None, "txt", "pbtxt", "py")),
    "debug.graph_dump.path": (None, *_PATH),
    "debug.data_dump.type": (None, *_one_of(None, "npy")),
    "debug.data_dump.path": (None, *_PATH),
    "debug.data_dump.filter": (None, *_CALL),
    "debug.fx_summary.type": (None, *_one_of(None, "csv")),
    "debug.fx_summary.skip_compile": (True, *_BOOL),
    "debug.run_eagerly": (False, *_BOOL),
    "debug.deadlock_check": (False, *_BOOL),
    _G + "disable_reinplace_inplaceable_ops_pass": (False, *_BOOL),
    _G + "disable_reinplace_input_mutated_ops_pass": (False, *_BOOL),
    _G + "disable_mempool_reuse_in_same_fx": (False, *_BOOL),
    _G + "enable_output_clone": (False, *_BOOL),
    _G + "static_capture_size_limit": (
        64,
        (1, 2**63 - 1),
        {0: ValueError, 2**63: ValueError, **_INT},
    ),
    _G + "clone_input": (True, *_BOOL),
    _G + "remove_cat_ops": (True, *_BOOL),
    "aoe_config.aoe_mode": (None, *_one_of(None, "2")),
    "aoe_config.work_path": ("./", *_FOLDER),
    "aoe_config.aoe_config_file": (None, *_FILE),
    _S + "export_mode": (False, (True,), {}),
    _S + "export_path_dir": ("./", ("/no/such",), {}),
    _S + "export_name": (None, ("a",), {}),
    _S + "weight_name": (None, ({1: "w"},), {}),
    _S + "inputs_name": (None, (["x"],), {}),
    _S + "experimental.enable_record_nn_module_stack": (False, *_BOOL),
    _S + "experimental.auto_atc_config_generated": (False, *_BOOL),
    _S + "experimental.enable_lite_export": (False, *_BOOL),
    "dump_config.enable_dump": (False, *_BOOL),
    "dump_config.dump_path": ("./", *_FOLDER),
    "dump_config.dump_mode": ("all", *_one_of("input", "output", "all")),
    "dump_config.quant_dumpable": (False, *_BOOL),
    "dump_config.dump_step": (
        "",
        ("", "0|1|2-5|6", "7"),
        {
            **dict.fromkeys(
                ("0ad", "1-", "-1", "02||||34", "--", "1--6"), ValueError
            ),
            3: TypeError,
            None: TypeError,
        },
    ),
    "dump_config.dump_layer": (
        "",
        ("", "Add_1 mm/x.y"),
        {"a;b": ValueError, 3: TypeError, None: TypeError},
    ),
    "dump_config.dump_data": ("tensor", *_one_of("tensor", "stats")),
    "dump_config.dump_config_path": (
        None,
        (None,),
        {"": ValueError, __file__: FileNotFoundError, "/a": FileNotFoundError},
    ),
    "dump_config.data_dump_stage": (
        "optimized",
        *_one_of("original", "optimized"),
    ),
    "fusion_config.fusion_switch_file": (None, *_FILE),
    _E + "cc_parallel_enable": (False, *_BOOL),
    _E + "keep_inference_input_mutations": (True, *_BOOL),
    _E + "memory_efficiency": (False, *_BOOL),
    _E + "frozen_parameter": (False, *_BOOL),
    _E + "static_model_ops_lower_limit": (
        None,
        (-1, 0, 2**63 - 1),
        {-2: ValueError, 2**63: ValueError, **_INT},
    ),
    _E + "jit_compile": ("auto", *_one_of("auto")),
    _E + "npu_fx_pass": (False, *_BOOL),
    _E + "aot_config_enable_joint_graph": (False, *_BOOL),
    _E + "aot_config_output_loss_index": (0, (0, 3), {-1: ValueError}),
    _E + "topology_sorting_strategy": (
        "DFS",
        *_one_of("BFS", "DFS", "RDFS", "StableRDFS"),
    ),
    _E + "enable_ref_data": (False, *_BOOL),
    _E + "enable_view_optimize": (True, *_BOOL),
    _E + "remove_noop_ops": (True, *_BOOL),
    _E + "tiling_schedule_optimize": (False, *_BOOL),
    _E + "pattern_fusion_pass": (True, *_BOOL),
    _STATIC: (False, *_BOOL),
    _STATIC + "_build_dir": (
        None,
        (None, "/tmp"),
        {7: TypeError, "/no/x": FileNotFoundError},
    ),
    _STATIC + "_sym_value_range": (
        None,
        (None, [1, 2], (3,)),
        {4: TypeError, "ab": TypeError},
    ),
    _STATIC + "_sym_index": (0, (0, 2**63 - 1), {-1: ValueError, **_INT}),
    _K + "super_kernel_optimize": (False, *_BOOL),
    _K + "super_kernel_optimize_options": (None, *_DICT),
    _K + "super_kernel_debug_options": (None, *_DICT),
    "inference_config.dynamic_gears_merge_policy": (
        "zip",
        *_one_of("zip", "product"),
    ),
    "ge_config.enable_single_stream": (False, *_BOOL),
    "ge_config.oo_level": ("O3", *_one_of("O1", "O3")),
    "ge_config.oo_constant_folding": (
        None,
        (None, *BOTH),
        {"on": ValueError},
    ),
    "ge_config.oo_dead_code_elimination": (
        None,
        (None, *BOTH),
        {"on": ValueError},
    ),
    "ge_config.export_compile_stat": (
        "2",
        ("0", "1", "2"),
        {0: ValueError, 2: ValueError, "3": ValueError},
    ),
    "ge_config.aicore_num": (None, *_FREE),
    "ge_config.optimization_switch": (None, *_FREE),
    "aclgraph_config.use_custom_pool": (None, (None, (0, 5)), {}),
}
OURS = {
    "debug.pass_limit",
    "debug.rewrite_limit",
    "weights.quantise",
    "weights.group",
    "weights.smallest",
    "weights.frozen",
    "sizes.limit",
    _G + "capture_error_mode",
    _G + "force_recapture",
    _K + "disable_static_kernel_compile_cache",
}
ALIASES = [
    "force_eager",
    "use_graph_pool",
    "reuse_graph_pool_in_same_fx",
    "capture_limit",
    "clone_input",
    "clone_output",
    "static_kernel_compile",
    "super_kernel_optimize",
    "super_kernel_optimize_options",
    "super_kernel_debug_options",
    "frozen_parameter",
    "remove_noop_ops",
    "pattern_fusion_pass",
    "remove_cat_ops",
    "inplace_pass",
    "input_inplace_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "dump_tensor_data",
    "data_dump_stage",
    "data_dump_dir",
    "_vllm_aclnn_static_kernel_sym_index",
    "_vllm_aclnn_static_kernel_sym_range",
]


def at(made, path):
    """(section, name) of a dotted path."""
    *sections, name = path.split(".")
    for section in sections:
        made = getattr(made, section)
    return made, name


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    monkeypatch.setattr(config, "_warn_inert", lambda row: None)


def test_the_table_has_the_71_and_ours():
    assert len(SPECIFIED) == 71
    assert {row.path for row in options.OPTIONS} == set(SPECIFIED) | OURS
    assert len(ALIASES) == 23 and set(ALIASES) <= set(options.ALIASES)


@pytest.mark.parametrize("path", SPECIFIED)
def test_default_and_good_values(path):
    default, good, _ = SPECIFIED[path]
    made = torchair.CompilerConfig()
    section, name = at(made, path)
    assert getattr(section, name).raw == default
    for value in good:
        setattr(section, name, value)
        read = getattr(section, name)
        if isinstance(value, bool):
            assert read.value == str(int(value)) and bool(read) == value
        elif isinstance(value, (str, int)) and "path" not in path:
            assert read.value == str(value)


@pytest.mark.parametrize("path", SPECIFIED)
def test_bad_values(path):
    default, _, bad = SPECIFIED[path]
    section, name = at(torchair.CompilerConfig(), path)
    for value, error in bad.items():
        with pytest.raises(error, match=re.escape(path)) as caught:
            setattr(section, name, value)
        assert type(caught.value) is error
        assert str(caught.value).count("[ERROR]") == 1
        assert getattr(section, name).raw == default


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError, "ERR03001 GRAPH invalid parameter"),
        (TypeError, "ERR03001 GRAPH invalid parameter"),
        (AssertionError, "ERR03001 GRAPH invalid parameter"),
        (NotImplementedError, "ERR03007 GRAPH feature not supported"),
        (FileNotFoundError, "ERR03008 GRAPH resource not found"),
        (RuntimeError, "ERR03005 GRAPH internal error"),
    ],
)
def test_the_line_of_errors(error, kind):
    @decorate.decorated
    def fail():
        raise error("what is wrong")

    with pytest.raises(error) as caught:
        fail()
    first, line = str(caught.value).splitlines()
    assert first == "what is wrong"
    head = rf"\[ERROR\] [\d:-]+ \(PID:{os.getpid()}, Device:-?\d, RankID:-1\) "
    assert re.fullmatch(head + kind, line)


def test_what_the_user_sets_wrongly_is_no_internal_error():
    with pytest.raises(ValueError, match="ERR03001 GRAPH invalid parameter"):
        torchair.CompilerConfig().mode = "fast"
    with pytest.raises(TypeError, match="ERR03001 GRAPH invalid parameter"):
        config.npugraph_ex_config(["no", "dict"])


def test_paths_are_resolved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = torchair.CompilerConfig()
    made.debug.graph_dump.path = "x"
    assert made.debug.graph_dump.path.value == os.path.realpath("x")


def test_sections_are_replaced_by_their_like():
    made, other = torchair.CompilerConfig(), torchair.CompilerConfig()
    other.ge_config.oo_level = "O1"
    made.ge_config = other.ge_config
    assert made.ge_config.oo_level.value == "O1"
    for wrong in (other.debug, 3):
        with pytest.raises(ValueError, match="ge_config is a section"):
            made.ge_config = wrong


def test_the_other_name_of_the_class():
    from torchair.configs.compiler_config import CompilerConfig

    assert CompilerConfig is torchair.CompilerConfig


# ---- as_dict ----


def test_what_is_told_by_default():
    local, process = torchair.CompilerConfig().as_dict()
    assert local == {
        "mode": "max-autotune",
        "frozen_parameter": "0",
        "remove_noop_ops": "1",
        "pattern_fusion_pass": "1",
        "ge.featureBaseRefreshable": "0",
        "ge.jit_compile": "2",
        "ge.topoSortingMode": "1",
        "ge.tiling_schedule_optimize": "0",
        "ge.deterministic": "0",
        "ge.deterministicLevel": "0",
        "ge.exec.atomicCleanPolicy": "1",
    }
    assert process == {
        "ge.exec.staticMemoryPolicy": "2",
        "ge.opSelectImplmode": "high_precision",
        "ge.exec.enableEngineParallel": "0",
        "ge.enableSingleStream": "false",
        "ge.oo.level": "O3",
        "ge.exportCompileStat": "2",
    }


@pytest.mark.parametrize(
    "path, value, where, name, told",
    [
        (_E + "topology_sorting_strategy", "RDFS", 0, "topoSortingMode", "2"),
        (_E + "static_model_ops_lower_limit", -1, 0, None, "-1"),
        (_E + "tiling_schedule_optimize", True, 0, None, "1"),
        (_E + "cc_parallel_enable", True, 1, "exec.enableEngineParallel", "1"),
        ("ge_config.enable_single_stream", True, 1, None, "true"),
        ("ge_config.oo_constant_folding", False, 1, None, "0"),
        ("ge_config.oo_dead_code_elimination", True, 1, None, "1"),
        ("ge_config.aicore_num", "2|4", 1, "aicoreNum", "2|4"),
        ("ge_config.optimization_switch", "a:on", 1, None, "a:on"),
        ("fusion_config.fusion_switch_file", __file__, 1, None, __file__),
    ],
)
def test_what_is_told(path, value, where, name, told):
    made = torchair.CompilerConfig()
    before = made.as_dict()[where]
    section, leaf = at(made, path)
    setattr(section, leaf, value)
    after = made.as_dict()[where]
    (changed,) = {k for k in after if after[k] != before.get(k)}
    assert after[changed] == told
    assert changed.startswith("ge.")
    if name is not None:
        assert changed == "ge." + name


def test_dumps_are_told_where_anything_is_dumped(tmp_path):
    made = torchair.CompilerConfig()
    made.dump_config.dump_mode = "input"
    assert not any("ump" in k for k in made.as_dict()[1])
    made.dump_config.enable_dump = True
    made.dump_config.dump_path = str(tmp_path)
    told = {k: v for k, v in made.as_dict()[1].items() if "ump" in k}
    assert told == {
        "ge.exec.enableDump": "1",
        "ge.exec.dumpPath": str(tmp_path),
        "ge.exec.dumpMode": "input",
        "ge.exec.dumpData": "tensor",
        "ge.quant_dumpable": "0",
    }
    assert list(tmp_path.iterdir()) == []  # telling makes no folders
    made.mode = "reduce-overhead"
    told = {k for k in made.as_dict()[1] if "ump" in k}
    assert told == {f"aclgraph.{w}" for w in _CAPTURED_DUMP}


_CAPTURED_DUMP = ("enableDump", "dumpPath", "dumpStage")


def test_captures_are_told_their_own():
    made = torchair.CompilerConfig()
    made.mode = "reduce-overhead"
    made.post_grad_custom_pre_pass = print
    local, process = made.as_dict()
    assert local["clone_input"] == "1" and local["mode"] == "reduce-overhead"
    assert local["_aclnn_static_shape_kernel_build_dir"] == ""
    assert not any(k.startswith("ge.oo") for k in process)
    assert print not in local.values()


def test_deterministic_flags_are_told():
    torch.use_deterministic_algorithms(True)
    try:
        local, _ = torchair.CompilerConfig().as_dict()
    finally:
        torch.use_deterministic_algorithms(False)
    assert local["ge.deterministic"] == local["ge.deterministicLevel"] == "1"


def test_a_compilation_logs_what_is_told(caplog):
    with caplog.at_level("INFO", "torchair"):
        torch.compile(lambda x: x + 1, backend=torchair.get_npu_backend())(
            torch.ones(2)
        )
    lines = [r.getMessage() for r in caplog.records]
    assert any(
        re.match("Compiling concrete graph .* with opt", t) for t in lines
    )
    assert "  ge.exec.staticMemoryPolicy: 2" in lines


# ---- options of one compilation ----


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_do_not_leak(alias):
    row = options.ALIASES[alias]
    mine = torchair.CompilerConfig()
    good = [v for v in SPECIFIED[row.path][1] if v != row.default]
    merged = config.settings(mine, options={alias: good[-1]})
    want = not good[-1] if row.inverted else row.accepts(alias, good[-1])
    assert find_option(merged, row.path).raw == want
    assert mine == torchair.CompilerConfig()


def test_options_of_a_compilation_are_its_own():
    made = torchair.CompilerConfig()
    entry = torchair.get_npu_backend(compiler_config=made)
    seen = []

    def look(gm, inputs, got):
        seen.append(got.frozen_parameter.raw)

    made.post_grad_custom_pre_pass = look
    for chosen in ({"frozen_parameter": True}, {}):
        torch._dynamo.reset()
        run = torch.compile(lambda x: x + 1, backend=entry, options=chosen)
        assert_same(run(torch.ones(2)), torch.full((2,), 2.0))
    assert seen == [True, False]


def test_unknown_options_of_a_compilation():
    run = torch.compile(
        lambda x: x + 1, backend=backend.torchair, options={"clone": 1}
    )
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="clone_input"
    ):
        run(torch.ones(2))


@pytest.mark.parametrize(
    "mode, warned",
    [("max-autotune", True), ("reduce-overhead", True), ("npugraph_ex", False)],
)
def test_settings_of_the_other_mode(mode, warned, recwarn):
    made = torchair.CompilerConfig()
    made.mode = mode
    if mode == "max-autotune":
        made.debug.aclgraph.clone_input = False
    else:
        made.ge_config.oo_level = "O1"
    torchair.get_npu_backend(compiler_config=made)
    said = [w for w in recwarn if "may not take effect" in str(w.message)]
    assert len(said) == warned


# ---- what has no effect, or says what is so ----


@pytest.mark.parametrize(
    "path", [row.path for row in options.OPTIONS if row.inert]
)
def test_options_without_effect_say_so(path, monkeypatch):
    monkeypatch.undo()  # _quiet
    monkeypatch.setattr(config, "_warned", set())
    row = find_option(torchair.CompilerConfig(), path).row
    good = [v for v in SPECIFIED.get(path, (0, (True,)))[1] if v != row.default]
    for repeat in range(2):
        section, name = at(torchair.CompilerConfig(), path)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            setattr(section, name, good[-1])
        said = [str(w.message) for w in caught]
        assert len(said) == (repeat == 0), said
        if repeat == 0:
            assert path in said[0] and row.inert in said[0]
            assert caught[0].filename == __file__


def run_with(fn, path, value, *args):
    made = torchair.CompilerConfig()
    section, name = at(made, path)
    setattr(section, name, value)
    entry = torchair.get_npu_backend(compiler_config=made)
    return torch.compile(fn, backend=entry)(*args)


@pytest.mark.parametrize(
    "path, value",
    [(_E + "jit_compile", "auto"), (_E + "tiling_schedule_optimize", True)],
)
def test_options_that_say_what_is_so(path, value):
    x = torch.randn(4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run_with(lambda x: (x @ x).relu(), path, value, x)
    assert_same(got, (x @ x).relu())


@pytest.mark.parametrize("asked", BOTH)
def test_inputs_are_updated_in_place(asked):
    programs = []
    cache, at_ = torch.zeros(8, 4), torch.tensor([3])
    with backend.collect([], programs):
        run_with(
            lambda c, x: c.index_copy_(0, at_, x).sum(),
            _E + "enable_ref_data",
            asked,
            cache,
            torch.ones(1, 4),
        )
    assert cache[3].sum() == 4 and "copy_(" not in programs[0].text(0)


def test_limits_of_passes_and_rewrites():
    counts = []
    x = torch.randn(4, 4)
    for path in ("debug.pass_limit", "debug.rewrite_limit"):
        for limit in (0, 1):
            torch._dynamo.reset()
            programs = []
            with backend.collect([], programs):
                got = run_with(
                    lambda x: (x + 0).relu() * 1 + x * 2, path, limit, x
                )
            assert_same(got, (x + 0).relu() * 1 + x * 2)
            made = [
                int(line.split()[2])
                for line in programs[0].text(TEXT_PASSES).splitlines()
            ]
            counts.append((len(made), sum(made)))
    assert counts[0][0] > counts[1][0] and counts[2][1] > counts[3][1]


def test_the_backend_npu():
    x = torch.randn(3)
    assert_same(torch.compile(lambda x: x * 2, backend=backend.npu)(x), x * 2)
