"""The backends of the side-by-side: BACKENDS[name](target, **options).

Each takes a module or function and gives back something with its signature.
options are those of torch.compile.
"""

from functools import partial

import outside
import torch


def inductor(target, settings=None, **options):
    """Inductor as its users run it; settings are of its config module."""
    import torch._inductor.config as config

    for name, value in (settings or {}).items():
        setattr(config, name, value)
    return torch.compile(target, backend="inductor", **options)


def torchair(target, mode, **options):
    import torchair  # noqa: F401  registers the backend

    return torch.compile(target, backend="torchair", mode=mode, **options)


def frozen(target, **options):
    """max-autotune, with the promise that weights stay (weights.frozen)."""
    import torchair

    config = torchair.CompilerConfig()
    config.weights.frozen = True
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(target, backend=made, **options)


def nothing(target, decompositions=None, **options):
    """The tracing floor: Dynamo and AOTAutograd, the graph run as it is."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    backend = aot_autograd(
        fw_compiler=boxed_nop,
        bw_compiler=boxed_nop,
        inference_compiler=boxed_nop,
        decompositions=decompositions() if decompositions else {},
        keep_inference_input_mutations=True,
    )
    return torch.compile(target, backend=backend, **options)


def core_aten():
    from torch._decomp import core_aten_decompositions

    return core_aten_decompositions()


BACKENDS = {
    "eager": lambda target, **options: target,
    "aot-nop": nothing,
    "aot-nop-core": partial(nothing, decompositions=core_aten),
    "inductor": inductor,
    "inductor-reduce-overhead": partial(inductor, mode="reduce-overhead"),
    "inductor-freezing": partial(inductor, settings={"freezing": True}),
    "openvino": outside.openvino,
    "onnxruntime": outside.onnxruntime,
    "torchair-reduce-overhead": partial(torchair, mode="reduce-overhead"),
    "torchair-max-autotune": partial(torchair, mode="max-autotune"),
    "torchair-frozen": frozen,
}
OURS = ("torchair-reduce-overhead", "torchair-max-autotune")
