"""What the importer makes of an FX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._native import Graph


@dataclass
class HostNode:
    op: str
    reason: str
    location: str


@dataclass
class Imported:
    """A graph and how a call's arguments and results relate to it."""

    graph: Graph
    place: int = 0  # of its tensors, see cuda.py
    args: list[Any] = field(default_factory=list)
    consts: list[Any] = field(default_factory=list)
    nresults: int = 0
    outs: list[tuple[Any, ...]] = field(default_factory=list)
    hosts: list[tuple[Any, ...]] = field(default_factory=list)
    host_nodes: list[HostNode] = field(default_factory=list)
    comm_nodes: list[HostNode] = field(default_factory=list)
    nodes: int = 0  # that compute something
    inputs: list[str] = field(default_factory=list)  # names, in order
