"""The options, one row each. `CompilerConfig`, the backend "npugraph_ex" and
docs/options.md are made from this table; `tools/gen_docs.py` writes the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .accepts import (
    INT64_MAX,
    Bool,
    Call,
    Folder,
    Instance,
    Int,
    IntList,
    Keys,
    OneOf,
    Pool,
)

ALL = "all"
CAPTURE = "reduce-overhead"  # and npugraph_ex: captured and replayed
MODES = ("max-autotune", "reduce-overhead", "npugraph_ex")


def captures(mode: str) -> bool:
    """Is it a mode whose graphs are captured and replayed?"""
    return mode != "max-autotune"


@dataclass(frozen=True)
class Row:
    """An option.

    path: on CompilerConfig. alias: its key in the options of npugraph_ex,
    "!" in front where that one says the opposite. inert: why it has no
    effect here; setting it warns once with this text.
    """

    path: str
    default: Any
    accepts: Callable[[str, Any], Any]
    effect: str
    alias: str = ""
    modes: str = ALL
    inert: str = ""

    @property
    def key(self) -> str:
        return self.alias.removeprefix("!")

    @property
    def inverted(self) -> bool:
        return self.alias.startswith("!")


BOOL, CALL = Bool(), Call()
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
_NO_SUPER = "what a captured graph launches is already as few units as it can"
_GRAPH = "debug.aclgraph."
_EXPERT = "experimental_config."
_KERNEL = "experimental_config.aclgraph._"
_STATIC = _KERNEL + "aclnn_static_shape_kernel"

OPTIONS = (
    Row(
        "mode",
        "max-autotune",
        OneOf(*MODES),
        "max-autotune: as fast as the device allows; reduce-overhead: "
        "captured once, replayed, every result rounded where eager rounds "
        "it; npugraph_ex: the same by its other name",
        "mode",
    ),
    Row(
        "post_grad_custom_pre_pass",
        None,
        CALL,
        "pass(gm, example_inputs, config) over the FX graph, in place, before "
        "the built-in passes",
        "post_grad_custom_pre_pass",
    ),
    Row(
        "post_grad_custom_post_pass",
        None,
        CALL,
        "as above, after the built-in FX passes",
        "post_grad_custom_post_pass",
    ),
    Row(
        "debug.run_eagerly",
        False,
        BOOL,
        "torch runs the FX graph after its passes; the engine compiles "
        "nothing and nothing is captured",
        "force_eager",
    ),
    Row(
        "debug.deadlock_check",
        False,
        BOOL,
        "write, for each graph, which communication operators (`aiv_`, "
        "`dispatch` or `combine` in their names) may run side by side and need "
        "more vector cores together than there are: "
        "`<graph>_filtered_deadlock_check.json` in the debug folder",
        "deadlock_check",
    ),
    Row(
        "debug.pass_limit",
        0,
        Int(0, 2**31 - 1),
        "run the first n passes of the engine only; 0: all",
    ),
    Row(
        "debug.rewrite_limit",
        0,
        Int(0, 2**31 - 1),
        "make the first n rewrites of the engine only; 0: all",
    ),
    Row(
        "debug.graph_dump.type",
        None,
        OneOf(None, "txt", "py"),
        'write graphs: "txt" the engine\'s, after each pass; "py" the FX '
        "graph as Python, after its passes",
    ),
    Row(
        "debug.graph_dump.path",
        None,
        Instance(str),
        "where; a folder for each graph is made here (None: .)",
    ),
    Row(
        "debug.data_dump.type",
        None,
        OneOf(None, "npy"),
        "torch runs the FX graph node by node and writes the inputs and "
        "outputs of each as .npy files",
    ),
    Row(
        "debug.data_dump.path",
        None,
        Instance(str),
        "the root of these files (None: .)",
    ),
    Row(
        "debug.data_dump.filter",
        None,
        CALL,
        "filter(node): only nodes for which it is true are written",
    ),
    Row(
        "debug.fx_summary.type",
        None,
        OneOf(None, "csv"),
        "a table of the operators and whether the engine has them",
        inert="torchair.explain says which operator runs where, and why",
    ),
    Row(
        _GRAPH + "disable_reinplace_inplaceable_ops_pass",
        False,
        BOOL,
        "intermediate results are not written over operands that die",
        "!inplace_pass",
        CAPTURE,
    ),
    Row(
        _GRAPH + "disable_reinplace_input_mutated_ops_pass",
        False,
        BOOL,
        "an input that the graph updates is computed apart and copied back, "
        "not written in place",
        "!input_inplace_pass",
        CAPTURE,
    ),
    Row(
        _GRAPH + "disable_mempool_reuse_in_same_fx",
        False,
        BOOL,
        "captures of one graph for several sizes do not share memory; always "
        "so with a pool of your own",
        "!reuse_graph_pool_in_same_fx",
        CAPTURE,
    ),
    Row(
        _GRAPH + "enable_output_clone",
        False,
        BOOL,
        "True: results are memory of their own. False, said explicitly: the "
        "same memory at every call, overwritten by the next. Not said: "
        "nothing is copied, and nothing that is held is overwritten",
        "clone_output",
        CAPTURE,
    ),
    Row(
        _GRAPH + "static_capture_size_limit",
        64,
        Int(1, INT64_MAX),
        "captures of one graph; when another key needs one, all are dropped "
        "and torch runs the graph from then on",
        "capture_limit",
        CAPTURE,
    ),
    Row(
        _GRAPH + "clone_input",
        True,
        BOOL,
        "True, said explicitly: inputs are copied into buffers of the "
        "capture. False: the first call's tensors stay the inputs, later data "
        "are copied into them. Not said: inputs are used where they are",
        "clone_input",
        CAPTURE,
    ),
    Row(
        _GRAPH + "remove_cat_ops",
        True,
        BOOL,
        "what is concatenated is computed into its place in the result",
        "remove_cat_ops",
        CAPTURE,
    ),
    Row(
        _GRAPH + "capture_error_mode",
        "global",
        OneOf("global", "thread_local", "relaxed"),
        "which threads' unsafe calls make a capture fail",
        "capture_error_mode",
        CAPTURE,
    ),
    Row(
        _GRAPH + "force_recapture",
        False,
        BOOL,
        "capture at every call, to tell errors of capturing from others",
        "force_recapture",
        CAPTURE,
    ),
    Row(
        "aclgraph_config.use_custom_pool",
        None,
        Pool(),
        "graphs compiled with this handle take their memory from one pool",
        "use_graph_pool",
        CAPTURE,
    ),
    Row(
        _EXPERT + "frozen_parameter",
        False,
        BOOL,
        "addresses of parameters are taken for constant; a parameter that "
        "moves is not noticed",
        "frozen_parameter",
    ),
    Row(
        _EXPERT + "remove_noop_ops",
        True,
        BOOL,
        "copies, views and casts that change nothing are dropped",
        "remove_noop_ops",
    ),
    Row(
        _EXPERT + "pattern_fusion_pass",
        True,
        BOOL,
        "patterns of `register_replacement` are replaced",
        "pattern_fusion_pass",
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
        "forward and backward as one graph",
        inert="forward and backward are compiled apart",
    ),
    Row(
        _STATIC,
        False,
        BOOL,
        "compile operators for their sizes before a capture",
        "static_kernel_compile",
        CAPTURE,
        _NO_STATIC,
    ),
    Row(
        _STATIC + "_build_dir",
        None,
        Folder(optional=True),
        "where that happens",
        modes=CAPTURE,
        inert=_NO_STATIC,
    ),
    Row(
        _STATIC + "_sym_index",
        0,
        Int(0, INT64_MAX),
        "the symbol that decides whether it happens",
        "_vllm_aclnn_static_kernel_sym_index",
        CAPTURE,
        _NO_STATIC,
    ),
    Row(
        _STATIC + "_sym_value_range",
        None,
        IntList(),
        "its values for which it happens",
        "_vllm_aclnn_static_kernel_sym_range",
        CAPTURE,
        _NO_STATIC,
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
        "merge the kernels of a capture; `dump_tensor_data` is then ignored",
        "super_kernel_optimize",
        CAPTURE,
        _NO_SUPER,
    ),
    Row(
        _KERNEL + "super_kernel_optimize_options",
        None,
        _SUPER,
        "how",
        "super_kernel_optimize_options",
        CAPTURE,
        _NO_SUPER,
    ),
    Row(
        _KERNEL + "super_kernel_debug_options",
        None,
        _SUPER_DEBUG,
        "checks of that",
        "super_kernel_debug_options",
        CAPTURE,
        _NO_SUPER,
    ),
    Row(
        "dump_config.enable_dump",
        False,
        BOOL,
        "every tensor that a node of the FX graph computes is saved as a "
        "file; torch runs the graph",
        "dump_tensor_data",
    ),
    Row(
        "dump_config.data_dump_stage",
        "optimized",
        OneOf("original", "optimized"),
        "of the graph before or after the FX passes",
        "data_dump_stage",
        CAPTURE,
    ),
    Row(
        "dump_config.dump_path",
        "./",
        Folder(),
        "files go to worldsize<W>_global_rank<R>/ in it",
        "data_dump_dir",
    ),
)
ALIASES = {row.key: row for row in OPTIONS if row.alias}
# Keys that switch something in the engine: include/air_without.def
WITHOUT = {
    "remove_noop_ops": "noop",
    "input_inplace_pass": "input_inplace",
    "inplace_pass": "inplace",
    "remove_cat_ops": "cat",
}
