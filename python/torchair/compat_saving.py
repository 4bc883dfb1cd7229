"""As compat.py: torch's private names that files of compiled functions need,
most of them of what a trace took for granted, while the backend runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .compat import guard_name, on_bytecode


def is_precompiling() -> bool:
    """Does AOTAutograd write what its compilers give, for `aot_compile` of
    torch.compile? 2.11 has it for Inductor alone."""
    config: Any = torch._functorch.config
    return bool(
        config.bundled_autograd_cache
        and getattr(config, "force_autograd_cache", False)
    )


def traced_code() -> list[Any]:
    """Code objects that Dynamo went through; [] where it does not say."""
    context: Any = torch._guards.TracingContext.try_get()
    found = getattr(context, "get_traced_code", None)
    return list(found() or ()) if found is not None else []


def source_of(node: Any) -> str:
    """Where an input of Dynamo's graph comes from, as Python of `L`, the
    arguments, and `G`, the globals."""
    return _text_of(node._dynamo_source)


def _text_of(source: Any) -> str:
    name = source.name  # a method in 2.11
    return str(name() if callable(name) else name)


def guards() -> list[tuple[str, str]]:
    """(kind, where the value comes from) of Dynamo's guards."""
    context: Any = torch._guards.TracingContext.try_get()
    found = getattr(context, "guards_context", None)
    inner = getattr(getattr(found, "dynamo_guards", None), "inner", None) or ()
    return [(guard_name(g), str(g.name)) for g in inner]


def size_conditions() -> list[str]:
    """What was assumed of sizes, as Python of `L`."""
    from torch.utils._sympy.printers import PythonPrinter

    context: Any = torch._guards.TracingContext.try_get()
    mode = getattr(context, "fake_mode", None)
    env = getattr(mode, "shape_env", None)
    if env is None:
        return []

    sources: Any = env.var_to_sources

    class Printer(PythonPrinter):
        def _print_Symbol(self, symbol: Any) -> str:
            return _text_of(sources[symbol][0])

    printer = Printer()
    return [
        printer.doprint(g.expr)
        for g in env.guards
        if all(s in sources for s in g.expr.free_symbols)
    ]


@contextlib.contextmanager
def bytecode_of(code: Any, seen: Callable[[Any], None]) -> Iterator[None]:
    """seen(made) for what Dynamo makes of the code object meanwhile."""

    def hook(old: Any, made: Any) -> None:
        if old is code:
            seen(made)

    handle = on_bytecode(hook)
    try:
        yield
    finally:
        handle.remove()
