"""The torch.compile backend: AOTAutograd in front, the engine behind.

On CPU, ATen makes one `_scaled_dot_product_flash_attention_for_cpu` of
attention; dropout, other ranks and heads are products and `_safe_softmax`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import (
    bodies,
    breaks,
    checks,
    collectives,
    compat,
    compat_saving,
    compat_training,
    compile_stat,
    compiled,
    converters,
    cuda,
    cuda_seeds,
    data_dump,
    direct,
    direct_calls,
    dispatch,
    dumps,
    dynamo_passes,
    eager,
    events,
    frames,
    graph_dump,
    images,
    joint,
    names,
    origin,
    partition,
    passes,
    prepared,
    printing,
    profiling,
    recorded,
    several,
    slow,
    switches,
    views,
    weights,
    written,
)
from .capture import CaptureOptions, with_warning
from .compiled import Record
from .config import (
    CompilerConfig,
    capture_options,
    npugraph_ex_config,
    settings,
    warn_of_other_mode,
)
from .decorate import decorated
from .engine import refusals, start_once
from .logs import logger

Compiled = Callable[..., Any]

records: list[Record] = []
_LIMIT = 1000  # records kept
_collectors: list[tuple[list[Record], list[Any]]] = []
_count = itertools.count()


def _keep(record: Record) -> None:
    records.append(record)
    del records[:-_LIMIT]
    for found, _ in _collectors:
        found.append(record)


@contextlib.contextmanager
def collect(found: list[Record], programs: list[Any]) -> Iterator[None]:
    """Adds what is compiled meanwhile, and keeps the programs alive."""
    _collectors.append((found, programs))
    try:
        yield
    finally:
        _collectors.pop()


Wrap = Callable[[Record, torch.fx.GraphModule, Any], Compiled]
_wraps: list[Wrap] = []


@contextlib.contextmanager
def wrapping(wrap: Wrap | None) -> Iterator[None]:
    """Programs compiled meanwhile are called through wrap(record, graph,
    program); their named values are in memory, for who watches them. None:
    nothing is different."""
    if wrap is None:
        yield
        return
    _wraps.append(wrap)
    try:
        yield
    finally:
        _wraps.pop()


_savers: list[Any] = []


@contextlib.contextmanager
def followed_by(saver: Any) -> Iterator[None]:
    """A saving.GraphSaver is told of the programs made meanwhile."""
    if saver is None:
        yield
        return
    _savers.append(saver)
    try:
        yield
    finally:
        _savers.pop()


@decorated
def compile_graph(
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    config: CompilerConfig,
    kind: str,
    capture: CaptureOptions | None = None,
    folder: str | None = None,
) -> Compiled:
    """One graph of AOTAutograd -> a callable that takes a list. capture: how
    calls are captured (None: as the configuration says); folder: of the model,
    where graphs are dumped."""
    start_once()
    if capture is None:
        capture = capture_options(config)
    if capture is not None and capture.listener is None:
        capture = events.report(dataclasses.replace(capture))
    number = next(_count)
    record = Record(f"{kind}_{number}", kind, capture=capture, number=number)
    record.mode, record.settings = str(config.mode.value), config.said()
    record.wrapper = "the graph is differentiated"  # until trained.py knows
    if kind == "inference":  # until _call_directly knows more
        record.wrapper = "the backend is not torchair's own"
    _keep(record)
    switches.log_options(record.name, config)
    dump = None if folder is None else dumps.Folder(folder, kind)
    if config.debug.fx_summary.type and not config.captures:
        from . import fx_summary

        logger.info("fx_summary: %s", fx_summary.write(gm))
    record.fallback = eager.reason(config)
    if kind == "backward":
        printing.drop_repeated(gm.graph)
    if not eager.keeps_original(config):
        job = passes.Job(gm, inputs, config, dump)
        passes.run_all(job, bool(record.fallback))
        record.rewrites = job.rewrites
        graph_dump.write_code(gm, config, record.name, dump)
    if record.fallback:
        return eager.counted(eager.make(gm, config), record)
    if config.debug.deadlock_check:
        from . import deadlock

        where = dumps.root_folder(config) if config.captures else "."
        deadlock.check(gm.graph, dump.path if dump else where, number)
    quantised = weights.apply(gm, config, kind)
    record.weights = quantised.report
    record.asked = switches.of_graph(gm.graph, config)
    record.asked.frozen &= kind == "inference"  # training replaces them
    record.asked.contents &= kind == "inference"  # and writes them
    events.compiled(gm, config.captures and bool(config.remove_cat_ops))
    static = compat.static_input_indices(kind)
    make = functools.partial(_made, config, dump)
    if not (_savers or _wraps or config.export.export_mode):
        plain = functools.partial(_made, config, None)
        bodies.compile_held(gm, record, plain, _keep)
    how = several.How(make, _keep, _savers)
    return quantised.watch(several.made(gm, static, record, how))


def _made(
    config: CompilerConfig,
    dump: dumps.Folder | None,
    gm: torch.fx.GraphModule,
    record: Record,
    static: set[int],
) -> Compiled:
    """The engine's program; where it refuses, torch's graph."""
    try:
        return cuda.until_made(
            functools.partial(_engine_program, gm, config, record, dump, static)
        )
    except refusals() as why:
        record.fallback = str(why)
        return eager.counted(eager.boxed(gm), record)


def _engine_program(
    gm: torch.fx.GraphModule,
    config: CompilerConfig,
    record: Record,
    folder: dumps.Folder | None,
    parameters: set[int],
    without: frozenset[str],
) -> Any:
    """The program; or `without` and what the device has no kernel for."""
    from ._native import Program
    from .importer import FROZEN, PARAM, import_graph

    logger.debug("FX graph %s: %s", record.name, gm.graph)
    begin = time.perf_counter()
    how = PARAM | FROZEN if record.asked.contents else PARAM
    static = dict.fromkeys(parameters, how)
    converters.expand(gm, converts=not config.captures)
    prepared.prepare(gm)
    origin.note_modules(gm, config)
    images.prepare(gm, config.captures)
    if not config.export.export_mode:
        slow.mark(gm.graph)
    record.asked.off |= without & {*cuda.PASSES.values()}
    dump = graph_dump.of(config, folder)
    got = import_graph(gm, record.name, static, without, dump.wanted)
    record.nodes, record.hosts = got.nodes, got.host_nodes
    record.comms = got.comm_nodes
    record.import_s = time.perf_counter() - begin
    dump.write("original", gm, got.graph.ge_text)
    watch = data_dump.dumper(config, gm, record.name)
    if _wraps or (watch is not None and watch.needs_registers):
        record.asked.off.add("registers")
    keywords = {
        "exact": config.captures,
        "pass_limit": config.debug.pass_limit.raw,
        "rewrite_limit": config.debug.rewrite_limit.raw,
        **record.asked.keywords(),
    }
    if config.export.export_mode:
        record.wrapper = "the graph is written to files"
        from . import export

        return export.runner(gm, got, config)
    if _savers:
        _savers[-1].graph(gm, got, keywords)
    asked = record.capture or recorded.captures(got.hosts)
    noop = "noop" not in record.asked.off
    with dumps.engine_folder(folder, noop) as dump_dir:
        program = Program(
            got.graph,
            tuple(got.args),
            tuple(got.consts),
            got.nresults,
            tuple(got.outs),
            tuple(got.hosts),
            eager.rescue(gm, record),
            dump_dir=dump_dir,
            capture=with_warning(asked, record.name),
            **keywords,
        )
    if got.place and (more := cuda.prepare(program, gm, without)) != without:
        return more
    if _savers:
        _savers[-1].optimised(program.text(0))
    program.watch, program.records = watch, recorded.repeats(got.hosts)
    record.compile_s = time.perf_counter() - begin - record.import_s
    record.program = weakref.ref(program)
    dump.write("optimized", gm, graph_dump.text_of(program))
    dumps.log_compiled(record, program, gm, config)
    if compile_stat.wanted(config):
        compile_stat.add(config, record.number, program, record.rewrites)
    for _, programs in _collectors:
        programs.append(program)
    if _wraps:
        return eager.boxed(_wraps[-1](record, gm, program))
    return program if _savers else eager.timed(record, program)


class Compiler:
    """compiler(gm, example_inputs) -> callable, for a backend of your own."""

    # aot_autograd would wrap what we return, and lose its `_boxed_call`.
    _is_wrapped_bw_compiler = True

    def __init__(
        self,
        config: CompilerConfig,
        kind: str = "forward",
        capture: CaptureOptions | None = None,
        folder: str | None = None,
        arguments: Sequence[str] = (),
        values: Sequence[Any] = (),
    ) -> None:
        self.config = config
        self.kind = kind
        self.capture = capture
        self.folder = folder
        self.arguments = arguments  # of Dynamo's graph: what the user says
        self.values = values  # of the same, until a graph is compiled
        self.made: Compiled | None = None
        self.record: Record | None = None  # of the last graph
        self.nargs = 0
        self.meta: Any = None  # AOTAutograd's, of the last graph
        self.plan: direct.Plan | None = None  # of calls that go around it
        self.held: list[Any] = []  # arguments that Dynamo's graph has itself
        self.gives: tuple[bool, ...] = ()  # by result of a backward: is it one
        self.owner = compiled.current()

    # A backward is compiled when it first runs. Where that is in a function
    # that Dynamo compiles, it would compile this too.
    @compat.untraced
    def __call__(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Compiled:
        partition.describe_statistics(gm.graph)
        names.mark(gm, self.arguments)
        weights.mark(gm, self.values)
        self.values = ()
        if self.kind != "backward":
            meta = compat.runtime_metadata()
            views.take_views_of_inputs(gm.graph, meta)
        (results,) = gm.graph.find_nodes(op="output")[0].args
        if isinstance(results, (tuple, list)):
            self.gives = tuple(result is not None for result in results)
        config, kind = self.config, self.kind
        found: Compiled = compile_graph(
            gm, example_inputs, config, kind, self.capture, self.folder
        )
        if self.kind == "backward":
            found = cuda_seeds.reading(gm, found)
        self.made, self.nargs = found, len(example_inputs)
        self.record = next(r for r in reversed(records) if not r.part)
        if self.owner is not None:
            self.owner.records += [self.record, *self.record.parts]
        self.meta = compat.runtime_metadata()
        self.held = compat_training.held_arguments()
        compat_training.donate_nothing(self.meta)
        return found


@decorated
def _compile_frame(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    compiler_config: CompilerConfig | None = None,
    decompositions: dict[Any, Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    capture: CaptureOptions | None = None,
    saver: Any = None,
) -> Compiled:
    """saver: a saving.Saver that follows the compilation."""
    from torch._dynamo.backends.common import aot_autograd

    config = settings(compiler_config, mode, options)
    start_once()
    frames.prepare(gm)
    eager.warn_ignored(config)
    dynamo_passes.run(gm, config)
    folder = dumps.model_folder(config, gm)
    compiler: type[Compiler] = Compiler
    if precompiling := compat_saving.is_precompiling():
        from . import precompiled

        compiler = precompiled.Compiler
    made = functools.partial(
        compiler,
        config,
        capture=capture,
        folder=folder,
        arguments=names.of_arguments(gm),
        values=example_inputs if config.weights.quantise.raw else (),
    )
    table = written.table() | (decompositions or {})
    inference = made("inference")
    forward, backward = made("forward"), made("backward")
    keep = config.experimental_config.keep_inference_input_mutations
    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=functools.partial(partition.cut, captures=config.captures),
        decompositions=table,
        keep_inference_input_mutations=keep.raw,
    )
    if precompiling:  # AOTAutograd keeps what it gets
        return backend(gm, example_inputs)
    if joint.wanted(config, example_inputs):
        how = joint.How(made("joint"), table, backend)
        return joint.make(gm, example_inputs, config, how)
    with compat.aot_settings(example_inputs), followed_by(saver):
        compiled: Compiled = backend(gm, example_inputs)
    why = "the graph is differentiated"
    if inference.record is not None:
        program, look = weights.parts(inference.made)
        why = "a saved program does not watch the parameters of its weights"
        if look is None or saver is None:
            job = direct_calls.Job(gm, compiled, inference, len(example_inputs))
            why = direct_calls.call_directly(job, program, look)
        inference.record.wrapper = why
    elif saver is None and forward.record and not direct.takes_wrapped(gm):
        dispatch.mark_trained(compiled, forward, backward)
    if saver is not None:
        saver.frame(gm, inference.plan, why)
    return dispatch.shortened(compiled)


def torchair(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """torch.compile(model, backend="torchair", mode=..., options=...)."""
    return _compile_frame(gm, example_inputs, mode=mode, options=options)


def npugraph_ex(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """torch.compile(model, backend="npugraph_ex", options={...}); the options
    are those of docs/options.md by their keys. mode= is not looked at."""
    config = npugraph_ex_config(options)
    return _compile_frame(gm, example_inputs, compiler_config=config)


def npu(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Compiled:
    """torch.compile(model, backend="npu"): what `get_npu_backend` gives."""
    return _compile_frame(gm, example_inputs, **keywords)


for _backend in (_compile_frame, torchair, npugraph_ex, npu):
    dispatch.serve(_backend)


def get_npu_backend(
    *,
    compiler_config: CompilerConfig | None = None,
    custom_decompositions: dict[Any, Any] | None = None,
) -> functools.partial[Compiled]:
    """The value for torch.compile's backend=.

    custom_decompositions: operator overload -> Python function.
    """
    config = CompilerConfig() if compiler_config is None else compiler_config
    if not isinstance(config, CompilerConfig):
        raise TypeError(
            "compiler_config must be a torchair.CompilerConfig, "
            f"got {type(config).__name__}"
        )
    warn_of_other_mode(config)
    table = {} if custom_decompositions is None else custom_decompositions
    checks.maps_operators(table, "custom_decompositions")
    return _named(config, decompositions=dict(table))


def saving_backend(
    config: CompilerConfig, decompositions: dict[Any, Any], saver: Any
) -> functools.partial[Compiled]:
    """As get_npu_backend's; a saving.Saver, or None, follows it."""
    return _named(config, decompositions=decompositions, saver=saver)


def _named(config: CompilerConfig, **more: Any) -> functools.partial[Compiled]:
    """The name is what torch's errors call the backend."""
    made = functools.partial(_compile_frame, compiler_config=config, **more)
    made.__name__ = "torchair"  # type: ignore[attr-defined]
    return made


dispatch.install()
compat.install_callbacks()
compat.let_events_name_no_stream()
breaks.install()
profiling.install()
collectives.extend()
