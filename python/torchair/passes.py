"""The passes over FX graphs, from one table; and `register_replacement`.

Only what needs FX is here: passes of the user, patterns given as Python
functions, streams. Everything else happens on the engine's graph, in the rows
of src/pass/passes.def. Where torch is to run the graph itself
(`debug.run_eagerly`), rows with `eager` stand in for those of the engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from . import (
    cats,
    checks,
    comm_split,
    compat,
    lanes,
    mutations,
    reinplace,
    retype,
    super_kernels,
    syncs,
)
from .config import CompilerConfig
from .dumps import Folder
from .logs import logger


@dataclass
class Job:
    """One graph on its way through the table."""

    gm: torch.fx.GraphModule
    inputs: Sequence[Any]
    config: CompilerConfig
    dump: Folder | None = None
    rewrites: dict[str, int] = field(default_factory=dict)  # by row
    _streams: bool | None = None

    def has_streams(self) -> bool:
        """Are there streams, events or scopes? Of the graph as it is."""
        if self._streams is None:
            self._streams = lanes.has_lanes(self.gm.graph)
        return self._streams

    def changed(self) -> None:
        self._streams = None


@dataclass(frozen=True)
class Pass:
    """run: gives True where the graph is another one now.

    switch: key of the option that decides, "" for always. eager: only where
    torch runs the graph.
    """

    name: str
    switch: str
    run: Callable[[Job], bool]
    help: str
    eager: bool = False


def _user(name: str) -> Callable[[Job], bool]:
    def run(job: Job) -> bool:
        getattr(job.config, name).raw(job.gm, job.inputs, job.config)
        lanes.check_scopes(job.gm.graph)
        return True

    return run


def _noop(job: Job) -> bool:
    compat.remove_noop_ops(job.gm)
    reinplace.keep_old_values(job.gm.graph)
    logger.debug("After removing noop ops:\n%s", job.gm.graph)
    return True


def _patterns(job: Job) -> bool:
    _add_rules(job.gm.graph)
    if not _registered:
        return False
    lanes.assign(job.gm.graph)
    count = _all_patterns().apply(job.gm.graph)
    job.rewrites["pattern_fusion"] = count
    return bool(count)


def _pieces(job: Job) -> bool:
    wanted = job.config.experimental_config.cc_parallel_enable
    if job.config.captures or not wanted:
        return False
    count = comm_split.split(job.gm)
    job.rewrites["cc_parallel"] = count
    return bool(count)


def _unwrap(job: Job) -> bool:
    return job.has_streams() and syncs.unwrap(job.gm)


def _pair(job: Job) -> bool:
    return job.has_streams() and lanes.pair_streams(job.gm.graph)


def _check(job: Job) -> bool:
    if job.has_streams():
        lanes.check_scopes(job.gm.graph)
    return False


def _join(job: Job) -> bool:
    if not job.has_streams():
        return False
    lanes.join_lanes(job.gm.graph)
    return True


def _order(job: Job) -> bool:
    if not job.has_streams():
        return False
    lanes.refuse_waits(job.gm.graph, job.config.captures)
    lanes.order(job.gm.graph)
    return True


def _super(job: Job) -> bool:
    if job.config.captures:
        super_kernels.join_all(job.gm)
    return False


def _in_place(job: Job) -> bool:
    if mutations.has_functionalized(job.gm):
        mutations.find_in_place(job.gm.graph)
    return False


def _cats(job: Job) -> bool:
    return job.config.captures and cats.remove_cats(job.gm)


def _custom_inputs(job: Job) -> bool:
    """Operators of the user, by Inductor's rules."""
    if not job.config.captures or not mutations.has_functionalized(job.gm):
        return False
    try:
        compat.reinplace_custom(job.gm)
    except Exception as why:
        warnings.warn(
            f"operators of the user do not write in place: {why}",
            stacklevel=2,
        )
        return False
    return True


def _inputs(job: Job) -> bool:
    return job.config.captures and reinplace.write_inputs(job.gm)


def _intermediates(job: Job) -> bool:
    return job.config.captures and reinplace.write_intermediates(job.gm)


PASSES = (
    Pass(
        "unwrap_syncs",
        "",
        _unwrap,
        "operators of streams and events stand for themselves",
    ),
    Pass(
        "pair_streams",
        "",
        _pair,
        "a stream that is set becomes a scope around what follows",
    ),
    Pass(
        "pre_pass",
        "post_grad_custom_pre_pass",
        _user("post_grad_custom_pre_pass"),
        "the user's pass before all others",
    ),
    Pass(
        "remove_noop_ops",
        "remove_noop_ops",
        _noop,
        "copies, views and casts that change nothing",
        eager=True,
    ),
    Pass(
        "pattern_fusion",
        "pattern_fusion_pass",
        _patterns,
        "what `register_replacement` was told",
    ),
    Pass(
        "post_pass",
        "post_grad_custom_post_pass",
        _user("post_grad_custom_post_pass"),
        "the user's pass after these",
    ),
    Pass(
        "cc_parallel",
        "",
        _pieces,
        "an all-reduce runs beside the second half of what it reduces",
    ),
    Pass("check_scopes", "", _check, "every scope entered is left"),
    Pass(
        "join_lanes",
        "",
        _join,
        "side streams start after the graph's start and end before its end",
    ),
    Pass(
        "order",
        "",
        _order,
        "scopes and events become lanes and dependencies of nodes",
    ),
    Pass(
        "super_kernel",
        "super_kernel_optimize",
        _super,
        "on a GPU all of a capture is one super kernel, as if in its scope",
    ),
    Pass(
        "write_in_place",
        "input_inplace_pass",
        _in_place,
        "operators of the user write into inputs, where nothing reads what "
        "was there later",
    ),
    Pass(
        "remove_cat",
        "remove_cat_ops",
        _cats,
        "what is concatenated is computed into its place",
        eager=True,
    ),
    Pass(
        "write_custom",
        "input_inplace_pass",
        _custom_inputs,
        "operators of the user write without a clone where nothing sees it",
        eager=True,
    ),
    Pass(
        "write_inputs",
        "input_inplace_pass",
        _inputs,
        "an input that is updated is written by what computes its new value",
        eager=True,
    ),
    Pass(
        "write_intermediates",
        "inplace_pass",
        _intermediates,
        "operators write into what only they read",
        eager=True,
    ),
)


# These leave node.meta["val"] as it should be.
_TYPED = {
    "unwrap_syncs",
    "pair_streams",
    "join_lanes",
    "order",
    "remove_cat",
    "write_inputs",
    "write_intermediates",
}


def run_all(job: Job, eager: bool) -> None:
    """All rows that the options ask for; the graph's code is current then.
    AOTAutograd's is, and has no dead nodes, so both are done where a row has
    changed something.

    Exceptions of user passes go through; RuntimeError where scopes are not
    paired.
    """
    _dump(job, "")
    changed = edited = False
    for row in PASSES:
        if row.eager and not eager:
            continue
        if row.switch and not getattr(job.config, row.switch):
            continue
        if row.run(job):
            job.changed()
            changed = True
            edited |= row.name not in _TYPED
            _dump(job, f"after_{row.name}")
    if edited:
        retype.propagate(job.gm)
    if changed:
        job.gm.graph.eliminate_dead_code()
        job.gm.recompile()


def _dump(job: Job, what: str) -> None:
    if job.dump is not None:
        job.dump.graph(job.gm, what)


# ---- patterns ----

_registered: list[Any] = []  # the PatternMatcherPass, once there is a pattern


_rules: dict[Any, Callable[[], None]] = {}


def rules_of(op: Any, add: Callable[[], None]) -> None:
    """add() registers patterns with this operator, before the first graph that
    has it: graphs without pay nothing for them."""
    _rules[op] = add


def _add_rules(graph: torch.fx.Graph) -> None:
    if _rules:
        for op in {n.target for n in graph.nodes} & _rules.keys():
            _rules.pop(op)()


def _all_patterns() -> Any:
    if not _registered:
        from torch._inductor.pattern_matcher import PatternMatcherPass

        _registered.append(PatternMatcherPass(pass_name="torchair_patterns"))
    return _registered[0]


def _always(_match: Any) -> bool:
    return True


def register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    trace_fn: Callable[..., Any] | None = None,
    extra_check: Callable[[Any], bool] = _always,
    search_fn_pattern: Any = None,
    scalar_workaround: dict[str, Any] | None = None,
    skip_duplicates: bool = False,
) -> None:
    """From now on graphs have replace_fn where they had search_fn.

    Both take the example inputs (tensors, real or fake; only dtypes and
    ranks matter) and return a tensor or several. trace_fn: makes a graph of
    them, by default that of inference. extra_check(match): a match counts
    only where it gives True, and never where its nodes belong to different
    streams. search_fn_pattern: the pattern itself, search_fn is not looked at
    then; since torch 2.15 what the pattern finds must be search_fn's, too.
    scalar_workaround: argument -> number, for numbers that tracing
    would make part of the pattern. skip_duplicates: register nothing where
    the pattern is known; otherwise RuntimeError. ValueError: search_fn has an
    argument that it does not use, so that a match would not have it.

    Intermediate results of a match must not be used elsewhere. Switched off
    by `experimental_config.pattern_fusion_pass`.
    """
    from torch._inductor import pattern_matcher

    trace_fn = trace_fn or trace
    checks.calls(search_fn, "register_replacement: search_fn")
    checks.calls(replace_fn, "register_replacement: replace_fn")
    checks.calls(extra_check, "register_replacement: extra_check")
    checks.is_many(
        example_inputs,
        "register_replacement: example_inputs",
        "a list of tensors",
    )

    def checked(match: Any) -> bool:
        found = {lanes.lane_of(node) for node in match.nodes}
        return len(found) <= 1 and extra_check(match)

    pattern_matcher.register_replacement(
        search_fn,
        replace_fn,
        _apart(example_inputs),
        trace_fn if search_fn_pattern else _all_used(trace_fn),
        _all_patterns(),
        checked,
        scalar_workaround=scalar_workaround,
        search_fn_pattern=search_fn_pattern,
        skip_duplicates=skip_duplicates,
    )


def _all_used(trace_fn: Callable[..., Any]) -> Callable[..., Any]:
    """trace_fn, which at its first call, that of the pattern, refuses
    tensors that nothing uses."""
    first = [True]

    def traced(fn: Any, args: Any, **kwargs: Any) -> Any:
        gm = trace_fn(fn, args, **kwargs)
        inputs = gm.graph.find_nodes(op="placeholder") if first else ()
        first.clear()
        unused = [
            node.name
            for node, value in zip(inputs, tree_leaves(args), strict=False)
            if isinstance(value, torch.Tensor) and not node.users
        ]
        if unused:
            raise ValueError(
                "register_replacement: search_fn does not use its argument "
                f"{', '.join(unused)}; a match would not have it"
            )
        return gm

    return traced


def _apart(inputs: Sequence[Any]) -> list[Any]:
    """The inputs, none of them the same tensor as another.

    What is traced with one tensor twice, as in `[torch.empty(4)] * 2`, is a
    pattern of one argument: it matches nothing that has two.
    """
    seen: list[torch.Tensor] = []

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if any(tensor is other for other in seen):
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        seen.append(tensor)
        return tensor

    return [tree_map_only(torch.Tensor, own, value) for value in inputs]


def trace(fn: Callable[..., Any], args: Sequence[Any], **_: Any) -> Any:
    """The graph of fn as the compiler's graphs are: nothing decomposed."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    with enable_python_dispatcher():
        gm = make_fx(fn)(*args)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
