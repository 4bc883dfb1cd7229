"""torch.compile for tensors of the device.

backend="inductor": graphs with a tensor of the device go to torchair's engine,
all others to Inductor itself. backend="npugraphs": torchair.npugraphs. Both
take the options of shape handling, which works in front of the compiled
function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo import device_interface

from torchair import compat, dispatch, npugraphs
from torchair.config import CompilerConfig

from . import _ops, npu
from ._inductor import shapes

_Wrapper: Any = torch._TorchCompileInductorWrapper
# Options of Inductor's that have a meaning for tensors of the device; any
# other one may only repeat its default.
_MODES = {
    None: "max-autotune",
    "default": "max-autotune",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "max-autotune",
}


class Asked:
    """What torch.compile(backend="inductor") was asked for."""

    def __init__(self, mode: str | None, options: Mapping[str, Any] | None):
        given = dict(options or {})
        self.shapes = shapes.take_options(given)
        self.npu_backend = given.pop("npu_backend", None)
        npugraphs.set_npu_backend(CompilerConfig(), self.npu_backend)
        self.mode, self.rest = mode, given

    def config(self, inductor: Mapping[str, Any]) -> CompilerConfig:
        """Ours; inductor: the options as Inductor has taken them.

        ValueError: one that cannot be honoured for tensors of the device.
        """
        config = CompilerConfig()
        if self.mode not in _MODES:
            raise ValueError(f"mode {self.mode!r} is not known for npu tensors")
        config.mode = _MODES[self.mode]
        for name in self.rest:
            key = name.replace("-", "_")
            self._set(config, key, inductor[key])
        return config

    def _set(self, config: CompilerConfig, key: str, value: Any) -> None:
        if key == "triton.cudagraphs":
            if npugraphs.check_bool(key, value):
                config.mode = "reduce-overhead"
        elif key == "trace.enabled":
            npugraphs.set_trace(config, value)
        elif value != _inductor_default(key):
            raise ValueError(
                f"option {key!r} of Inductor has no effect on npu tensors, "
                "which torchair's engine compiles: leave it out (what it "
                "knows: triton.cudagraphs, trace.enabled, npu_backend, "
                "enable_shape_handling, shape_handling_configs, "
                "shape_handling_dict)"
            )


def _inductor_default(key: str) -> Any:
    from torch._inductor import config

    entries: Any = config
    return entries._config[key].default


def _is_npu(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "npu"


def on_npu(gm: torch.fx.GraphModule, example_inputs: Any) -> bool:
    """Does a graph of Dynamo's touch the device?"""
    if any(map(_is_npu, example_inputs)):
        return True
    return any(
        _is_npu(node.meta.get("example_value")) for node in gm.graph.nodes
    )


def _install_inductor() -> None:
    init, call = _Wrapper.__init__, _Wrapper.__call__

    @functools.wraps(init)
    def new_init(
        self: Any, mode: Any, options: Any, dynamic: Any, *args: Any, **kw: Any
    ) -> None:
        self.npu = Asked(mode, options)
        init(self, mode, self.npu.rest or None, dynamic, *args, **kw)

    @functools.wraps(call)
    def new_call(self: Any, gm: Any, inputs: Any, **kw: Any) -> Any:
        if type(self) is not _Wrapper or not on_npu(gm, inputs):
            return call(self, gm, inputs, **kw)
        config = self.npu.config(self.config)
        return npugraphs.compile_frame(gm, inputs, config)

    _Wrapper.__init__, _Wrapper.__call__ = new_init, new_call

    dispatch.serve(
        _Wrapper, lambda wrapper: bool(wrapper.config.get("triton.cudagraphs"))
    )


# ---- shape handling: in front of what torch.compile returns ----


def _options_of(backend: Any) -> shapes.Options | None:
    """The options of shape handling that a backend was given."""
    if isinstance(backend, _Wrapper):
        found: shapes.Options | None = backend.npu.shapes
        return found
    if getattr(backend, "compiler_fn", None) is npugraphs.npugraphs:
        return shapes.take_options(dict(backend.kwargs.get("options") or {}))
    return None


def _install_shapes() -> None:
    from torch._dynamo import eval_frame

    context: Any = eval_frame.OptimizeContext
    plain = context.__call__

    @functools.wraps(plain)
    def call(self: Any, fn: Any) -> Any:
        made = plain(self, fn)
        if isinstance(made, torch.nn.Module) or not callable(made):
            return made  # a module: what it calls comes here too
        backend = eval_frame.innermost_backend(self.callback)
        asked = _options_of(backend)
        return made if asked is None else _handled(made, asked)

    # torchair's dispatcher finds the mark on the outermost function
    call.__dict__.update(plain.__dict__)
    context.__call__ = call


def _handled(
    compiled: Callable[..., Any], asked: shapes.Options
) -> Callable[..., Any]:
    handling = shapes.NPUShapeHandling(asked.configs, **asked.hooks)

    @functools.wraps(compiled)
    def run(*args: Any, **kwargs: Any) -> Any:
        return handling.run(compiled, args, kwargs)

    return run


# ---- Dynamo's view of the device ----


class _Interface(device_interface.DeviceInterface):
    """What torch.compile asks about a device."""

    class Worker:
        @staticmethod
        def set_device(device: int) -> None:
            npu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return 0

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            return npu.get_device_properties(device)

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def set_device(device: Any) -> None:
        npu.set_device(device)

    @staticmethod
    def exchange_device(device: int) -> int:
        return 0

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return 0

    @staticmethod
    def synchronize(device: Any = None) -> None:
        npu.synchronize(device)

    @staticmethod
    def get_device_properties(device: Any = None) -> Any:
        return npu.get_device_properties(device)

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return npu.get_device_name(device)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @staticmethod
    def memory_allocated(device: Any = None) -> int:
        return npu.memory_allocated(device)

    @staticmethod
    def is_dtype_supported(
        dtype: torch.dtype, including_emulation: bool = False
    ) -> bool:
        return True

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return False


@functools.cache
def install() -> None:
    """Once a process, before a function is compiled."""
    from torch._dynamo.backends import registry

    _install_inductor()
    _install_shapes()
    _ops.install_rows()
    compat.let_record_stream_pass(npu.Stream)
    npugraphs.handles_shapes.append(True)
    if "npugraphs" not in registry._COMPILER_FNS:
        registry.register_backend(npugraphs.npugraphs, name="npugraphs")
    for name in ("npu", "npu:0"):
        device_interface.register_interface_for_device(name, _Interface)
