"""Rows of `experimental_config`, `inference_config`, `ge_config`,
`fusion_config`, `aoe_config` and `aclgraph_config`."""

from __future__ import annotations

from .accepts import (
    INT64_MAX,
    Accepts,
    Bool,
    File,
    Folder,
    Int,
    IntList,
    Keys,
    OneOf,
    Pool,
)
from .option_row import ALL, BOOL, CAPTURE, ENGINE, Key, Row

_SUPER = Keys(
    preload_code=int,
    split_mode=int,
    stream_fusion=int,
    constant_codegen=int,
    auto_op_parallel=int,
    early_start=int,
    opt_extend=str,
    dcci_before_kernel_start=list,
    dcci_after_kernel_end=list,
    dcci_disable_on_kernel=list,
    ubuf_lock_ignore_kernel=list,
    aggressive_opt_strategies=Keys(
        event_breaker_bypass=int,
        value_breaker_bypass=int,
        task_breaker_bypass=int,
    ),
)
_SUPER_DEBUG = Keys(
    debug_sync_all=int,
    debug_op_exec_trace=int,
    debug_cross_core_sync_check=int,
    debug_per_op_max_core_num=int,
    debug_extend=str,
)
_NO_STATIC = (
    "the engine compiles for the sizes it meets anyway, and this device has "
    "no compiler of its own for single operators"
)
_STATIC_KERNELS = "kernels for the sizes are compiled before a capture"
_MERGED = "the runtime merges the kernels of a capture"
_NO_SUPER = "there is one way to merge kernels here"
_NO_TUNING = (
    "products are measured at their first compile anyway (TORCHAIR_MEASURE)"
)
_EXPERT = "experimental_config."
_KERNEL = "experimental_config.aclgraph._"
_STATIC = _KERNEL + "aclnn_static_shape_kernel"
_SYMBOLS = "_aclnn_static_shape_kernel_sym_value_range"
_BUILD_DIR = (
    Key(
        "_aclnn_static_shape_kernel_build_dir",
        CAPTURE,
        nothing="",
    ),
)
SORTS = ("BFS", "DFS", "RDFS", "StableRDFS")


def _engine(name: str, **words: str) -> tuple[Key, ...]:
    return (Key(f"ge.{name}", words=words),)


def _process(name: str) -> tuple[Key, ...]:
    return (Key(f"ge.{name}", process=True),)


_WEIGHTS = "weights."

SIZES = (
    Row(
        "sizes.limit",
        256,
        Int(0, INT64_MAX),
        "steps and kernels are kept for at most so many classes of sizes of "
        "a graph; one more, and those that were used the longest time ago "
        "go, and are made again when they are needed. 0: any number",
    ),
)

WEIGHTS = (
    Row(
        _WEIGHTS + "quantise",
        None,
        OneOf(None, "int8", "int4"),
        "linear weights of inference graphs are read as 8 bits, a scale for "
        "each row, or 4 bits, a scale for each group, rounded to the nearest "
        "when the model is compiled; `torchair.explain` has the error of "
        "each. A parameter that is written or replaced is quantised again at "
        "the next call; writes through `.data` are not seen. The parameters "
        "stay (docs/quantisation.md)",
    ),
    Row(
        _WEIGHTS + "group",
        32,
        OneOf(32, 64, 128),
        "numbers of 4 bits that share a scale",
    ),
    Row(
        _WEIGHTS + "smallest",
        1 << 16,
        Int(0, INT64_MAX),
        "a weight of fewer numbers stays as it is",
    ),
    Row(
        _WEIGHTS + "frozen",
        False,
        BOOL,
        "contents of parameters and buffers are taken for constant: what an "
        "inference graph makes of them alone is computed at its first call "
        "and kept, and factors of channels go into the weights of "
        "convolutions. A tensor that is replaced, moved or written by an "
        "operator is seen at the next call, which computes it again; writes "
        "through `.data`, NumPy or a fused optimizer are not (docs/speed.md). "
        "It takes memory, which `torchair.explain` says",
        cuda="nothing is kept",
    ),
)

CAPTURED = (
    Row(
        "aclgraph_config.use_custom_pool",
        None,
        Pool(),
        "graphs compiled with this handle take their memory from one pool",
        "use_graph_pool",
        CAPTURE,
    ),
    Row(
        _STATIC,
        False,
        BOOL,
        "compile operators for their sizes before a capture",
        "static_kernel_compile",
        CAPTURE,
        _NO_STATIC,
        ascend=_STATIC_KERNELS,
        keys=(Key("_aclnn_static_shape_kernel", CAPTURE),),
    ),
    Row(
        _STATIC + "_build_dir",
        None,
        Folder(optional=True),
        "where that happens",
        modes=CAPTURE,
        inert=_NO_STATIC,
        ascend=_STATIC_KERNELS,
        keys=_BUILD_DIR,
    ),
    Row(
        _STATIC + "_sym_index",
        0,
        Int(0, INT64_MAX),
        "the symbol that decides whether it happens",
        "_vllm_aclnn_static_kernel_sym_index",
        CAPTURE,
        _NO_STATIC,
        ascend=_STATIC_KERNELS,
        keys=(Key("_aclnn_static_shape_kernel_sym_index", CAPTURE),),
    ),
    Row(
        _STATIC + "_sym_value_range",
        None,
        IntList(),
        "its values for which it happens",
        "_vllm_aclnn_static_kernel_sym_range",
        CAPTURE,
        _NO_STATIC,
        ascend=_STATIC_KERNELS,
        keys=(Key(_SYMBOLS, CAPTURE),),
    ),
    Row(
        _KERNEL + "disable_static_kernel_compile_cache",
        False,
        BOOL,
        "do not reuse what it compiled before",
        "disable_static_kernel_compile_cache",
        CAPTURE,
        _NO_STATIC,
    ),
    Row(
        _KERNEL + "super_kernel_optimize",
        False,
        BOOL,
        "merge the kernels of a capture: on a GPU as if all of it were in one "
        "`scope.super_kernel`; on a CPU no effect, with a warning, as what a "
        "captured graph launches is already as few units as it can. "
        "`dump_tensor_data` is then ignored",
        "super_kernel_optimize",
        CAPTURE,
        ascend=_MERGED,
        keys=(Key("_super_kernel_optimize", CAPTURE),),
    ),
    Row(
        _KERNEL + "super_kernel_optimize_options",
        None,
        _SUPER,
        "how",
        "super_kernel_optimize_options",
        CAPTURE,
        _NO_SUPER,
        ascend=_MERGED,
        keys=(Key("_super_kernel_optimize_options", CAPTURE),),
    ),
    Row(
        _KERNEL + "super_kernel_debug_options",
        None,
        _SUPER_DEBUG,
        "checks of that",
        "super_kernel_debug_options",
        CAPTURE,
        _NO_SUPER,
        ascend=_MERGED,
        keys=(Key("_super_kernel_debug_options", CAPTURE),),
    ),
)

EXPERIMENTAL = (
    Row(
        _EXPERT + "frozen_parameter",
        False,
        BOOL,
        "addresses of parameters, buffers and tensors of "
        "`mark_static_address` are taken for constant: after the first call "
        "`p.data = other` is not noticed, and the old memory is kept and "
        "used; what is written in place is seen. A storage must not be freed "
        "or resized then. In max-autotune another Parameter object is seen, "
        "graphs that are differentiated look at each call, and a call takes "
        "7 ns less for each; nothing is folded. A parameter of any strides is "
        "read as it lies. Warns",
        "frozen_parameter",
        keys=(Key("frozen_parameter", ALL),),
    ),
    Row(
        _EXPERT + "remove_noop_ops",
        True,
        BOOL,
        "copies, views and casts that change nothing are dropped",
        "remove_noop_ops",
        keys=(Key("remove_noop_ops", ALL),),
    ),
    Row(
        _EXPERT + "pattern_fusion_pass",
        True,
        BOOL,
        "patterns of `register_replacement` are replaced, and those of "
        "torch_npu: `npu_add_rms_norm` before `npu_dynamic_quant`, or before "
        "a cast to float32, is one operator in the graph",
        "pattern_fusion_pass",
        keys=(Key("pattern_fusion_pass", ALL),),
    ),
    Row(
        _EXPERT + "keep_inference_input_mutations",
        True,
        BOOL,
        "inputs are updated by the graph; False: copied back after it",
    ),
    Row(
        _EXPERT + "npu_fx_pass",
        False,
        BOOL,
        "fusion in the joint graph of training",
        modes="max-autotune",
        inert="the engine fuses on its own graph",
    ),
    Row(
        _EXPERT + "aot_config_enable_joint_graph",
        False,
        BOOL,
        "forward and backward are one graph: a call computes the gradients "
        "as well and leaves them in `.grad`, as `loss.backward()` would, which "
        "is not to be called; results need no gradient. For sizes that change "
        "it is two graphs, called one after the other",
        modes=ENGINE,
    ),
    Row(
        _EXPERT + "aot_config_output_loss_index",
        0,
        Int(0, INT64_MAX),
        "which result is the loss, for `aot_config_enable_joint_graph`: a "
        "number, or ValueError",
        modes=ENGINE,
    ),
    Row(
        _EXPERT + "cc_parallel_enable",
        False,
        BOOL,
        "an all-reduce of a product is cut in two; the first half is on its "
        "way while the second is computed",
        modes=ENGINE,
        keys=_process("exec.enableEngineParallel"),
    ),
    Row(
        _EXPERT + "memory_efficiency",
        False,
        BOOL,
        "of a graph without symbolic sizes, memory of intermediate results "
        "goes back to the system after each run; otherwise it is kept for "
        "the next run of any program",
        modes=ENGINE,
        keys=_engine("featureBaseRefreshable"),
    ),
    Row(
        _EXPERT + "static_model_ops_lower_limit",
        None,
        Int(-1, INT64_MAX),
        "Every graph is compiled for the sizes it meets; what this decides "
        "is how a graph with symbolic sizes is launched. Steps between two "
        "HOST nodes run as one list, in one parallel region; a list with "
        "fewer steps than this runs step by step, -1: always step by step. "
        "explain shows the lists",
        modes=ENGINE,
        keys=_engine("exec.static_model_ops_lower_limit"),
    ),
    Row(
        _EXPERT + "jit_compile",
        "auto",
        OneOf("auto"),
        "regions are compiled for the sizes they meet, contractions take "
        "kernels that are there: this is all there is to choose",
        modes=ENGINE,
        keys=_engine("jit_compile", auto="2"),
    ),
    Row(
        _EXPERT + "topology_sorting_strategy",
        "DFS",
        OneOf(*SORTS),
        "the order of steps: what became possible first (BFS), what the "
        "last step made possible (DFS), what each last step needs (RDFS), "
        "as written (StableRDFS). Results are the same, memory is not. Not "
        "said: as written, whatever the default reads. A graph with several "
        "send and recv keeps the written order, with a warning",
        modes=ENGINE,
        keys=_engine(
            "topoSortingMode", BFS="0", DFS="1", RDFS="2", StableRDFS="3"
        ),
    ),
    Row(
        _EXPERT + "enable_ref_data",
        False,
        BOOL,
        "inputs that the graph updates are updated in place, which the engine "
        "does anyway",
        modes=ENGINE,
    ),
    Row(
        _EXPERT + "enable_view_optimize",
        True,
        BOOL,
        "chains of permute, t, transpose, view and reshape become one, "
        "those that change nothing none (part `view` of `air passes`)",
        modes=ENGINE,
    ),
    Row(
        _EXPERT + "tiling_schedule_optimize",
        False,
        BOOL,
        "launch plans that depend on values are made on the device, which "
        "here they always are",
        modes=ENGINE,
        keys=_engine("tiling_schedule_optimize"),
    ),
)

GE = (
    Row(
        "inference_config.dynamic_gears_merge_policy",
        "zip",
        OneOf("zip", "product"),
        "how the lists of sizes of `set_dim_gears` combine: position by "
        "position, or each size with each",
        modes=ENGINE,
    ),
    Row(
        "ge_config.enable_single_stream",
        False,
        BOOL,
        "RuntimeError where the graph needs several streams: scopes of "
        "streams, npu_prefetch, HCCL_OP_EXPANSION_MODE=AIV. Without those a "
        "graph is one list anyway",
        modes=ENGINE,
        keys=(
            Key(
                "ge.enableSingleStream",
                process=True,
                words={True: "true", False: "false"},
            ),
        ),
    ),
    Row(
        "ge_config.oo_level",
        "O3",
        OneOf("O1", "O3"),
        "O3: all passes; O1: no attention, group and cat, so nothing is "
        "fused, and steps in written order",
        modes=ENGINE,
        keys=_process("oo.level"),
    ),
    Row(
        "ge_config.oo_constant_folding",
        None,
        Bool(optional=True),
        "pass `fold`; None: as the level says (on). It wins over the level, "
        "switches by name win over it",
        modes=ENGINE,
        keys=_process("oo.constantFolding"),
    ),
    Row(
        "ge_config.oo_dead_code_elimination",
        None,
        Bool(optional=True),
        "pass `dce`; None: as the level says (on). Branches are chosen "
        "before a graph is made, so none are dropped here",
        modes=ENGINE,
        keys=_process("oo.deadCodeElimination"),
    ),
    Row(
        "ge_config.export_compile_stat",
        "2",
        OneOf("0", "1", "2"),
        "`fusion_result.json` in the current folder: how often each pass of "
        '`air passes` found and made a rewrite, graph by graph; "2": '
        'written when a graph is compiled, "1": at exit, "0": not. Written '
        "only where this was set or `fusion_switch_file` is: nobody gets a "
        "file who did not ask",
        modes=ENGINE,
        keys=_process("exportCompileStat"),
    ),
    Row(
        "ge_config.aicore_num",
        None,
        Accepts(),
        "'<cube>|<vector>', numbers from 1: threads that products and the rest "
        "may use where no `limit_core_num` says otherwise; more than there are "
        "is all. ValueError for other text when a graph is compiled",
        modes=ENGINE,
        keys=_process("aicoreNum"),
    ),
    Row(
        "ge_config.optimization_switch",
        None,
        Accepts(),
        'passes by name, "PassA:on;PassB:off": the names of `air passes` '
        "and those below. Wins over the file. An unknown name switches "
        "nothing and is warned of with the nearest ones, ValueError for "
        "other text",
        modes=ENGINE,
        keys=_process("optimizationSwitch"),
    ),
    Row(
        "fusion_config.fusion_switch_file",
        None,
        File(),
        'the same as JSON: {"Switch": {"GraphFusion": {"ALL": "off", NAME: '
        '"on"}, "UBFusion": {}}}. ALL: attention, fold and cse, or group '
        "and cat; names win over it. ValueError where it is something else. "
        "Read at each compilation",
        modes=ENGINE,
        keys=_process("fusionSwitchFile"),
    ),
    Row(
        "aoe_config.aoe_mode",
        None,
        OneOf(None, "2"),
        "tunes kernels before the first run",
        modes=ENGINE,
        inert=_NO_TUNING,
        keys=(Key("aoe_mode"),),
    ),
    Row(
        "aoe_config.work_path",
        "./",
        Folder(),
        "where that happens",
        modes=ENGINE,
        inert=_NO_TUNING,
        keys=(Key("work_path", needs="aoe_config.aoe_mode"),),
    ),
    Row(
        "aoe_config.aoe_config_file",
        None,
        File(),
        "how",
        modes=ENGINE,
        inert=_NO_TUNING,
        keys=(Key("ge.aoe_config_file", needs="aoe_config.aoe_mode"),),
    ),
)
