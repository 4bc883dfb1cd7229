"""The options of npugraph_ex: each has an effect, or says that it has none;
wrong values are refused as the interface says."""

import os
import warnings

import numpy
import pytest
import torch
from helpers import assert_same, recorded

import torchair
from torchair import backend, config, options
from torchair.accepts import Keys

INT_MAX = 2**63 - 1


def compile_with(fn, **chosen):
    return torch.compile(fn, backend=backend.npugraph_ex, options=chosen)


@pytest.fixture
def programs():
    found = []
    with backend.collect([], found):
        yield found


@pytest.fixture
def fresh_warnings():
    config._warned.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(w.message) for w in caught]
    config._warned.clear()


# ---- the table ----


def test_npugraph_ex_has_28_options():
    assert len(options.ALIASES) == 28
    defaults = config.npugraph_ex_config(None)
    assert defaults.inplace_pass.raw is True
    assert defaults.input_inplace_pass.raw is True
    assert defaults.reuse_graph_pool_in_same_fx.raw is True
    assert defaults.clone_output.raw is False
    assert defaults.capture_limit.raw == 64
    assert defaults.data_dump_stage.raw == "optimized"
    assert defaults.mode.raw == "npugraph_ex"
    assert defaults.captures


BOOLS = [k for k, r in options.ALIASES.items() if r.accepts is options.BOOL]
WRONG = [
    *((key, "yes", ValueError, "not in optional list") for key in BOOLS),
    *((key, 2, ValueError, "not in optional list") for key in BOOLS),
    ("clone_input", 1.0, ValueError, "not in optional list"),
    ("clone_input", None, ValueError, "not in optional list"),
    ("capture_limit", "1", ValueError, "Please set integer type"),
    ("capture_limit", True, ValueError, "Please set integer type"),
    ("capture_limit", 0, ValueError, "is out of range"),
    ("capture_limit", INT_MAX + 1, ValueError, "is out of range"),
    ("capture_error_mode", "strict", ValueError, "not in optional list"),
    ("data_dump_stage", "both", ValueError, "not in optional list"),
    ("data_dump_dir", "/no/such/place", FileNotFoundError, "legal dir path"),
    ("data_dump_dir", None, FileNotFoundError, "legal dir path"),
    ("mode", "max-autotune", ValueError, "not in optional list"),
    ("post_grad_custom_pre_pass", 7, TypeError, "callable"),
    ("post_grad_custom_post_pass", "f", TypeError, "callable"),
    ("super_kernel_optimize_options", [], TypeError, "dict"),
    ("super_kernel_optimize_options", {"x": 1}, RuntimeError, "no key 'x'"),
    ("super_kernel_debug_options", {"debug_extend": 1}, RuntimeError, "str"),
    ("use_graph_pool", (1, 1), TypeError, "Invalid graph pool handle type"),
    ("use_graph_pool", 3, TypeError, "Invalid graph pool handle type"),
    ("_vllm_aclnn_static_kernel_sym_index", -1, ValueError, "out of range"),
    ("_vllm_aclnn_static_kernel_sym_range", 4, TypeError, "list of int"),
    ("_vllm_aclnn_static_kernel_sym_range", ["a"], TypeError, "list of int"),
]


def test_every_option_has_a_wrong_value():
    assert {key for key, *_ in WRONG} == set(options.ALIASES)


@pytest.mark.parametrize("key, value, error, text", WRONG)
def test_wrong_values(key, value, error, text):
    with pytest.raises(error, match=text) as caught:
        config.npugraph_ex_config({key: value})
    assert key in str(caught.value)


def test_unknown_options_name_the_known_ones():
    with pytest.raises(
        ValueError,
        match="^Invalid option 'clone_inputs'; did you mean clone_input",
    ):
        config.npugraph_ex_config({"clone_inputs": True})
    with pytest.raises(ValueError, match="has no option clone_inputs"):
        config.npugraph_ex_config({}).clone_inputs = True


def test_a_wrong_option_comes_out_of_the_first_call():
    run = compile_with(lambda x: x + 1, capture_limit=0)
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match="out of range"
    ):
        run(torch.ones(2))


def test_mode_of_torch_compile_is_not_looked_at():
    run = torch.compile(
        lambda x: x + 1, backend=backend.npugraph_ex, mode="max-autotune"
    )
    programs = []
    with backend.collect([], programs):
        run(torch.ones(2))
    assert programs[0].stats()["capture"]["captured"] == 1


def test_zero_and_one_are_bools():
    made = config.npugraph_ex_config({"clone_input": 0, "inplace_pass": 1})
    assert made.clone_input.raw is False
    assert made.inplace_pass.raw is True
    flag = made.debug.aclgraph.disable_reinplace_inplaceable_ops_pass
    assert flag.raw is False


def test_options_do_not_leak_between_compilations():
    config.npugraph_ex_config({"clone_output": True})
    assert config.npugraph_ex_config(None).clone_output.raw is False
    plain = torchair.CompilerConfig()
    config.settings(plain, options={"clone_output": True})
    assert plain.clone_output.raw is False


def test_keys_and_paths_are_one_option():
    made = torchair.CompilerConfig()
    made.reuse_graph_pool_in_same_fx = False
    assert made.debug.aclgraph.disable_mempool_reuse_in_same_fx.value == "1"
    made.debug.run_eagerly = True
    assert made.force_eager.value == "1"
    merged = config.settings(
        None, options={"force_eager": True, "debug.pass_limit": 2}
    )
    assert merged.debug.run_eagerly.raw and merged.debug.pass_limit.raw == 2


# ---- what the engine's captures are told ----


def told(**chosen):
    return config.capture_options(config.npugraph_ex_config(chosen))


@pytest.mark.parametrize(
    "key, value, name, seen",
    [
        ("capture_limit", 3, "limit", 3),
        ("clone_input", True, "clone_input", True),
        ("clone_input", False, "clone_input", False),
        ("clone_output", True, "clone_output", True),
        ("clone_output", False, "clone_output", False),
        ("frozen_parameter", True, "frozen_parameter", True),
        ("force_recapture", True, "force_recapture", True),
        ("reuse_graph_pool_in_same_fx", False, "reuse_memory", False),
        ("use_graph_pool", (0, 5), "pool", (0, 5)),
        ("capture_error_mode", "relaxed", "error_mode", "relaxed"),
    ],
)
def test_captures_are_told(key, value, name, seen):
    assert getattr(told(), name) != seen
    assert getattr(told(**{key: value}), name) == seen


def test_a_pool_of_ones_own_keeps_captures_apart():
    assert told(use_graph_pool=(0, 1)).reuse_memory is False


def test_what_nobody_said_is_left_to_the_engine():
    assert told().clone_input is None and told().clone_output is None
    assert config.capture_options(torchair.CompilerConfig()) is None


def captured(programs):
    return programs[-1].stats()["capture"]


def test_clone_input(programs):
    copied = []
    for chosen in ({}, {"clone_input": True}):
        torch._dynamo.reset()
        run = compile_with(lambda x: x * 2, **chosen)
        for _ in range(3):
            x = torch.randn(64)
            assert_same(run(x), x * 2)
        copied.append(captured(programs)["copied_bytes"])
    assert copied[0] == 0 and copied[1] > 0


def test_without_clone_input_later_data_go_into_the_first_tensor():
    run = compile_with(lambda x: x * 2, clone_input=False)
    first, later = torch.ones(8), torch.full((8,), 3.0)
    run(first)
    assert_same(run(later), later * 2)
    assert_same(first, later)
    whole = torch.arange(9.0)  # offsets in one storage are told apart
    torch._dynamo.reset()
    run = compile_with(lambda x: x * 2, clone_input=False)
    run(whole[1:].clone())
    assert_same(run(whole[1:]), whole[1:] * 2)
    assert_same(run(whole[:8]), whole[:8] * 2)


@pytest.mark.parametrize(
    "chosen, same",
    [
        ({}, False),
        ({"clone_output": True}, False),
        ({"clone_output": False}, True),
    ],
)
def test_clone_output(chosen, same):
    run = compile_with(lambda x: x * 2, **chosen)
    x = torch.ones(8)
    first = run(x)
    second = run(x + 1)
    assert (first.data_ptr() == second.data_ptr()) == same
    assert_same(first, (x + same) * 2)


def test_use_graph_pool(programs):
    handle = torchair.npu.graph_pool_handle()
    for fn in (lambda x: x * 2, lambda x: x - 1):
        compile_with(fn, use_graph_pool=handle)(torch.ones(4))
    compile_with(lambda x: x + 3)(torch.ones(4))
    pools = [p.stats()["capture"]["pool"]["id"] for p in programs]
    assert pools[0] == pools[1] != pools[2]


# ---- force_eager and the user's passes ----


def test_force_eager():
    def fn(x, cache):
        cache.add_(x)
        return torch.softmax(x @ x, -1) + cache

    seen = []
    chosen = {
        "force_eager": True,
        "inplace_pass": False,
        "clone_input": False,
        "clone_output": False,
        "post_grad_custom_post_pass": lambda gm, i, c: seen.append(gm),
    }
    x, mine, theirs = torch.randn(4, 4), torch.zeros(4, 4), torch.zeros(4, 4)
    with recorded() as records:
        got = compile_with(fn, **chosen)(x, mine)
    assert_same(got, fn(x, theirs))
    assert_same(mine, theirs)
    assert len(seen) == 1
    assert "run_eagerly" in records[0].fallback
    assert records[0].program is None


def test_force_eager_drops_what_changes_nothing(programs):
    graphs = []

    def fn(x):
        return (x + 0).view(4) * 1.0

    for remove in (True, False):
        torch._dynamo.reset()
        run = compile_with(
            fn,
            force_eager=True,
            remove_noop_ops=remove,
            post_grad_custom_post_pass=lambda gm, i, c: graphs.append(
                len(gm.graph.nodes)
            ),
        )
        assert_same(run(torch.ones(4)), torch.ones(4))
    assert graphs[0] < graphs[1]


def test_compile_fx_in_a_backend_of_ones_own():
    from torch._functorch.aot_autograd import aot_module_simplified

    import npugraph_ex

    def mine(gm, inputs):
        return aot_module_simplified(
            gm,
            inputs,
            fw_compiler=lambda g, i: npugraph_ex.compile_fx(
                g, i, {"force_eager": True}
            ),
        )

    def fn(x, n):
        return x.sin() * n

    run = torch.compile(fn, backend=mine, dynamic=True)
    for size in (3, 5, 7):
        x = torch.randn(size)
        assert_same(run(x, size), fn(x, size))
    with pytest.raises(TypeError, match="GraphModule"):
        npugraph_ex.compile_fx(fn)


def test_compile_fx_by_the_engine():
    from torchair import npugraph_ex

    gm = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: (torch.relu(x) * 2,), tracing_mode="fake"
    )(torch.ones(3))
    run = npugraph_ex.compile_fx(gm, [torch.ones(3)])
    x = torch.randn(3)
    (once,) = run(x)
    (again,) = run([x])
    assert_same(once, torch.relu(x) * 2)
    assert_same(again, once)


@pytest.mark.parametrize(
    "key", ["post_grad_custom_pre_pass", "post_grad_custom_post_pass"]
)
def test_custom_passes(key):
    def edit(gm, inputs, seen):
        assert seen.mode.value == "npugraph_ex"
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    x, y = torch.ones(3), torch.full((3,), 5.0)
    run = compile_with(lambda x, y: x + y, **{key: edit})
    assert_same(run(x, y), x - y)

    def fails(gm, inputs, seen):
        raise KeyError("mine")

    torch._dynamo.reset()
    with pytest.raises(Exception, match="mine"):
        compile_with(lambda x, y: x + y, **{key: fails})(x, y)


def test_a_pass_may_insert_nodes_of_other_sizes():
    """Types of inserted nodes are computed after the passes."""

    def widen(gm, inputs, seen):
        for node in gm.graph.find_nodes(
            op="call_function", target=torch.ops.aten.relu.default
        ):
            (user,) = node.users
            with gm.graph.inserting_after(node):
                wide = gm.graph.call_function(
                    torch.ops.aten.cat.default, ([node, node], 0)
                )
            user.replace_input_with(node, wide)

    run = compile_with(
        lambda x: torch.relu(x) * 2, post_grad_custom_pre_pass=widen
    )
    x = torch.randn(3, 4)
    with recorded() as records:
        assert_same(run(x), torch.cat([x, x]).relu() * 2)
    assert not records[0].fallback


# ---- passes of the engine ----


def text(programs, kind=0):
    return programs[-1].text(kind)


def test_remove_noop_ops(programs):
    def fn(x):
        return x.clone().view(8).clone() * 2

    x = torch.randn(8)
    counts = []
    for remove in (True, False):
        torch._dynamo.reset()
        run = compile_with(fn, remove_noop_ops=remove)
        assert_same(run(x), x * 2)
        counts.append(text(programs).count(" = "))
    assert counts[0] < counts[1]


def test_remove_cat_ops(programs):
    def fn(x, y):
        return torch.cat([x * 2, y + 1])

    x, y = torch.randn(64, 32), torch.randn(32, 32)
    copies = []
    for remove in (True, False):
        torch._dynamo.reset()
        run = compile_with(fn, remove_cat_ops=remove)
        assert_same(run(x, y), fn(x, y))
        copies.append(programs[-1].stats()["copies"])
    assert copies[0] < copies[1]


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_cat_along_any_dimension_and_of_mixed_dtypes(dim):
    """Operands of another dtype are not computed into the result, which would
    round them twice."""

    def fn(x, y, z):
        return torch.cat([x * 3, y + 1, z.sin()], dim)

    x, y = torch.randn(6, 6), torch.randn(6, 6).bfloat16()
    z = torch.randn(6, 6, dtype=torch.float64)
    assert_same(compile_with(fn)(x, y, z), fn(x, y, z))


def test_input_inplace_pass(programs):
    def fn(cache, x, at):
        cache.index_copy_(0, at, x)
        return cache.sum()

    at = torch.tensor([3])
    for inplace in (True, False):
        torch._dynamo.reset()
        mine, theirs, x = torch.zeros(8, 4), torch.zeros(8, 4), torch.ones(1, 4)
        run = compile_with(fn, input_inplace_pass=inplace)
        assert_same(run(mine, x, at), fn(theirs, x, at))
        assert_same(mine, theirs)
        assert ("copy_" not in text(programs)) == inplace


def test_input_inplace_pass_for_operators_of_the_user():
    def fill(cache, x):
        seen.append(cache.data_ptr())
        cache.copy_(x * 2)

    seen = []
    with torch.library._scoped_library("inplace_test", "FRAGMENT") as library:
        library.define("fill(Tensor(a!) cache, Tensor x) -> ()")
        for key in ("CPU", "CUDA"):  # with one for all it would be traced
            library.impl("fill", fill, key)
        for inplace in (True, False):
            torch._dynamo.reset()
            cache, x = torch.zeros(8), torch.randn(8)
            run = compile_with(
                lambda c, x: (torch.ops.inplace_test.fill(c, x), c + 1)[1],
                input_inplace_pass=inplace,
            )
            seen.clear()
            assert_same(run(cache, x), x * 2 + 1)
            assert_same(cache, x * 2)
            assert (seen == [cache.data_ptr()]) == inplace


def test_inplace_pass(programs):
    def fn(x, y, at):
        return torch.mm(x, x).index_copy(0, at, y)

    x, y, at = torch.randn(6, 6), torch.randn(1, 6), torch.tensor([2])
    for inplace in (True, False):
        torch._dynamo.reset()
        run = compile_with(fn, inplace_pass=inplace)
        assert_same(run(x, y, at), fn(x, y, at))
        assert ("inplace" in text(programs)) == inplace


# ---- dumps ----


@pytest.mark.parametrize("stage", ["original", "optimized"])
def test_dump_tensor_data(tmp_path, stage):
    def edit(gm, inputs, seen):
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.add.Tensor:
                node.target = torch.ops.aten.sub.Tensor

    x = torch.full((3,), 2.0)
    run = compile_with(
        lambda x: (x + x) * 3,
        dump_tensor_data=True,
        data_dump_stage=stage,
        data_dump_dir=str(tmp_path),
        post_grad_custom_pre_pass=edit,
    )
    got = run(x)
    run(x)  # writes the same files again
    want = (x + x) * 3 if stage == "original" else (x - x) * 3
    assert_same(got, want)
    folder = tmp_path / "worldsize1_global_rank0"
    names = sorted(os.listdir(folder))
    assert len(names) == 2
    assert names[0].startswith("add_device_0_")
    assert_same(torch.load(folder / names[1]), want)


def test_force_eager_with_dump_writes_arrays(tmp_path, fresh_warnings):
    x = torch.ones(3)
    run = compile_with(
        lambda x: x + 2,
        force_eager=True,
        dump_tensor_data=True,
        data_dump_dir=str(tmp_path),
    )
    with pytest.warns(UserWarning, match="npu is skipped"):
        run(x)
    run(x)
    found = sorted(tmp_path.glob("worldsize1_global_rank0/graph_*/*/*.npy"))
    assert {p.parent.name for p in found} == {"0", "1"}
    outputs = [p for p in found if ".OUTPUT.0" in p.name]
    assert outputs[0].name.startswith("add-aten.add.Tensor.OUTPUT.0.2")
    assert (numpy.load(outputs[0]) == 3).all()


def test_data_dump_of_chosen_nodes(tmp_path):
    made = torchair.CompilerConfig()
    made.debug.data_dump.type = "npy"
    made.debug.data_dump.path = str(tmp_path)
    made.debug.data_dump.filter = lambda n: n if "mul" in n.name else None
    run = torch.compile(
        lambda x: (x + 1) * x.bfloat16(),
        backend=torchair.get_npu_backend(compiler_config=made),
    )
    x = torch.ones(2)
    assert_same(run(x), (x + 1) * x.bfloat16())
    names = {p.name.rsplit(".", 2)[0] for p in tmp_path.rglob("*.npy")}
    assert names == {
        "mul-aten.mul.Tensor.INPUT.0",
        "mul-aten.mul.Tensor.INPUT.1",
        "mul-aten.mul.Tensor.OUTPUT.0",
    }


def test_dump_is_ignored_with_super_kernels(tmp_path, fresh_warnings):
    run = compile_with(
        lambda x: x + 1,
        dump_tensor_data=True,
        super_kernel_optimize=True,
        data_dump_dir=str(tmp_path),
    )
    run(torch.ones(2))
    assert any("dump_tensor_data is ignored" in t for t in fresh_warnings())
    assert not list(tmp_path.iterdir())


def test_graph_dump_as_python(tmp_path):
    made = torchair.CompilerConfig()
    made.mode = "reduce-overhead"
    made.debug.graph_dump.type = "py"
    made.debug.graph_dump.path = str(tmp_path)

    def fn(x):
        with torchair.scope.npu_stream_switch("side"):
            y = x + 1
        return y * 2

    run = torch.compile(
        fn, backend=torchair.get_npu_backend(compiler_config=made)
    )
    assert_same(run(torch.ones(2)), torch.full((2,), 4.0))
    (path,) = tmp_path.rglob("graph.py")
    code = path.read_text()
    compile(code, str(path), "exec")  # is Python
    assert 'capture_error_mode="global"' in code
    assert "with torch.npu.stream(streams['side']):" in code


def test_compile_debug_folder(debug_folder):
    weight = torch.ones(3, requires_grad=True)
    compile_with(lambda x: (x * weight).sum())(torch.ones(3)).backward()
    (model,) = debug_folder.glob("run_*/npugraph_ex/model__*")
    assert (model / "dynamo_out_graph.txt").exists()
    for phase in ("forward", "backward"):
        assert (model / phase / f"000_aot_{phase}_graph.txt").exists()
        assert (model / phase / "output_code.py").exists()
        assert (model / phase / "engine" / "00-input.txt").exists()
    assert (model.parent / "debug.log").exists()


# ---- what has no effect here ----

INERT = {
    "static_kernel_compile": True,
    "disable_static_kernel_compile_cache": True,
    "_vllm_aclnn_static_kernel_sym_index": 1,
    "_vllm_aclnn_static_kernel_sym_range": [1, 2],
    "super_kernel_optimize_options": {"split_mode": 1},
    "super_kernel_debug_options": {"debug_sync_all": 1},
}


def test_these_are_all_that_have_none():
    found = {k for k, row in options.ALIASES.items() if row.inert}
    assert found == set(INERT)


@pytest.mark.parametrize("key, value", INERT.items())
def test_inert_options_say_so_once(key, value, fresh_warnings):
    for _ in range(2):
        torch._dynamo.reset()
        run = compile_with(lambda x: x + 1, **{key: value})
        assert_same(run(torch.ones(2)), torch.full((2,), 2.0))
    said = [t for t in fresh_warnings() if "has no effect" in t]
    assert len(said) == 1 and key in said[0]


@pytest.mark.host("on a GPU it has one")
def test_super_kernels_of_a_capture_have_none_on_a_cpu(fresh_warnings):
    for _ in range(2):
        torch._dynamo.reset()
        run = compile_with(lambda x: x + 1, super_kernel_optimize=True)
        assert_same(run(torch.ones(2)), torch.full((2,), 2.0))
    said = [t for t in fresh_warnings() if "has no effect on a CPU" in t]
    assert len(said) == 1


def test_nested_super_kernel_options():
    check = Keys(a=int, b=Keys(c=int))
    assert check("x", {"a": 1, "b": {"c": 2}}) == {"a": 1, "b": {"c": 2}}
    with pytest.raises(RuntimeError, match=r"x\['b'\]"):
        check("x", {"b": {"d": 2}})


def test_frozen_parameter_warns(fresh_warnings):
    compile_with(lambda x: x + 1, frozen_parameter=True)(torch.ones(2))
    compile_with(lambda x: x + 2, frozen_parameter=True)(torch.ones(2))
    assert sum("frozen_parameter" in t for t in fresh_warnings()) == 1


def test_settings_of_the_other_mode_are_named(fresh_warnings):
    made = torchair.CompilerConfig()
    made.debug.aclgraph.clone_input = False
    torchair.get_npu_backend(compiler_config=made)
    (said,) = fresh_warnings()
    assert said.startswith(
        "The following torchair config or properties may not take effect"
    )
    assert "debug.aclgraph.clone_input" in said


def test_reduce_overhead_is_not_deprecated(fresh_warnings):
    made = torchair.CompilerConfig()
    made.mode = "reduce-overhead"
    torchair.get_npu_backend(compiler_config=made)
    assert fresh_warnings() == []


def test_keep_inference_input_mutations():
    made = torchair.CompilerConfig()
    made.experimental_config.keep_inference_input_mutations = False
    graphs = []
    made.post_grad_custom_post_pass = lambda gm, i, c: graphs.append(
        str(gm.graph)
    )
    x = torch.ones(2)
    torch.compile(
        lambda x: x.add_(1),
        backend=torchair.get_npu_backend(compiler_config=made),
    )(x)
    assert_same(x, torch.full((2,), 2.0))
    assert "copy_" not in graphs[0]


@pytest.mark.parametrize("options", [["clone_output"], "clone_output", 3])
def test_options_that_are_no_dict(options):
    for read in (
        config.npugraph_ex_config,
        lambda o: config.settings(None, None, o),
    ):
        with pytest.raises(TypeError, match="options must be a dict of names"):
            read(options)


@pytest.mark.parametrize(
    "wrong, meant",
    [
        ("clone_outptu", "clone_output"),
        ("weights.quantize", "weights.quantise"),
    ],
)
def test_a_misspelt_option_names_the_nearest(wrong, meant):
    fn = torch.compile(torch.relu, backend="torchair", options={wrong: True})
    with pytest.raises(Exception, match=f"did you mean {meant}"):
        fn(torch.randn(4))


@pytest.mark.parametrize("name", ["graph_dump", "data_dump"])
def test_a_folder_of_what_is_not_written(name, tmp_path, fresh_warnings):
    made = torchair.CompilerConfig()
    getattr(made.debug, name).path = str(tmp_path / "x")
    run = torch.compile(
        lambda x: x + 1, backend=torchair.get_npu_backend(compiler_config=made)
    )
    run(torch.ones(3))
    (said,) = [w for w in fresh_warnings() if "no effect" in w]
    assert f"debug.{name}.path" in said and f"debug.{name}.type" in said
    assert not (tmp_path / "x").exists()
