"""Where nodes of the engine's graph run: lanes, limits and super kernels that
lanes.py found, told to the engine while a graph is imported."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping

import torch

from . import lanes, scope, super_kernels
from ._native import Graph
from .logs import logger
from .origin import location_of
from .schema import VALUE, mutates

_MOST = 65535  # threads
_NOTHING = contextlib.nullcontext()


class Places:
    """Of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lanes = {lanes.MAIN: 0}
        self.inside = False  # of a scope: the engine was told of one last
        self.told: set[tuple[str, str]] = set()  # in the log

    def enter(self, node: torch.fx.Node) -> None:
        """Nodes added from here on run where this one does. Cores are threads:
        those that multiply matrices run the contractions; without vector cores
        they run the rest too."""
        meta = node.meta
        if "cores" in meta or "scope" in meta or "lane" in meta:
            self.inside = True
        elif self.inside:
            self.inside = False
        else:
            return
        aicore, vector = map(int, meta.get("cores", (0, 0)))
        inside = scope.of(node)
        self._tell(inside)
        self.graph.scope(
            min(aicore, _MOST),
            min(vector or aicore, _MOST),
            self.lanes.setdefault(lanes.lane_of(node), len(self.lanes)),
            scope.SUPER_KERNEL in inside,
            inside.get(scope.NEVER_TIMEOUT) == "True",
            tuple(map(_note, inside.items())),
        )

    def _tell(self, inside: Mapping[str, str]) -> None:
        """The log, of scopes that it has not been told of."""
        cores = (inside.get(scope.AICORE, ""), inside.get(scope.VECTORCORE, ""))
        if cores[0] and cores not in self.told:
            self.told.add(cores)
            there = torch.get_num_threads()
            cube, vector = map(int, cores)  # 0: vectors as the others
            used = (min(n or there, there) for n in (cube, vector or cube))
            logger.info(
                "limit_core_num: %s were asked for, %s are used",
                "|".join(cores),
                "|".join(map(str, used)),
            )
        name = inside.get(scope.SUPER_KERNEL, "")
        options = inside.get(scope.SUPER_KERNEL_OPTIONS, "")
        if options and (name, options) not in self.told:
            self.told.add((name, options))
            super_kernels.check(name, options)

    def after(
        self, node: torch.fx.Node, refs: dict[torch.fx.Node, int]
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, an operand of the node waits for what lanes.order says: for
        nothing, in nearly every graph."""
        if not node.meta.get("after"):
            return _NOTHING
        return self._waiting(node, refs)

    @contextlib.contextmanager
    def _waiting(
        self, node: torch.fx.Node, refs: dict[torch.fx.Node, int]
    ) -> Iterator[None]:
        earlier = [n for n in node.meta["after"] if n in refs]
        operand = next((n for n in node.all_input_nodes if n in refs), None)
        if not earlier or operand is None or mutates(node):
            yield
            return
        plain = refs[operand]
        for other in earlier:
            attrs = [VALUE, refs[operand], VALUE, refs[other]]
            (refs[operand],) = self.graph.node(
                "air::after", attrs, location_of(node), 1
            )
        yield
        refs[operand] = plain


def _note(attribute: tuple[str, str]) -> tuple[str, str | None, bool]:
    """As the node shows it in the Ascend IR."""
    key, text = attribute
    if key in scope.TRUTHS:
        return key, None, text == "True"
    return key, text, False


def leave_kernel(node: torch.fx.Node, why: str) -> None:
    """torch computes the node, which ends the parallel region of a super
    kernel: RuntimeError where the scope does not allow it."""
    inside = scope.of(node)
    name = inside.get(scope.SUPER_KERNEL)
    if name is None:
        return
    options = super_kernels.parse(inside.get(scope.SUPER_KERNEL_OPTIONS, ""))
    check = options.get(super_kernels.CHECK, "")
    line = f"torch computes {node.target} in super kernel {name!r}: {why}"
    if check == "abort":
        raise RuntimeError(
            f"{line}; take it out of the scope, or leave "
            "strict-scope-check=abort away"
        )
    logger.log(logging.WARNING if check == "bypass" else logging.INFO, line)
