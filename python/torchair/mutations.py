"""Operators of the user that write into their arguments.

AOTAutograd makes `auto_functionalized_v2(op, ..., _all_bases=[x])` of them,
whose results are new versions of x, and a `copy_` of the last one into the
input. Where nothing reads an older version later, the operator may write into
the input itself: a cache is not copied. The HOST node then gives a token, and
the new version is air::after(x, token); the copy_ that remains says that the
input is written, and copies nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from .hosts import Arguments, make_call
from .schema import VALUE, Refused

_FUNCTIONAL = torch.ops.higher_order.auto_functionalized_v2
_COPY = torch.ops.aten.copy_.default
REASON = "writes in place"


# ---- where it is right: node.meta["in_place"] ----


def has_functionalized(gm: torch.fx.GraphModule) -> bool:
    found: Any = gm.graph.find_nodes
    return bool(found(op="call_function", target=_FUNCTIONAL))


def find_in_place(graph: Graph) -> bool:
    """Sets node.meta["in_place"]: {index of a base: nodes that read what was
    there before}. True: there are some."""
    place = {node: i for i, node in enumerate(graph.nodes)}
    found = False
    for node in graph.nodes:
        if node.target is _COPY and node.args[0].op == "placeholder":
            for writer, index, readers in _chain(node, place) or ():
                writer.meta.setdefault("in_place", {})[index] = readers
                found = True
    return found


_Link = tuple[Node, int, list[Node]]


def _chain(copy: Node, place: dict[Node, int]) -> list[_Link] | None:
    """The writes that make what `copy` puts into its input, the last first;
    None where one of them needs memory of its own."""
    target: Any = copy.args[0]
    version: Any = copy.args[1]
    links: list[_Link] = []
    while version is not target:
        link = _link(version)
        if link is None or _is_result(version):
            return None
        writer, index = link
        version = writer.kwargs["_all_bases"][index]  # type: ignore[index]
        readers = _readers(version, {copy, writer})
        if readers is None or any(place[r] >= place[writer] for r in readers):
            return None
        links.append((writer, index, readers))
    return links


def _link(version: Any) -> tuple[Node, int] | None:
    """(node, index of the base) whose new version this is."""
    if not isinstance(version, Node) or version.target is not operator.getitem:
        return None
    writer, item = version.args
    if not isinstance(writer, Node) or writer.target is not _FUNCTIONAL:
        return None
    bases: Any = writer.kwargs["_all_bases"]
    index = int(item) - (len(writer.meta["val"]) - len(bases))  # type: ignore
    alone = index >= 0 and list(bases).count(bases[index]) == 1
    return (writer, index) if alone else None


def _is_result(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _readers(version: Node, known: set[Node]) -> list[Node] | None:
    """Nodes that read the version or a view of it; None: a result does."""
    found: list[Node] = []
    open_nodes = [version]
    while open_nodes:
        for user in open_nodes.pop().users:
            if user.op == "output":
                return None
            if user in known:
                continue
            if _shares(user, version):
                open_nodes.append(user)
            else:
                found.append(user)
    return found


def _shares(node: Node, version: Node) -> bool:
    """Is it a view? Passes of the user may have made some whose fake results
    have memory of their own, so both the operator and they are asked."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and any(r.alias_info for r in schema.returns):
        return True
    if node.target is operator.getitem:
        return node.args[0] is not None and _link(node) is None
    memory = _storage(version.meta.get("val"))
    return memory is not None and any(
        _storage(v) == memory for v in _each(node.meta.get("val"))
    )


def _each(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (tuple, list)) else (value,)


def _storage(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


# ---- the engine's nodes ----


def _in_place(op: Any, clones: tuple[int, ...]) -> Any:
    """What the HOST node calls: its results, and a token for the writes."""
    from torch._higher_order_ops.auto_functionalize import (
        auto_functionalized_v2_dense,
    )

    def run(**kwargs: Any) -> tuple[Any, ...]:
        made = auto_functionalized_v2_dense(
            op, _only_clone_these_bases=clones, **kwargs
        )
        return (*made, torch.zeros(1, dtype=torch.uint8))

    return run


def _later(at: Any, what: int, *earlier: int) -> int:
    """The value, once the others have been computed."""
    for ref in earlier:
        attrs = [VALUE, what, VALUE, ref]
        (what,) = at.graph.node("air::after", attrs, None, 1)
    return what


def _refs(at: Any, node: Node) -> list[int]:
    if node in at.refs:
        return [at.refs[node]]
    return [ref for ref in at.tuples.get(node, ()) if ref is not None][:1]


def rewrite(at: Any, node: Node, values: Sequence[Any]) -> Sequence[int | None]:
    """A row of rewrites.REWRITES. Refused: on a copy then."""
    places: dict[int, list[Node]] = node.meta.get("in_place", {})
    if not places:
        raise Refused(
            "writes on a copy: it is no input, or was read before and later"
        )
    bases: Any = node.kwargs["_all_bases"]
    outs = len(values) - len(bases)
    clones = tuple(i for i in range(len(bases)) if i not in places)
    used = {u.args[1] for u in node.users if u.target is operator.getitem}
    keep = [
        i
        for i, v in enumerate(values)
        if v is not None and i in used and i - outs not in places
    ]
    kept = [values[i] for i in keep]
    kept.append(torch.empty(1, dtype=torch.uint8, device="meta"))
    arguments = Arguments(at.sources, at.constants)
    call = make_call(
        _in_place(node.args[0], clones),
        [],
        arguments.template(dict(node.kwargs)),
        [*keep, len(values)],
        [v.dtype for v in kept],
        any(v.dtype.is_complex for v in kept),
    )
    plain = {i: at.refs[bases[i]] for i in places}
    for i, readers in places.items():
        before = [ref for r in readers for ref in _refs(at, r)]
        at.refs[bases[i]] = _later(at, plain[i], *before)
    name = str(node.args[0])
    told = (node, name, REASON, call, arguments.tensors, kept)
    refs = at.host(*told, reads=arguments.reads(at.ints))
    results: list[int | None] = [None] * len(values)
    for i, ref in zip(keep, refs[:-1], strict=True):
        results[i] = ref
    for i, ref in plain.items():
        at.refs[bases[i]] = ref
        results[outs + i] = _later(at, ref, refs[-1])
    return results
