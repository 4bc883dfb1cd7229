"""Rows of the top level, `debug`, `dump_config` and `export`."""

from __future__ import annotations

from .accepts import (
    INT64_MAX,
    Accepts,
    File,
    Folder,
    Instance,
    Int,
    Matching,
    OneOf,
    Path,
)
from .option_row import (
    ALL,
    BOOL,
    CALL,
    CAPTURE,
    ENGINE,
    MODES,
    Key,
    Row,
)

_GRAPH = "debug.aclgraph."
_EXPORT = "export."
_LATER = "export.experimental."


def _captured(name: str) -> tuple[Key, ...]:
    return (Key(name, CAPTURE),)


def _dumped(name: str) -> tuple[Key, ...]:
    """Said to the engine where anything is dumped at all."""
    return (
        Key(
            f"ge.{name}",
            process=True,
            needs="dump_config.enable_dump",
        ),
    )


DEBUG = (
    Row(
        "mode",
        "max-autotune",
        OneOf(*MODES),
        "max-autotune: as fast as the device allows; reduce-overhead: "
        "captured once, replayed, every result rounded where eager rounds "
        "it; npugraph_ex: the same by its other name",
        "mode",
        keys=(Key("mode", ALL),),
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
        "write each graph as a Chrome trace, and print which communication "
        "(collectives; `aiv_`, `dispatch` or `combine` in the name) may run "
        "side by side and needs more vector cores together than there are: "
        "`debug_output_graph_*.json`, `*_filtered.json` and, where there is "
        "such a pair, `*_filtered_deadlock_check.json`, in the debug folder "
        "(max-autotune: where the process works)",
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
        OneOf(None, "txt", "pbtxt", "py"),
        "write dynamo_original_graph_* and dynamo_optimized_graph_*: the graph "
        "before and after the engine's passes, or (py) the calls that build "
        "it; captures: py only, the code they run",
    ),
    Row(
        "debug.graph_dump.path",
        None,
        Path(),
        "where; the folder is made where there is none (None: .)",
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
        Path(),
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
        "write summary_rank_<r>_pid_<p>_ts_<t>.csv: the operators, how often "
        "they are called and whether the engine has them",
        modes=ENGINE,
    ),
    Row(
        "debug.fx_summary.skip_compile",
        True,
        BOOL,
        "True: torch runs the graph after the table is written; False: it is "
        "compiled as well",
        modes=ENGINE,
    ),
    Row(
        _GRAPH + "disable_reinplace_inplaceable_ops_pass",
        False,
        BOOL,
        "intermediate results are not written over operands that die",
        "!inplace_pass",
        CAPTURE,
        keys=_captured("disable_reinplace_inplaceable_ops_pass"),
    ),
    Row(
        _GRAPH + "disable_reinplace_input_mutated_ops_pass",
        False,
        BOOL,
        "an input that the graph updates is computed apart and copied back, "
        "not written in place",
        "!input_inplace_pass",
        CAPTURE,
        keys=_captured("disable_reinplace_input_mutated_ops_pass"),
    ),
    Row(
        _GRAPH + "disable_mempool_reuse_in_same_fx",
        False,
        BOOL,
        "captures of one graph for several sizes do not share memory; always "
        "so with a pool of your own",
        "!reuse_graph_pool_in_same_fx",
        CAPTURE,
        keys=_captured("disable_mempool_reuse_in_same_fx"),
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
        keys=_captured("enable_output_clone"),
    ),
    Row(
        _GRAPH + "static_capture_size_limit",
        64,
        Int(1, INT64_MAX),
        "captures of one graph; when another key needs one, the longest "
        "unused makes room: the key's first call runs without a capture",
        "capture_limit",
        CAPTURE,
        keys=_captured("static_capture_size_limit"),
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
        keys=_captured("clone_input"),
    ),
    Row(
        _GRAPH + "remove_cat_ops",
        True,
        BOOL,
        "what is concatenated is computed into its place in the result",
        "remove_cat_ops",
        CAPTURE,
        keys=_captured("remove_cat_ops"),
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
)

DUMP = (
    Row(
        "dump_config.enable_dump",
        False,
        BOOL,
        "values of the graph become files. max-autotune: those of the "
        "engine's steps, as `dump_config.*` says, and the engine runs the "
        "graph; captures: every tensor of the FX graph, and torch runs it",
        "dump_tensor_data",
        keys=(
            Key("ge.exec.enableDump", process=True, words={True: "1"}),
            Key("aclgraph.enableDump", CAPTURE, True, {True: "1"}),
        ),
    ),
    Row(
        "dump_config.data_dump_stage",
        "optimized",
        OneOf("original", "optimized"),
        "of the graph before or after the FX passes",
        "data_dump_stage",
        CAPTURE,
        keys=(
            Key(
                "aclgraph.dumpStage",
                CAPTURE,
                True,
                needs="dump_config.enable_dump",
            ),
        ),
    ),
    Row(
        "dump_config.dump_path",
        "./",
        Folder(),
        "files go to worldsize<W>_global_rank<R>/ in it",
        "data_dump_dir",
        keys=(
            *_dumped("exec.dumpPath"),
            Key(
                "aclgraph.dumpPath",
                CAPTURE,
                True,
                needs="dump_config.enable_dump",
            ),
        ),
    ),
    Row(
        "dump_config.dump_mode",
        "all",
        OneOf("input", "output", "all"),
        "of a node: what goes in, what comes out, or both",
        modes=ENGINE,
        keys=_dumped("exec.dumpMode"),
    ),
    Row(
        "dump_config.quant_dumpable",
        False,
        BOOL,
        "values that would live in registers are in memory and dumped too; "
        "without it a fused region shows its results",
        modes=ENGINE,
        keys=_dumped("quant_dumpable"),
    ),
    Row(
        "dump_config.dump_step",
        "",
        Matching(
            r"(\d+(-\d+)?(\|\d+(-\d+)?)*)?",
            "numbers and ranges of calls from 0, as in '0|2-5'; '' for all",
        ),
        "the calls to dump",
        modes=ENGINE,
        keys=_dumped("exec.dumpStep"),
    ),
    Row(
        "dump_config.dump_layer",
        "",
        Matching(
            r'[0-9a-zA-Z_" "/\\.]*',
            "names of nodes with spaces between them; '' for all",
        ),
        "the FX nodes to dump, beside those in `scope.data_dump()`; they are "
        "in memory then, if they are computed at all",
        modes=ENGINE,
        keys=_dumped("exec.dumpLayer"),
    ),
    Row(
        "dump_config.dump_data",
        "tensor",
        OneOf("tensor", "stats"),
        "whole tensors, or stats.csv with their extremes, means and norms",
        modes=ENGINE,
        keys=_dumped("exec.dumpData"),
    ),
    Row(
        "dump_config.dump_config_path",
        None,
        File(".json"),
        "the same choices as a file, which dumps whether or not "
        "`enable_dump` is set; options that are set win over it",
        modes=ENGINE,
        keys=(Key("ge_dump_with_acl_config", process=True),),
    ),
)

EXPORT = (
    Row(
        _EXPORT + "export_mode",
        False,
        BOOL,
        "the graph is written to files, not run; `dynamo_export` sets it",
        modes=ENGINE,
    ),
    Row(
        _EXPORT + "export_path_dir",
        "./",
        Path(),
        "where to",
        modes=ENGINE,
    ),
    Row(
        _EXPORT + "export_name",
        None,
        Instance(str),
        "the name of the .air file without its suffix",
        modes=ENGINE,
    ),
    Row(
        _EXPORT + "weight_name",
        None,
        Instance(dict),
        "id of a tensor -> name of the parameter or buffer",
        modes=ENGINE,
    ),
    Row(
        _EXPORT + "inputs_name",
        None,
        Accepts(),
        "names of the other inputs; the graph has those of the user's code",
        modes=ENGINE,
        inert="inputs are called as the program calls them",
    ),
    Row(
        _LATER + "enable_record_nn_module_stack",
        False,
        BOOL,
        "every node says which modules it stands in",
        modes=ENGINE,
    ),
    Row(
        _LATER + "auto_atc_config_generated",
        False,
        BOOL,
        "rank 0 writes model_relation_config.json and numa_config.json",
        modes=ENGINE,
    ),
    Row(
        _LATER + "enable_lite_export",
        False,
        BOOL,
        "converters for small devices",
        modes=ENGINE,
        inert="the one converter that it means is of another vendor",
    ),
)
