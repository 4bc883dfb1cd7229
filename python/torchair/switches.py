"""What the options ask of the engine's compilation: which passes it leaves
out, the order of steps, how steps are gathered, whose memory is kept.

Passes are switched by level (`oo_level` and the two options beside it), then
by file (`fusion_switch_file`), then by text (`optimization_switch`): what comes
later wins.
"""

from __future__ import annotations

import difflib
import functools
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph

from . import lanes
from .config import CompilerConfig
from .operators import remembered
from .options import ALIASES, ALL, WITHOUT
from .pass_names import COUNTERPARTS, WITHOUT_COUNTERPART

logger = logging.getLogger("torchair")
# What the word ALL stands for in a file. The rest stays: it changes no result
# and fuses nothing. A level O1 leaves all of these out but `fold` and `cse`.
GROUPS = {
    "GraphFusion": ("attention", "quantised", "fold", "cse"),
    "UBFusion": ("group", "cat"),
}
_O1 = ("attention", "quantised", "group", "cat")
# Values of air_order.
_ORDERS = {"StableRDFS": 0, "BFS": 1, "DFS": 2, "RDFS": 3}
_AIV = "HCCL_OP_EXPANSION_MODE"


@dataclass
class Asked:
    """Of one graph. off: names of `air passes`; order: a value of
    topology_sorting_strategy; the rest: air_compile_options."""

    off: set[str] = field(default_factory=set)
    order: str = "StableRDFS"
    list_min: int = 0
    give_back: bool = False
    frozen: bool = False  # addresses of parameters
    spec_limit: int = 256
    tf32: bool = False  # torch's precision of products on a GPU
    contents: bool = False  # and what is in them: flags of the graph's inputs

    def keywords(self) -> dict[str, Any]:
        """For `_native.Program`."""
        bits = {name: 1 << i for i, name in enumerate(_known())}
        return {
            "without": sum(bits[name] for name in self.off),
            "order": _ORDERS[self.order],
            "list_min": self.list_min,
            "give_back": self.give_back,
            "frozen": self.frozen,
            "spec_limit": self.spec_limit,
            "tf32": self.tf32,
        }

    def words(self) -> list[str]:
        """What is not as it would be without options."""
        said = [f"without {name}" for name in sorted(self.off)]
        if self.order != "StableRDFS":
            said.append(f"steps in {self.order} order")
        if self.list_min:
            said.append(f"lists of at least {self.list_min} steps")
        if self.give_back:
            said.append("memory of intermediate results is given back")
        if self.frozen:
            said.append("parameters are bound to the memory of the first call")
        if self.tf32:
            said.append("products of float32 on a GPU may be of TF32")
        if self.contents:
            said.append("what is made of weights alone is computed once, kept")
        return said


@functools.cache
def _known() -> list[str]:
    from ._native import without

    return [name for name, _ in without()]


def asked(config: CompilerConfig, sends: int = 0) -> Asked:
    """What the options ask for. sends: operators of the graph that send to or
    receive from other processes; their order must be the same everywhere.

    ValueError where the text or the file of switches is not understood.
    """
    out = Asked(_off_by_key(config))
    if torch.are_deterministic_algorithms_enabled():
        out.off.add("measure")
    out.tf32 = allows_tf32()
    out.contents = bool(config.weights.frozen)
    out.spec_limit = config.sizes.limit.raw
    if config.captures:
        return out
    ge, expert = config.ge_config, config.experimental_config
    for name, on in _switches(config):
        (out.off.discard if on else out.off.add)(name)
    if not expert.enable_view_optimize:
        out.off.add("view")
    strategy = expert.topology_sorting_strategy
    if strategy.given and ge.oo_level.raw != "O1":
        out.order = _safe_order(strategy.raw, sends)
    out.list_min = expert.static_model_ops_lower_limit.raw or 0
    out.give_back = bool(expert.memory_efficiency)
    out.frozen = bool(expert.frozen_parameter)
    return out


def allows_tf32() -> bool:
    """By the precision of products that torch was set to. Dynamo compiles
    again where it changes."""
    return str(torch.backends.cuda.matmul.fp32_precision) == "tf32"


def _off_by_key(config: CompilerConfig) -> set[str]:
    """By the keys of npugraph_ex."""
    return {
        name
        for key, name in WITHOUT.items()
        if not getattr(config, key)
        and (config.captures or ALIASES[key].modes == ALL)
    }


def _safe_order(strategy: str, sends: int) -> str:
    if sends > 1 and strategy != "StableRDFS":
        warnings.warn(
            f"topology_sorting_strategy {strategy} is not followed: the graph "
            f"has {sends} send and recv operators, which have to keep their "
            "order; StableRDFS is used",
            stacklevel=2,
        )
        return "StableRDFS"
    return strategy


# ---- switches ----


def _switches(config: CompilerConfig) -> Iterator[tuple[str, bool]]:
    """(name of `air passes`, on), in the order in which they count."""
    ge = config.ge_config
    if ge.oo_level.raw == "O1":
        for name in _O1:
            yield name, False
    for option, name in (
        (ge.oo_constant_folding, "fold"),
        (ge.oo_dead_code_elimination, "dce"),
    ):
        if option.raw is not None:
            yield name, option.raw
    path = config.fusion_config.fusion_switch_file.raw
    for name, on in _of_file(path) if path else ():
        yield from _ours(name, on, f"fusion_switch_file {path}")
    text = ge.optimization_switch.raw
    for name, on in _of_text(text) if text else ():
        yield from _ours(name, on, "ge_config.optimization_switch")


def _ours(name: str, on: bool, where: str) -> Iterator[tuple[str, bool]]:
    found = COUNTERPARTS.get(name, name)
    if found in _known():
        yield found, on
    elif name in WITHOUT_COUNTERPART:
        logger.info("%s: %s has no counterpart here", where, name)
    else:
        known = [*_known(), *COUNTERPARTS, *WITHOUT_COUNTERPART]
        near = difflib.get_close_matches(name, known)
        hint = f"; did you mean {' or '.join(near)}?" if near else ";"
        warnings.warn(
            f"{where}: there is no pass {name}, nothing is switched{hint} "
            "`air passes` lists the names, docs/options.md more of them",
            stacklevel=2,
        )


def _of_text(text: Any) -> Iterator[tuple[str, bool]]:
    """ "PassA:on;PassB:off"."""
    if not isinstance(text, str):
        raise ValueError(
            "ge_config.optimization_switch must be text as in "
            f"'PassA:on;PassB:off', got {type(text).__name__}"
        )
    for part in filter(None, map(str.strip, text.split(";"))):
        name, colon, state = part.rpartition(":")
        if not colon or state not in ("on", "off"):
            raise ValueError(
                f"ge_config.optimization_switch: {part!r} is neither "
                "NAME:on nor NAME:off"
            )
        yield name, state == "on"


def _of_file(path: str) -> Iterator[tuple[str, bool]]:
    """{"Switch": {"GraphFusion": {"ALL": "off", NAME: "on"}, "UBFusion":
    {...}}}; names count after ALL."""
    for group, members in _read(path).items():
        if group not in GROUPS:
            raise ValueError(
                f"fusion_switch_file {path}: {group!r} is not one of "
                + ", ".join(GROUPS)
            )
        states = {}
        for name, state in members.items():
            if state not in ("on", "off"):
                raise ValueError(
                    f"fusion_switch_file {path}: {name} is {state!r}, it has "
                    'to be "on" or "off"'
                )
            states[name] = state == "on"
        if "ALL" in states:
            on = states.pop("ALL")
            yield from ((name, on) for name in GROUPS[group])
        yield from states.items()


def _read(path: str) -> dict[str, dict[str, str]]:
    try:
        with open(path, encoding="utf-8") as file:
            groups = json.load(file)["Switch"]
        if all(isinstance(members, dict) for members in groups.values()):
            return dict(groups)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError(
        f"fusion_switch_file {path} is not JSON of the form "
        '{"Switch": {"GraphFusion": {"NAME": "off"}, "UBFusion": {}}}'
    )


# ---- of one graph ----


def of_graph(graph: Graph, config: CompilerConfig) -> Asked:
    """What the options ask for this graph, after its passes; exceptions say
    what they do not allow for it."""
    if config.captures:
        return asked(config)
    calls = [n for n in graph.nodes if n.op == "call_function"]
    if config.ge_config.enable_single_stream:
        streams = any(lanes.lane_of(n) != lanes.MAIN for n in calls)
        check_single_stream(config, streams, {str(n.target) for n in calls})
    limit = core_limit(config)
    for node in calls if limit else ():
        node.meta.setdefault("cores", limit)  # scopes have set theirs
    return asked(config, sum(_moves_between_ranks(n.target) for n in calls))


def core_limit(config: CompilerConfig) -> tuple[str, str] | None:
    """(cube, vector) of `aicore_num`, None for no limit. More than there are
    is as many as there are."""
    asked_for = config.ge_config.aicore_num.raw
    if asked_for is None:
        return None
    found = re.fullmatch(r"([1-9]\d*)\|([1-9]\d*)", str(asked_for))
    if found is None:
        raise ValueError(
            f"ge_config.aicore_num is {asked_for!r}; set two numbers from 1, "
            "'<cube>|<vector>' as in '24|48'"
        )
    there = torch.get_num_threads()
    cube, vector = (str(min(int(n), there)) for n in found.groups())
    logger.info(
        "aicore_num: %s were asked for, %s|%s are used", asked_for, cube, vector
    )
    return cube, vector


@remembered
def _moves_between_ranks(target: Any) -> bool:
    return "send" in str(target) or "recv" in str(target)


def log_options(name: str, config: CompilerConfig) -> None:
    """What a graph engine is told, in the log."""
    if not logger.isEnabledFor(logging.INFO):
        return
    local, process = config.as_dict()
    logger.info("Compiling concrete graph %s with options:", name)
    for key, value in sorted({**process, **local}.items()):
        logger.info("  %s: %s", key, value)


def check_single_stream(
    config: CompilerConfig, streams: bool, targets: set[str]
) -> None:
    """RuntimeError where `enable_single_stream` meets what needs several.

    streams: does the graph have scopes of streams? targets: its operators.
    """
    if config.captures or not config.ge_config.enable_single_stream:
        return
    other = ""
    if streams:
        other = "the graph has streams of its own (scope.npu_stream_switch)"
    elif any("npu_prefetch" in name for name in targets):
        other = "the graph prefetches (npu_prefetch)"
    elif os.environ.get(_AIV) == "AIV":
        other = f"{_AIV}=AIV lets collectives run on cores of their own"
    if other:
        raise RuntimeError(
            f"ge_config.enable_single_stream is set, but {other}: leave "
            "either out"
        )
