"""Every difference between torch versions, and torch's private names.

Tested with torch 2.11 to 2.14. Each entry says which version it is for; when
that version is dropped, so is the entry.
"""

from __future__ import annotations

import contextlib
import glob
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar, cast

import torch

# Devices whose tensors lie in host memory; torch_npu adds "npu".
HOST_DEVICES = {"cpu"}


def torch_cpu_library() -> str:
    """Path of libtorch_cpu, which the process has loaded already."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    found = glob.glob(os.path.join(folder, "libtorch_cpu.*"))
    return found[0] if found else "libtorch_cpu.so"


def torch_cuda_library() -> str:
    """Path of libtorch_cuda, which a build with CUDA has loaded already."""
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return os.path.join(folder, "libtorch_cuda.so")


def gomp_library() -> str:
    """Path of the libgomp that torch uses, "" where it uses another runtime.

    Up to 2.12 the wheel's copy has a hashed name and may lie in torch.libs.
    """
    root = os.path.dirname(torch.__file__)
    for pattern in ("lib/libgomp*", "../torch.libs/libgomp*"):
        found = glob.glob(os.path.join(root, pattern))
        if found:
            return os.path.realpath(found[0])
    return ""


def register_fake(library: Any, name: str, fake: Callable[..., Any]) -> None:
    """torch.library.register_fake for an operator of the library, which looks
    up the caller's line with `inspect`: that walks all modules of the process
    (15 ms at the import of this package)."""
    full = f"{library.ns}::{name}"
    try:
        entry = torch._library.simple_registry.singleton.find(full)
        handle = entry.fake_impl.register(fake, __name__, lib=library)
        library._registration_handles.append(handle)
    except (AttributeError, TypeError):  # another torch than those tested
        register: Any = torch.library.register_fake
        register(full, fake, lib=library)


def symbol_hint(shape_env: Any, symbol: Any) -> int | None:
    """The size a symbol had when it was traced, 0 where there is none; None:
    it is the ragged size of a nested tensor, which is no number."""
    # 2.11 has var_to_val only.
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    value = values.get(symbol)
    if value is None:
        return 0
    return int(value) if getattr(value, "is_Integer", True) else None


def symbol_range(shape_env: Any, symbol: Any) -> tuple[int, int]:
    """Least and greatest value of a symbol, within int64. Sizes have a least
    one; numbers, which may be below zero, have none."""
    found = shape_env.var_to_range.get(symbol)
    low, high = 0, 2**62
    if found is not None:
        low = int(found.lower) if found.lower.is_Integer else -(2**62)
        if found.upper.is_Integer:
            high = min(high, int(found.upper))
    return max(low, -(2**62)), high


def static_input_indices(kind: str) -> set[int]:
    """Graph inputs that are the same tensors at every call (parameters)."""
    meta = runtime_metadata()
    if kind == "backward":
        return set()  # they are the forward's
    return set(getattr(meta, "static_input_indices", None) or ())


def real_tensors() -> Any:
    """A context in which tensors are what they are, inside of a compilation
    whose modes make descriptions of them."""
    return torch.utils._python_dispatch._disable_current_modes()


def runtime_metadata() -> Any:
    """AOTAutograd's ViewAndMutationMeta of the graph at hand, or None."""
    context = torch._guards.TracingContext.try_get()
    return getattr(context, "fw_metadata", None)


def view_steps(info: Any) -> Any:
    """What AOTAutograd replays on an input to make an output that is a view
    of it; None where it does it in another way.

    info: an OutputAliasInfo.
    """
    found = getattr(info, "view_meta_sequence", None)
    replays = torch._functorch.config.view_replay_for_aliased_outputs
    if found is None or not replays or apply_views() is None:
        return None
    if any(step.has_symbolic_inputs for step in found.sequence):
        return None
    return found.sequence


def apply_views() -> Callable[..., Any] | None:
    """(base, steps) -> the view; not in every version."""
    functions = getattr(torch._C, "_functionalization", None)
    return getattr(functions, "apply_view_meta_sequence", None)


def mark_dynamic() -> Callable[..., None] | None:
    """(tensor, dims): AOTAutograd's note of an output's dynamic sizes; up to
    2.12 it has another name."""
    from torch._functorch._aot_autograd import runtime_wrappers

    before = getattr(runtime_wrappers, "maybe_mark_dynamic_helper", None)
    name = "mark_dynamo_propagated_dynamic_indices"
    return getattr(runtime_wrappers, name, before)


def forget_hooks_guard() -> None:
    """The frame that Dynamo compiles is not compiled again where hooks of
    saved tensors are others."""
    context = torch._guards.TracingContext.try_get()
    guards = getattr(context, "guards_context", None)
    found: Any = getattr(getattr(guards, "dynamo_guards", None), "inner", None)
    for guard in list(found or ()):
        if guard_name(guard) == "AUTOGRAD_SAVED_TENSORS_HOOKS":
            found.discard(guard)


def on_bytecode(hook: Callable[[Any, Any], Any]) -> Any:
    """hook(code, made) for each code object that Dynamo makes another of, and
    gives one to take instead, or None. Until `remove()` of what is returned."""
    from torch._dynamo import convert_frame

    register: Any = convert_frame.register_bytecode_hook
    return register(hook)


def guard_name(guard: Any) -> str:
    create = getattr(guard, "create_fn", None)
    return str(getattr(create, "__name__", ""))


Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(fn: Function) -> Function:
    """fn, which Dynamo leaves alone."""
    disable: Any = torch._dynamo.disable
    return cast(Function, disable(fn))


def leave_alone(module: str) -> None:
    """Dynamo compiles no frame of the module's file, as of its own."""
    from torch._dynamo import trace_rules

    trace_rules.add(module)


_saved: dict[str, Any] = {}


def lighten_calls() -> None:
    """Dynamo's settings for this frame that make its calls cheaper, or right.

    record_runtime_overhead: no profiler marks in the generated code (2 us).
    skip_tensor_guards_with_matching_dict_tags: up to 2.12 a parameter whose
    data got other sizes was not noticed, as the dict it is in had not changed.
    use_recursive_dict_tags_for_guards: up to 2.11 modules whose dicts have not
    changed are not walked, by pointers to dicts that may be gone: processes
    ended in a segmentation fault (pytorch/pytorch #180741, #181873).

    Dynamo reads them after the backend has returned, so they are put back
    when the compilation of the frame ends.
    """
    _listen()
    config = torch._dynamo.config
    asked = {"record_runtime_overhead": False}
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        asked["skip_tensor_guards_with_matching_dict_tags"] = False
        asked["use_recursive_dict_tags_for_guards"] = False
    for name, value in asked.items():
        if hasattr(config, name) and name not in _saved:
            _saved[name] = getattr(config, name)
            setattr(config, name, value)


def _restore_settings() -> None:
    while _saved:
        name, value = _saved.popitem()
        setattr(torch._dynamo.config, name, value)


def install_callbacks() -> None:
    on_compile_end(_restore_settings)


_at_end: list[Callable[[], None]] = []


def on_compile_end(call: Callable[[], None]) -> None:
    """call() after Dynamo has compiled a frame, before the frame runs."""
    _at_end.append(call)
    _listen()


def _listen() -> None:
    """Once more after torch._dynamo.reset(), which forgets callbacks."""
    from torch._dynamo import callback

    found = callback.callback_handler.end_callbacks
    if not any(hasattr(c, "_torchair") for c in found):
        # Of a frame of ours Dynamo would wait for the lock that it calls us
        # under.
        ended = untraced(_ended)
        ended._torchair = True  # type: ignore[attr-defined]
        callback.on_compile_end(ended)


def _ended(_args: Any) -> None:
    for call in _at_end:
        call()


@contextlib.contextmanager
def aot_settings(inputs: Sequence[Any]) -> Iterator[None]:
    """AOTAutograd's settings while we compile.

    The engine gains nothing from overwriting saved tensors (donated_buffer);
    see also compat_training.py. Tokens, which order effects, are no inputs and
    results: wrappers would add them and take them away again.
    """
    from . import resizing

    kept = resizing.kept(inputs)
    patched = torch._functorch.config.patch(
        donated_buffer=False, unlift_effect_tokens=True
    )
    with patched, kept:
        yield


def trace_functional(
    fn: Callable[..., Any], fakes: list[torch.Tensor]
) -> torch.fx.GraphModule:
    """fn(*fakes), which mutates as it likes, as a graph that does not."""
    from torch._subclasses.functional_tensor import (
        FunctionalTensorMode,
        dispatch_functionalize,
    )
    from torch.fx.experimental.proxy_tensor import make_fx

    functional = dispatch_functionalize(fn, FunctionalTensorMode())
    found: torch.fx.GraphModule = make_fx(functional)(*fakes)
    return found


def graph_module(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """The graph's module, whose Python code is made when it is called."""
    from torch.fx._lazy_graph_module import (
        _make_graph_module,
        _use_lazy_graph_module,
    )

    with _use_lazy_graph_module(True):
        found: torch.fx.GraphModule = _make_graph_module(
            torch.nn.Module(), graph
        )
    return found


def remove_noop_ops(gm: torch.fx.GraphModule) -> None:
    """Inductor's removal of operators that change nothing."""
    from torch._inductor.fx_passes.post_grad import remove_noop_ops as remove

    remove(gm.graph)


def reinplace_custom(gm: torch.fx.GraphModule) -> None:
    """auto_functionalized calls become the operators that write; only what
    must be is cloned."""
    from torch._inductor.fx_passes import post_grad, reinplace
    from torch._inductor.fx_utils import FakeTensorUpdater

    # 2.11 gives it the graph.
    takes = FakeTensorUpdater.__init__.__code__.co_varnames[1]
    updater: Any = FakeTensorUpdater(gm if takes == "gm" else gm.graph)  # type: ignore
    reinplace.reinplace_inplaceable_ops(updater, gm.graph)
    post_grad.decompose_auto_functionalized(gm.graph)


def debug_folder() -> str:
    """torch_compile_debug/run_...: one for the process."""
    from torch._dynamo.utils import get_debug_dir

    return str(get_debug_dir())


def let_record_stream_pass(kind: type) -> None:
    """Tensor.record_stream(s) in a traced function, s of the Python class
    `kind`: nothing to do, memory lives as long as the graph needs it. Dynamo
    knows torch.Stream only."""
    from torch._dynamo.variables import ConstantVariable, TensorVariable

    variables: Any = TensorVariable
    plain = getattr(variables, "method_record_stream", None)

    def method_record_stream(self: Any, tx: Any, stream: Any) -> Any:
        if plain is None or issubclass(stream.python_type(), kind):
            return ConstantVariable.create(None)
        return plain(self, tx, stream)

    variables.method_record_stream = method_record_stream
    if row := getattr(variables, "tp_methods", {}).get("record_stream"):
        variables.tp_methods["record_stream"] = type(row)(method_record_stream)


def break_at_slices() -> None:
    """Dynamo breaks the graph at x[a:b] of a tensor, alone or in a tuple."""
    from torch._dynamo.variables.builtin import BuiltinVariable
    from torch._dynamo.variables.lists import BaseListVariable
    from torch._dynamo.variables.tensor import TensorVariable

    kind: Any = BuiltinVariable
    plain = kind.call_function

    def has_slice(index: Any) -> bool:
        if index.python_type() is tuple and isinstance(index, BaseListVariable):
            return any(has_slice(i.realize()) for i in index.items)
        return bool(index.python_type() is slice)

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is operator.getitem:
            x, index = (a.realize() for a in args)
            if isinstance(x, TensorVariable) and has_slice(index):
                _break("x[a:b]")
        return plain(self, tx, args, kwargs)

    kind.call_function = call_function


def break_at_writes() -> None:
    """Dynamo breaks the graph at x[index] = v of a tensor."""
    from torch._dynamo.variables.tensor import TensorVariable

    kind: Any = TensorVariable
    kind.method___setitem__ = lambda *_args: _break("x[i] = v")


def _break(what: str) -> NoReturn:
    from torch._dynamo.exc import unimplemented

    unimplemented(
        gb_type="Operator of BREAK_GRAPH_OP_LIST",
        context=what,
        explanation="BREAK_GRAPH_OP_LIST names it.",
        hints=[],
    )


def let_events_name_no_stream() -> None:
    """event.record() and event.wait() in a traced function on a machine
    without an accelerator: Dynamo of 2.13 looks for the current stream on a
    stack that is empty there. They mean the main stream, as elsewhere."""
    from torch._dynamo.variables import streams

    variables: Any = streams.EventVariable
    plain = getattr(variables, "_get_stream_arg", None)
    if plain is None or not hasattr(streams, "CURRENT_STREAM_INDEX"):
        return

    def _get_stream_arg(tx: Any, args: Any, kwargs: Any) -> Any:
        state = tx.symbolic_stream_state
        if args or kwargs or state.in_stream_context():
            return plain(tx, args, kwargs)
        if not hasattr(state, "main"):
            state.main = _MainStream()
        return state.main, state.main.user_object_index

    variables._get_stream_arg = staticmethod(_get_stream_arg)


class _MainStream:
    """What Dynamo asks of the variable of a stream."""

    value: torch.Stream | None = None  # one for the process

    def __init__(self) -> None:
        from torch._dynamo import graph_bytecode_inputs as inputs

        variables: Any = torch._dynamo.variables
        if _MainStream.value is None:
            _MainStream.value = torch.Stream(device="cpu")
        make: Any = variables.StreamVariable.make_construct_in_graph_stream_fn
        # Without the device it would be of CUDA, where torch is built for it.
        device = [variables.ConstantVariable.create("cpu")]
        args = variables.TupleVariable(device), variables.ConstDictVariable({})
        self.user_object_index = inputs.register_graph_created_object(
            self.value, make(*args)
        )


def is_main_stream(index: int) -> bool:
    """Of the objects that the traced frame has noted, while it is compiled:
    is this the stream of events that name none?"""
    from torch._dynamo import graph_bytecode_inputs as inputs

    noted: Any = inputs.index_to_external_object_weakref
    if isinstance(noted, list):  # since torch 2.15, by index
        noted = dict(enumerate(noted))
    found = noted.get(index)
    stream = None if found is None else found()
    return stream is not None and stream is _MainStream.value


class _Gone:
    """In the place of an object that no longer lives."""


def keep_noted_objects() -> None:
    """Since torch 2.15 forward keeps what frames have noted, for backward; but
    from a list that they no longer write, and without the places of what is
    gone, so that backward failed where the frame of its forward, one of ours,
    had noted nothing."""
    from torch._dynamo import graph_bytecode_inputs as inputs
    from torch._functorch._aot_autograd import runtime_wrappers

    if not hasattr(runtime_wrappers, "_snapshot_external_objects"):
        return
    gone = _Gone()

    def _snapshot_external_objects(ctx: Any) -> None:
        noted: Any = inputs.index_to_external_object_weakref
        found = (ref() for ref in noted)
        ctx._external_objects = {
            index: gone if value is None else value
            for index, value in enumerate(found)
        }

    patched: Any = runtime_wrappers
    patched._snapshot_external_objects = _snapshot_external_objects


def functional_strides(value: torch.Tensor) -> tuple[int, ...] | None:
    """Inside trace_functional: the strides the value has in the graph."""
    from torch._subclasses.functional_tensor import FunctionalTensor

    if not isinstance(value, FunctionalTensor):
        return None
    getattr(torch, "_sync")(value)  # noqa: B009  (mypy does not know it)
    inner: torch.Tensor = torch._from_functional_tensor(value.elem)
    return inner.stride()
