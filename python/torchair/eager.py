"""Where the options ask torch to run a graph, not the engine."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from . import compat, dumps
from .config import CompilerConfig, warn_once
from .logs import EVENT_LEVEL, engine_log, logger

_graphs = itertools.count()


def reason(config: CompilerConfig) -> str:
    """Which option asks for it, "" for none."""
    if _summarised(config):
        return "debug.fx_summary.skip_compile is set"
    if config.debug.data_dump.type:
        return "debug.data_dump.type is set"
    if config.debug.run_eagerly:
        return "debug.run_eagerly is set"
    if _dumps_tensors(config):
        return "dump_config.enable_dump is set"
    return ""


def _summarised(config: CompilerConfig) -> bool:
    """Is a table of operators all that is wanted?"""
    summary = config.debug.fx_summary
    wanted = summary.type and summary.skip_compile
    return bool(wanted) and not config.captures


def keeps_original(config: CompilerConfig) -> bool:
    """Is the graph to be dumped before the passes?"""
    stage = config.dump_config.data_dump_stage.raw
    return _dumps_tensors(config) and stage == "original"


def _dumps_tensors(config: CompilerConfig) -> bool:
    """In max-autotune mode the engine's own values are dumped: data_dump."""
    return (
        config.captures
        and bool(config.dump_config.enable_dump)
        and not config.super_kernel_optimize
    )


def warn_ignored(config: CompilerConfig) -> None:
    """UserWarning where one option makes another one void."""
    debug = config.debug
    for name, dump in (
        ("graph_dump", debug.graph_dump),
        ("data_dump", debug.data_dump),
    ):
        if dump.path.raw is not None and dump.type.raw is None:
            warn_once(
                f"debug.{name}.path without a type",
                f"debug.{name}.path, {dump.path.raw!r}, has no effect: set "
                f"debug.{name}.type, too",
            )
    if config.dump_config.enable_dump and config.super_kernel_optimize:
        warnings.warn(
            "dump_tensor_data is ignored: super_kernel_optimize is set",
            stacklevel=2,
        )
    if config.experimental_config.frozen_parameter:
        warn_once(
            "frozen_parameter is set",
            "frozen_parameter is set: a parameter that is moved or replaced "
            "after the first call is not noticed",
        )


def make(
    gm: torch.fx.GraphModule, config: CompilerConfig
) -> Callable[..., Any]:
    """The callable that runs gm as the options say."""
    if config.debug.data_dump.type and not _summarised(config):
        dump = config.debug.data_dump
        return _arrays(gm, dump.path.raw or ".", dump.filter.raw)
    if _dumps_tensors(config) and config.debug.run_eagerly:
        return _arrays(gm, config.dump_config.dump_path.raw, None)
    if _dumps_tensors(config):
        return boxed(dumps.save_tensors(gm, config, next(_graphs)))
    return boxed(gm)


def _arrays(
    gm: torch.fx.GraphModule, root: str, chosen: Any
) -> Callable[..., Any]:
    warn_once(
        "tensors of every node",
        "tensors of every node are written: the run on the npu is skipped, "
        "torch runs the graph node by node",
    )
    return boxed(dumps.save_arrays(gm, root, chosen, next(_graphs)))


def boxed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """fn for AOTAutograd, which passes one list; arguments work as well."""

    def run(*args: Any) -> Any:
        if len(args) != 1 or not isinstance(args[0], list):
            return fn(*args)
        taken = list(args[0])
        args[0].clear()
        return fn(*taken)

    run._boxed_call = True  # type: ignore[attr-defined]
    return compat.untraced(run)


def counted(fn: Callable[..., Any], record: Any) -> Callable[..., Any]:
    """fn, which torch runs; each call is counted on the record."""

    def run(*args: Any) -> Any:
        record.by_torch += 1
        return fn(*args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return compat.untraced(run)


def timed(record: Any, program: Callable[..., Any]) -> Callable[..., Any]:
    """The program; where events are logged, it says the time of each run."""
    if not logger.isEnabledFor(EVENT_LEVEL):
        return program

    def run(*args: Any) -> Any:
        start, begin = time.time(), time.perf_counter()
        results = program(*args)
        logger.event(
            "graph %s: run of %d inputs started at %.6f, took %.0f us",
            record.name,
            len(args),
            start,
            (time.perf_counter() - begin) * 1e6,
        )
        return results

    return boxed(run)


def rescue(
    gm: torch.fx.GraphModule, record: Any
) -> Callable[[list[Any], str | None], Any]:
    """What the engine refuses when it sees real sizes, torch runs; also what
    a capture of eager code records (reason None). record: a compiled.Record."""
    run = boxed(gm)

    @torch.no_grad()  # as the engine: autograd is around the graph
    def interpret(args: list[Any]) -> Any:
        return run(args)

    def rescued(args: list[Any], reason: str | None) -> Any:
        if reason is None:
            return interpret(args)
        if not record.fallback:
            engine_log.warning("torch runs graph %s: %s", record.name, reason)
            logger.warning("torch runs graph %s: %s", record.name, reason)
        record.fallback = reason
        record.by_torch += 1
        return interpret(args)

    return rescued
