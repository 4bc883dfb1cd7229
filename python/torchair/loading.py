"""A compiled function from its file, without Dynamo and AOTAutograd."""

from __future__ import annotations

import base64
import builtins
import importlib
import itertools
import marshal
import re
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from . import cache_file, cuda, events, recorded, saving
from ._native import AirError, Direct, Graph, Program
from .capture import CaptureOptions, with_warning
from .codec import call_of, decode
from .config import CompilerConfig, capture_options
from .engine import start_once
from .sizes import computed

Run = Callable[..., Any]
_UTILS = "torch._dynamo.utils"
# What contents of other types and texts come to.
WRONG = (
    AirError,
    AttributeError,
    EOFError,
    LookupError,
    OverflowError,
    TypeError,
    ValueError,
)
_NO_PASSES = 1  # but those that every program needs
_names = itertools.count()


class Stale(Exception):
    """The file is whole, but of something else: what, for the user."""


class Loaded:
    """A function that was compiled for `method`, a bound method.

    Damaged, Stale: the file is not for it. AssertionError: the process lacks
    a group of a collective.
    """

    def __init__(
        self,
        method: types.MethodType,
        path: str,
        config: CompilerConfig,
    ) -> None:
        self.method, self.path = method, path
        content, tensors = cache_file.read(path)
        self._check_built(content)
        try:
            self.run = self._function(content, tensors, config)
            self.holds = _checker(method.__func__, content)
            self.inputs = content["inputs"]
            self.on_cpu = set(content["on_cpu"])
            self.place = content["program"]["place"]
            self._check_weights(content)
        except WRONG as why:
            raise cache_file.Damaged(f"its contents are wrong: {why}") from why

    # ---- is it for this process? ----

    def _check_built(self, content: dict[str, Any]) -> None:
        for what, now in saving.built().items():
            then = content.get("built", {}).get(what)
            if then != now:
                raise Stale(f"it was made by another {what} ({then})")
        for path, digest in content.get("sources", ()):
            if saving.digest(path) != digest:
                raise Stale(f"{path} has changed")

    def _check_weights(self, content: dict[str, Any]) -> None:
        owner = next(iter(self.method.__func__.__code__.co_varnames))
        scope = {"L": {owner: self.method.__self__}, "G": self._globals()}
        start = f"L['{owner}']"
        for source, _, *layout in content["inputs"]:
            if source.startswith(start):
                try:
                    self._check(source, eval(source, dict(scope)), layout)  # noqa: S307
                except (AssertionError, AttributeError, KeyError) as why:
                    raise Stale(f"the module differs: {why}") from None
        for source, then in content["constants"]:
            if source.startswith(start):
                try:
                    now = eval(source, dict(scope))  # noqa: S307
                except (AttributeError, KeyError, IndexError) as why:
                    raise Stale(f"the module has no {source}: {why}") from None
                if type(now) is not type(then) or now != then:
                    raise Stale(f"{source} is {now!r}, it was {then!r}")

    def check_inputs(self, args: tuple[Any, ...], kwargs: Any) -> None:
        """AssertionError where a tensor of the call is not laid out as those
        for which the function was compiled."""
        bound = _bind(self.method, args, kwargs)
        scope = {"L": bound, "G": self._globals()}
        for source, _, *layout in self.inputs:
            self._check(source, eval(source, dict(scope)), layout)  # noqa: S307

    def _check(self, source: str, value: Any, layout: list[Any]) -> None:
        _check_layout(source, value, layout)
        where = cuda.device_of(self.place) or "the CPU"
        on_cpu = source in self.on_cpu and value.device.type == "cpu"
        assert (
            on_cpu
            or cuda.is_at(value, self.place)
            or cuda.is_loose_scalar(value, self.place)
        ), f"{source} is on {value.device}, it was on {where}"

    def _globals(self) -> dict[str, Any]:
        function: Any = self.method.__func__
        found: dict[str, Any] = function.__globals__
        return found

    # ---- what runs ----

    def _function(
        self,
        content: dict[str, Any],
        tensors: list[torch.Tensor],
        config: CompilerConfig,
    ) -> Run:
        code = marshal.loads(base64.b64decode(content["code"]))  # noqa: S302
        if not isinstance(code, types.CodeType):
            raise ValueError("there is no code in it")
        function: Any = self.method.__func__
        scope = self._globals()
        own: dict[str, Any] = {
            name: _later(module) for name, module in content["imports"].items()
        }
        own |= dict.fromkeys(content["builtins"], vars(builtins))
        own[content["call"]] = program_of(content, tensors, config, self.path)
        # Dynamo, should it come to run, wants these names for itself.
        new = {name: f"__torchair_{next(_names)}_{name}" for name in own}
        scope |= {new[name]: value for name, value in own.items()}
        code = code.replace(
            co_names=tuple(new.get(name, name) for name in code.co_names)
        )
        made = types.FunctionType(
            code,
            scope,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        made.__kwdefaults__ = function.__kwdefaults__
        return types.MethodType(made, self.method.__self__)


def program_of(
    content: dict[str, Any],
    tensors: list[torch.Tensor],
    config: CompilerConfig,
    path: str,
) -> Run:
    """The graph of a file as Dynamo's code calls it."""
    data = content["program"]
    optimised = cache_file.read_graph(path)
    if optimised:
        keywords = data["keywords"] | {"pass_limit": _NO_PASSES}
        data = data | {"text": optimised, "keywords": keywords}
    made = program(data, tensors, capture_options(config), path)
    plan = content["plan"]
    outs = plan["outs"]
    direct: Run = Direct(
        made,
        tuple(plan["wrote"]),
        None if outs is None else tuple(tuple(o) for o in outs),
        torch._C._increment_version,
        None,
        None,
    )
    return direct


def program(
    data: dict[str, Any],
    tensors: list[torch.Tensor],
    capture: CaptureOptions | None,
    where: str,
) -> Program:
    """The graph that saving.GraphSaver wrote. where: for messages."""
    start_once()
    if capture is not None:
        capture = replace(capture, listener=events.report(capture).listener)
    place = data["place"]
    device = cuda.device_of(place)
    if device is not None:
        cuda.start_once()
        tensors = [t.to(device) for t in tensors]
    hosts = tuple(map(_host, data["hosts"]))
    capture = capture or recorded.captures(hosts)
    made = Program(
        Graph.parse(data["text"], place),
        tuple(tuple(a) if type(a) is list else a for a in data["args"]),
        tuple(tensors),
        data["results"],
        tuple(map(_out, data["outs"])),
        hosts,
        _refusing(where),
        capture=with_warning(capture, "of a file"),
        **data["keywords"],
    )
    made.records = recorded.repeats(hosts)
    return made


def _out(data: list[Any]) -> tuple[Any, ...]:
    kind, *rest = data
    if kind == "call":
        return (kind, computed(rest[0]))
    return (kind, *map(decode, rest))


def _host(data: list[Any]) -> Any:
    call, *rest = data
    return (call_of(call), *map(decode, rest))


def _refusing(path: str) -> Callable[[list[Any], str | None], Any]:
    def refuse(_args: list[Any], reason: str | None) -> Any:
        if reason is None:
            raise RuntimeError(
                "a compiled module from a file cannot be recorded into a graph "
                "of eager operators; use torch.compile for that"
            )
        raise AssertionError(
            f"the compiled module {path} does not take this call: {reason}. "
            "Give each set of sizes a method of its own, use dynamic=True, or "
            "remove the file to have it compiled for this call"
        )

    return refuse


# ---- small things that Dynamo's code asks for ----


def _set(owner: Any, name: str, value: Any) -> None:
    vars(owner)[name] = value


_STAND_INS: dict[str, dict[str, Any]] = {
    _UTILS: {
        "call_size": lambda x, i: x.size(i),
        "call_stride": lambda x, i: x.stride(i),
        "call_storage_offset": lambda x: x.storage_offset(),
        "object_setattr_ignore_descriptor": _set,
        "record_pregraph_bytecode_enter": lambda: None,
        "record_pregraph_bytecode_exit": lambda _: None,
    }
}


class _Later(types.ModuleType):
    """A module that is imported when something else of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def _later(module: str) -> types.ModuleType:
    made = _Later(module)
    vars(made).update(_STAND_INS.get(module, {}))
    return made


def _check_layout(source: str, value: Any, layout: list[Any]) -> None:
    dtype, sizes, strides = layout
    what = f"{source} is"
    assert isinstance(value, torch.Tensor), f"{what} no tensor"
    assert str(value.dtype) == dtype, f"{what} {value.dtype}, it was {dtype}"
    for name, now, then in (
        ("size", value.shape, sizes),
        ("stride", value.stride() if value.numel() else strides, strides),
    ):
        fits = len(now) == len(then) and all(
            t is None or n == t for n, t in zip(now, then, strict=True)
        )
        assert fits, f"{what} of {name} {list(now)}, it was {then}"


def _bind(
    method: types.MethodType, args: tuple[Any, ...], kwargs: Any
) -> dict[str, Any]:
    import inspect

    found = inspect.signature(method.__func__).bind(
        method.__self__, *args, **kwargs
    )
    found.apply_defaults()
    return dict(found.arguments)


_ARGUMENT = re.compile(r"L\['(\w+)'\]")


def _checker(function: Any, content: dict[str, Any]) -> Run:
    """(arguments of the function) -> bool: do they fit what was assumed of
    them? Numbers that are part of the graph, and relations of sizes."""
    owner = function.__code__.co_varnames[0]
    tests = [
        f"({_local(source)}) == {value!r}"
        for source, value in content["constants"]
        if source.startswith("L[") and not source.startswith(f"L['{owner}']")
    ]
    tests += map(_local, content["conditions"])
    text = f"def holds({_parameters(function)}):\n    return " + (
        " and ".join(f"({t})" for t in tests) or "True"
    )
    scope: dict[str, Any] = {"G": function.__globals__}
    exec(text, scope)  # noqa: S102  (made of what saving.py wrote)
    made: types.FunctionType = scope["holds"]
    made.__defaults__ = function.__defaults__
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _local(text: str) -> str:
    return _ARGUMENT.sub(r"\1", text)


def _parameters(function: types.FunctionType) -> str:
    code = function.__code__
    names = code.co_varnames
    plain, named = code.co_argcount, code.co_kwonlyargcount
    found = list(names[:plain])
    at = plain + named
    if code.co_flags & 0x04:
        found.append(f"*{names[at]}")
        at += 1
    elif named:
        found.append("*")
    found += names[plain : plain + named]
    if code.co_flags & 0x08:
        found.append(f"**{names[at]}")
    if code.co_posonlyargcount:
        found.insert(code.co_posonlyargcount, "/")
    return ", ".join(found)
