"""What a compilation leaves behind for a process that shall not compile: the
graph as text, how calls relate to it, the function that Dynamo made around it,
and what was taken for granted meanwhile.
"""

from __future__ import annotations

import base64
import builtins
import dis
import functools
import hashlib
import marshal
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import bytecode, cache_file, compat_saving, direct
from .codec import Unwritable, call_data, computed_data, encode
from .schema import draws
from .sizes import expression

_SIMPLE = (bool, int, float, str, type(None))
_CONSTANT_GUARDS = (
    "CONSTANT_MATCH",
    "EQUALS_MATCH",
    "BOOL_MATCH",
    "NONE_MATCH",
    "ID_MATCH",
)


class GraphSaver:
    """Follows the compilation of one graph. `reason`: why it cannot be
    written; "" as long as it may be."""

    def __init__(self) -> None:
        self.reason = ""
        self.content: dict[str, Any] = {}
        self.tensors: list[torch.Tensor] = []
        self.text = ""

    def graph(
        self, gm: torch.fx.GraphModule, got: Any, keywords: dict[str, Any]
    ) -> None:
        """A program was made of an Imported graph with these arguments."""
        if any(draws(node) for node in gm.graph.nodes):
            self.reason = "the graph draws random numbers"
            return
        try:
            self.content["program"] = {
                "text": got.graph.text(),
                "place": got.place,
                "args": got.args,
                "results": got.nresults,
                "outs": [_out_data(o) for o in got.outs],
                "hosts": [
                    [call_data(call), *map(encode, rest)]
                    for call, *rest in got.hosts
                ],
                "keywords": keywords,
            }
            self.tensors = list(got.consts)
        except Unwritable as why:
            self.reason = str(why)

    def optimised(self, text: str) -> None:
        """The graph after the engine's passes."""
        self.text = text


class Saver(GraphSaver):
    """Follows the compilations of one function."""

    def __init__(self, function: types.FunctionType, owner: Any) -> None:
        super().__init__()
        self.function, self.owner = function, owner
        self.known = set(function.__globals__)
        self.frames = 0
        self.asks = False  # Dynamo's graph, for streams and the like
        self.locals: dict[str, Any] = {}  # arguments of the first call
        self.again: Callable[[str], None] = lambda why: None

    # ---- while the backend runs ----

    def frame(self, gm: torch.fx.GraphModule, plan: Any, why: str) -> None:
        """Dynamo's graph was compiled; plan: a direct.Plan, None: why not."""
        self.frames += 1
        if self.frames > 1:
            self.again("its arguments differ from those of the first call")
            return
        if plan is None or self.reason:
            self.reason = self.reason or why
            return
        if plan.held:
            self.reason = "the graph has parameters of its own"
            return
        self.asks = direct.asks_for_objects(gm)
        try:
            self.content |= {
                "plan": _plan_data(plan),
                "sources": self._sources(),
                "fx": gm.print_readable(print_output=False),
                **self._inputs(gm),
            }
        except Unwritable as wrong:
            self.reason = str(wrong)

    def _sources(self) -> list[list[str]]:
        """Files that were read while tracing, with their digests."""
        here = os.path.dirname(torch.__file__) + os.sep
        codes = [self.function.__code__, *compat_saving.traced_code()]
        names = dict.fromkeys(c.co_filename for c in codes)
        return [
            [name, digest(name)]
            for name in names
            if os.path.isfile(name) and not name.startswith(here)
        ]

    def _inputs(self, gm: torch.fx.GraphModule) -> dict[str, Any]:
        scope = {"L": self.locals, "G": self.function.__globals__}
        inputs, names, on_cpu = [], {}, []
        for node in gm.graph.nodes:
            if node.op != "placeholder":
                continue
            source = compat_saving.source_of(node)
            value = node.meta.get("example_value")
            if isinstance(value, torch.Tensor):
                real = _evaluate(source, scope)
                if isinstance(real, torch.Tensor):  # not a float of the module
                    inputs.append([source, node.name, *_layout(value, real)])
                    on_cpu += [source] * (real.device.type == "cpu")
            elif isinstance(value, torch.SymInt):
                names[str(value.node.expr)] = source
        return {
            "inputs": inputs,
            "on_cpu": on_cpu,
            "constants": list(self._constants(scope)),
            "conditions": compat_saving.size_conditions(),
        }

    def _constants(self, scope: dict[str, Any]) -> Iterator[list[Any]]:
        seen = set()
        for kind, source in compat_saving.guards():
            if kind not in _CONSTANT_GUARDS or source in seen:
                continue
            seen.add(source)
            try:
                value = _evaluate(source, scope)
            except Unwritable:
                continue
            if type(value) in _SIMPLE:
                yield [source, value]

    # ---- after the first call ----

    def code(self, made: types.CodeType) -> None:
        """Dynamo's function around the graph."""
        if self.reason or self.frames != 1:
            return
        try:
            self.content |= self._code_data(made)
        except Unwritable as why:
            self.reason = str(why)

    def _code_data(self, made: types.CodeType) -> dict[str, Any]:
        if any(isinstance(c, types.CodeType) for c in made.co_consts):
            raise Unwritable("Dynamo's code makes functions")
        if not self.asks:
            # What notes current streams beside an accelerator needs Dynamo.
            made = bytecode.without_streams(made) or made
        scope = self.function.__globals__
        found: dict[str, Any] = {"imports": {}, "builtins": [], "call": None}
        for name in _globals_of(made):
            value: Any = scope.get(name)
            if name.startswith("__compiled_fn"):
                found["call"] = name
            elif name.startswith("__import_"):
                found["imports"][name] = value.__name__
            elif name.startswith("__builtins_dict__"):
                found["builtins"].append(name)
            elif name not in self.known and not hasattr(builtins, name):
                raise Unwritable(f"Dynamo's code needs an object, {name}")
        if found["call"] is None:
            raise Unwritable("Dynamo's code calls no graph")
        found["code"] = base64.b64encode(marshal.dumps(made)).decode()
        return found

    def save(self, path: str, described: dict[str, Any]) -> bool:
        """Writes the file; False where `reason` says why not."""
        if not self.reason and "code" not in self.content:
            self.reason = "Dynamo compiled nothing that calls a graph"
        if self.reason:
            return False
        content = self.content | described | {"built": built()}
        content["date"] = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            cache_file.write(path, content, self.tensors)
        except (OSError, TypeError, ValueError) as wrong:
            self.reason = str(wrong)
        return not self.reason


@functools.cache
def built() -> dict[str, str]:
    """What made a file: it is of no use to another."""
    from . import _native

    return {
        "torch": torch.__version__,
        "python": f"{sys.implementation.cache_tag} {sys.hexversion:x}",
        "engine": digest(_native.__file__),
    }


def digest(path: str) -> str:
    """Of a file's contents; "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    except OSError:
        return ""


def _evaluate(source: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(source, dict(scope))  # noqa: S307  (Dynamo's own text)
    except Exception:  # noqa: BLE001  (names of objects that only Dynamo has)
        raise Unwritable(f"an input comes from {source}") from None


def _layout(value: torch.Tensor, real: Any) -> list[Any]:
    """dtype, sizes and strides; None for those that vary."""
    return [
        str(real.dtype),
        [_fixed(d) for d in value.shape],
        [_fixed(d) for d in value.stride()],
    ]


def _fixed(size: Any) -> int | None:
    if type(size) is int:
        return size
    found = expression(size)  # knows what has been bound to a number since
    return int(found) if found.is_Integer else None


def _globals_of(code: types.CodeType) -> list[str]:
    found = dis.get_instructions(code)
    return [
        *dict.fromkeys(i.argval for i in found if i.opname == "LOAD_GLOBAL")
    ]


def _out_data(out: tuple[Any, ...]) -> list[Any]:
    kind, *rest = out
    if kind == "call":
        return [kind, computed_data(rest[0])]
    return [kind, *map(encode, rest)]


def _plan_data(plan: Any) -> dict[str, Any]:
    if plan.outs is None:
        return {"wrote": list(plan.wrote), "outs": None}
    if any(views is not None for _, views, _, _ in plan.outs):
        raise Unwritable("an output is a view of an input")
    return {
        "wrote": list(plan.wrote),
        # who looks at dynamic sizes of outputs is Dynamo, which is not there
        "outs": [[base, None, drops, None] for base, _, drops, _ in plan.outs],
    }
