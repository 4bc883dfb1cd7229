"""What the user calls the inputs of a graph.

Dynamo knows where each argument of its graph comes from: `L['x']`,
`L['self']._modules['fc']._parameters['weight']`. AOTAutograd says of each
placeholder of its own graphs which of these it is. Together they name the
engine's inputs `x` and `self.fc.weight`: in errors, in dumps, for `air run
--input`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

_KEY = "user_name"  # of a placeholder's meta
_CONTAINERS = ("_modules", "_parameters", "_buffers")


def of_arguments(gm: torch.fx.GraphModule) -> tuple[str, ...]:
    """The names of the arguments of Dynamo's graph, in their order."""
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    return tuple(from_source(_source(n)) or n.name for n in nodes)


def _source(node: torch.fx.Node) -> str:
    found = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(found, "name", "")
    return str(name() if callable(name) else name)  # a method up to 2.12


def from_source(source: str) -> str:
    """ "cache.k" for "L['cache']['k']"."""
    words = re.findall(r"\w+", source)
    while words and words[0].startswith("___"):  # a function of Dynamo's
        del words[0]
    return ".".join(w for w in words[1:] if w not in _CONTAINERS)


def mark(gm: torch.fx.GraphModule, arguments: Sequence[str]) -> None:
    """Notes the names in the placeholders of AOTAutograd's graph."""
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            found = _describe(node.meta.get("desc"), arguments)
            if found:
                node.meta[_KEY] = found


def of_input(node: torch.fx.Node, taken: set[str]) -> str:
    """The name of a placeholder as the engine's text form can have it."""
    name = re.sub(r"[^0-9a-zA-Z_.]", "_", node.meta.get(_KEY, node.name))
    # those that begin with a digit are names of nodes
    return unique(f"_{name}" if name[0].isdigit() else name, taken)


def unique(name: str, taken: set[str]) -> str:
    """The name, or with a number where it is taken; it is now."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


_Names = Sequence[str]
# By AOTAutograd's class of a description; others keep the node's name.
_TEXTS: dict[str, Callable[[Any, _Names], str]] = {
    "PlainAOTInput": lambda d, names: (
        names[d.idx] if d.idx < len(names) else ""
    ),
    "ParamAOTInput": lambda d, names: f"self.{d.target}",
    "BufferAOTInput": lambda d, names: f"self.{d.target}",
    "TangentAOTInput": lambda d, names: _gradient(d.output, names),
    "ViewBaseAOTInput": lambda d, names: _part(d.base_of, "base", names),
    "SyntheticBaseAOTInput": lambda d, names: _part(d.base_of, "base", names),
    "SubclassGetAttrAOTInput": lambda d, names: _part(d.base, d.attr, names),
}


def _describe(desc: Any, names: _Names) -> str:
    """ "" where nothing is known."""
    text = _TEXTS.get(type(desc).__name__)
    return "" if text is None else text(desc, names)


def _part(desc: Any, attribute: str, names: _Names) -> str:
    found = _describe(desc, names)
    return f"{found}.{attribute}" if found else ""


def _gradient(output: Any, names: _Names) -> str:
    """Of an output, or of an input that the forward graph wrote."""
    if type(output).__name__ == "PlainAOTOutput":
        return f"grad_of_output.{output.idx}"
    found = _describe(getattr(output, "mutated_input", None), names)
    return f"grad_of.{found}" if found else ""
