"""The own dispatcher: Dynamo's guards asked from C, the program called next.

A call of a compiled function takes about 10 us of Python before it reaches
the program: torch's `compile_wrapper`, the frame hook, the guards, the
profiler's marks, AOTAutograd's wrapper. So the function that torch.compile
returns is ours: `_native.Dispatcher` binds the arguments, asks the guard trees
that Dynamo made, and calls what Dynamo generated for the first that holds.
Whenever something is unusual (nothing compiled yet, no guards hold, a stance,
a trace, module hooks), the call goes Dynamo's way and the reason is counted.

Four short ways, all with the side effects that Dynamo recorded:

bare     the program is called with the function's arguments, where the
         generated code does no more than that (bytecode.py)
direct   the generated code calls the program; both where C does all that
         AOTAutograd's wrapper does (direct.py)
trained  the generated code calls the autograd.Function of trained.py
wrapped  the generated code calls AOTAutograd's function, for what `reasons`
         and `torchair.explain` say

Everything here uses private names of torch (2.11 to 2.14). Where one is
missing, the dispatcher stays away; `reasons` says why.
"""

from __future__ import annotations

import collections
import functools
import itertools
import types
import weakref
from collections.abc import Callable
from typing import Any, cast

import torch

from . import bytecode, compat
from .compiled import Owner, owning

Call = Callable[..., Any]
reasons: collections.Counter[str] = collections.Counter()
"""Why functions or entries are not dispatched, counted."""

_MAX_ENTRIES = 8  # guard trees asked in a row; Dynamo's own limit is the same
_direct: weakref.WeakKeyDictionary[Call, Any] = weakref.WeakKeyDictionary()
_served: dict[Any, Callable[[Any], bool]] = {}
_dispatchers: weakref.WeakSet[Any] = weakref.WeakSet()
_names = itertools.count()


def serve(
    backend: Any, wants: Callable[[Any], bool] = lambda _backend: True
) -> None:
    """Dispatch what is compiled with a backend: a function, or a class whose
    instances are backends, where `wants` of the instance says so."""
    _served[backend] = wants


def mark_direct(compiled: Call, program: Any) -> None:
    """`program` does all that AOTAutograd's `compiled` does."""
    _direct[_innermost(compiled)] = program


def mark_trained(compiled: Call, forward: Any, backward: Any) -> None:
    """Calls of the differentiated graph `compiled` go to its two programs
    where trained.py says so."""
    from .trained import Trained

    inner = _innermost(compiled)
    _direct[inner] = Trained(inner, forward, backward)


def shortened(compiled: Call) -> Call:
    """What Dynamo is given for `compiled`: calls what is marked for it. So do
    frames that no dispatcher is in front of, as those behind a graph break."""
    program = _direct.get(_innermost(compiled))
    if program is None:
        return compiled

    def call(*args: Any, _kept: Call = compiled) -> Any:
        return program(*args)

    _direct[call] = program
    return call


def _innermost(compiled: Call) -> Call:
    """Without the wrappers of torch._dynamo.disable, of which Dynamo makes
    new ones."""
    while hasattr(compiled, "_torchdynamo_orig_callable"):
        compiled = compiled._torchdynamo_orig_callable
    return compiled


# ---- which functions ----


def _wants(backend: Any) -> bool:
    if hasattr(backend, "compiler_fn"):  # torch._TorchCompileWrapper
        backend = backend.compiler_fn
    if isinstance(backend, functools.partial):
        backend = backend.func
    try:
        wants = _served.get(type(backend)) or _served.get(backend)
    except TypeError:  # unhashable
        return False
    return wants is not None and wants(backend)


class _Target:
    """What a compiled function runs: the frame that Dynamo compiles."""

    def __init__(self, fn: Any) -> None:
        found = torch.nn.modules.module
        self.hooks = (
            found._global_forward_hooks,
            found._global_forward_pre_hooks,
            found._global_backward_hooks,
            found._global_backward_pre_hooks,
        )
        self.module: Any = None
        self.bound: Any = None
        if isinstance(fn, types.MethodType):
            owner: Any = fn.__self__
            self.bound = owner
            module_call = torch.nn.Module._wrapped_call_impl
            module_impl = torch.nn.Module._call_impl
            if fn.__func__ in (module_call, module_impl):
                # Dynamo leaves Module.__call__ alone and compiles forward.
                self.module = vars(owner)
                fn = type(owner).forward
            else:
                fn = fn.__func__
        if not isinstance(fn, types.FunctionType):
            raise TypeError(f"a {type(fn).__name__} is no Python function")
        self.function = fn

    def signature(self) -> tuple[Any, ...]:
        fn, code = self.function, self.function.__code__
        has_args = bool(code.co_flags & 0x04)
        has_keywords = bool(code.co_flags & 0x08)
        count = code.co_argcount + code.co_kwonlyargcount
        count += has_args + has_keywords
        return (
            code.co_varnames[:count],
            code.co_argcount,
            code.co_kwonlyargcount,
            has_args,
            has_keywords,
            fn.__defaults__ or (),
            fn.__kwdefaults__ or {},
            code.co_freevars,
            fn.__closure__ or (),
        )


# ---- entries ----


Bare = tuple[tuple[str, ...], str, tuple[Any, ...]]


def _generated(target: _Target, entry: Any) -> tuple[Call, Bare | None] | None:
    """What to call: what Dynamo generated as a function, or the program and
    how (a Recipe's fields); None where neither must be."""
    fn, code = target.function, entry.code
    names = [n for n in code.co_names if n.startswith("__compiled_fn")]
    if any("__resume_at" in n for n in code.co_names):
        reasons["a graph break: the rest of the frame is compiled apart"] += 1
        return None
    if len(names) != 1 or names[0] not in fn.__globals__:
        reasons["the frame calls no graph, or several"] += 1
        return None
    compiled = _innermost(fn.__globals__[names[0]])
    program = _direct.get(compiled)
    if program is not None:
        recipe = bytecode.read(code, names[0])
        if recipe is not None:
            return program, (recipe.arguments, recipe.shape, recipe.items)
        code = _replace_name(fn.__globals__, code, names[0], program)
    made = types.FunctionType(
        code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    if program is not None:
        weakref.finalize(made, fn.__globals__.pop, code.co_names[-1], None)
    return made, None


def _replace_name(
    scope: dict[str, Any], code: types.CodeType, old: str, program: Any
) -> types.CodeType:
    """code that calls `program` where it called the global `old`."""
    new = f"__air_program_{next(_names)}"
    scope[new] = program
    at = code.co_names.index(old)
    names = list(code.co_names)
    names[at] = new
    # the last name says which global belongs to the code
    return code.replace(co_names=(*names, new))


class _Refresher:
    """Gives a dispatcher the entries that Dynamo has now."""

    def __init__(self, target: _Target, backend: Any, region: Any) -> None:
        self.target, self.backend, self.region = target, backend, region
        self.seen: list[weakref.ref[Any]] = []

    def __call__(self, dispatcher: Any) -> None:
        found = self._entries()
        owners = [e.guard_manager for e in found]
        if len(owners) == len(self.seen) and all(
            a() is b for a, b in zip(self.seen, owners, strict=True)
        ):
            return
        self.seen = [weakref.ref(o) for o in owners]
        rows = []
        for entry in found[:_MAX_ENTRIES]:
            call = _generated(self.target, entry)
            if call is not None:
                owner = entry.guard_manager
                rows.append((owner.root.check, owner, *call))
        dispatcher.set_entries(tuple(rows))

    def _entries(self) -> list[Any]:
        from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

        found = _debug_get_cache_entry_list(self.target.function.__code__)
        return [
            e
            for e in found
            if _is_same(e.backend, self.backend)
            and getattr(e, "isolate_recompiles_id", None) == self.region
        ]


def _is_same(backend: Any, other: Any) -> bool:
    """As Dynamo finds its entries; copies of a compiled module share them."""
    return backend is other or backend == other


# ---- in front of torch.compile ----


def _dispatched(context: Any, slow: Any) -> Call:
    """slow, Dynamo's wrapper of a function, with the dispatcher before it."""
    from torch._dynamo import eval_frame

    from . import _native

    backend = eval_frame.innermost_backend(context.callback)
    if not _wants(backend):
        return cast(Call, slow)
    target = _Target(slow._torchdynamo_orig_callable)
    region = getattr(slow, "_isolate_recompiles_id", None)
    owner = Owner()
    dispatcher = _native.Dispatcher(
        owning(slow, owner),
        _Refresher(target, backend, region),
        target.signature(),
        target.bound,
        target.hooks,
        target.module,
        torch._C._dynamo.eval_frame.get_eval_frame_callback,
        torch._C._get_tracing_state,
        vars(eval_frame),
    )

    @functools.wraps(slow)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return dispatcher(*args, **kwargs)

    compiled._torchdynamo_wrapper_id = id(compiled)  # type: ignore[attr-defined]
    compiled._torchair_dispatcher = dispatcher  # type: ignore[attr-defined]
    compiled._torchair_owner = owner  # type: ignore[attr-defined]
    _dispatchers.add(dispatcher)
    return compiled


def _compiled_code() -> types.CodeType:
    """Of the functions that _dispatched makes; since Python 3.14 another one
    among its constants is of their annotations."""
    (found,) = (
        c
        for c in _dispatched.__code__.co_consts
        if isinstance(c, types.CodeType) and c.co_name == "compiled"
    )
    return found


def _call_modules(kind: type) -> None:
    """A call of torch.compile's module `kind` goes to the dispatcher at once
    where it comes to its forward, which is the dispatcher's: what torch looks
    at on the way takes 5 us. Everything else is left to torch."""
    plain = kind.__call__
    module = torch.nn.Module
    usual, ours = (module.__call__, module._call_impl), _compiled_code()

    @functools.wraps(plain)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__
        forward = own.get("forward")
        if (
            getattr(forward, "__code__", None) is ours
            and module.__call__ is usual[0]
            and module._call_impl is usual[1]
        ):
            made = forward._torchair_dispatcher.call_module(
                own, *args, **kwargs
            )
            if made is not NotImplemented:
                return made
        return plain(self, *args, **kwargs)

    if usual[0] is module._wrapped_call_impl:  # else patched already
        kind.__call__ = call  # type: ignore[method-assign]


def stats() -> dict[str, int]:
    """Calls of all living dispatchers by the way they took, with reasons."""
    total: collections.Counter[str] = collections.Counter(reasons)
    for dispatcher in _dispatchers:
        total.update(dispatcher.stats())
    return {why: n for why, n in total.items() if n}


def install() -> None:
    """Puts dispatchers in front of what torch.compile returns from now on."""
    from torch._dynamo import eval_frame

    context: Any = eval_frame.OptimizeContext
    plain = context.__call__
    if hasattr(plain, "_torchair_plain"):
        return

    @functools.wraps(plain)
    def call(self: Any, fn: Any) -> Any:
        made = plain(self, fn)
        if not isinstance(made, types.FunctionType):
            return made  # a module: its forward comes here too
        try:
            return _dispatched(self, made)
        except (AttributeError, TypeError, ValueError, ImportError) as why:
            reasons[f"not dispatched: {why}"] += 1
            return made

    call._torchair_plain = plain  # type: ignore[attr-defined]
    context.__call__ = call
    _call_modules(eval_frame.OptimizedModule)
    compat.leave_alone(__name__)
    compat.leave_alone(owning.__module__)
