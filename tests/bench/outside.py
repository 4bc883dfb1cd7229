"""OpenVINO and ONNX Runtime beside us, where they are installed.

They are no backends of torch.compile: a model is exported with the arguments of
its first call, which counts as compile time. They take what is inference and
writes nothing of its own; `missing` and `refuses` say what they do not take.

    pip install openvino onnxruntime onnx onnxscript
"""

import importlib.util
import os
import tempfile

import torch

NEEDS = {
    "openvino": ("openvino",),
    "onnxruntime": ("onnxruntime", "onnx", "onnxscript"),
}


def missing(backend):
    """What is not installed of what a backend needs, as pip would name it."""
    needs = NEEDS.get(backend, ())
    return [name for name in needs if not importlib.util.find_spec(name)]


def refuses(backend, case):
    """Why a model is not measured with a backend, or nothing."""
    if backend not in NEEDS:
        return ""
    if case.step:
        return "inference only"
    return "writes its inputs or buffers" if case.writes else ""


def openvino(target, **options):
    return _exported(target, _openvino)


def onnxruntime(target, **options):
    return _exported(target, _onnxruntime)


def _exported(target, export):
    """Like target, made by export(module, arguments) in the first call."""
    found = []

    def call(*arguments):
        if not found:
            found.append(export(_module(target), arguments))
        results = found[0](*arguments)
        return results[0] if len(results) == 1 else tuple(results)

    return call


class _Function(torch.nn.Module):
    """A function as a module, which is what the exporters take."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *arguments):
        return self.function(*arguments)


def _module(target):
    return target if isinstance(target, torch.nn.Module) else _Function(target)


# ---- OpenVINO ---------------------------------------------------------------


def _openvino(module, arguments):
    """In the precision of the model: its default for f32 may be bf16."""
    import openvino as ov

    low = any(p.dtype == torch.bfloat16 for p in module.parameters())
    model = ov.convert_model(module, example_input=arguments)
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if low else "f32",
    }
    compiled = ov.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()

    def run(*arguments):
        for i, tensor in enumerate(arguments):
            held = ov.Tensor(tensor.numpy(), shared_memory=True)
            request.set_input_tensor(i, held)
        request.infer()
        places = range(len(compiled.outputs))
        return [_from_openvino(request.get_output_tensor(i)) for i in places]

    return run


def _from_openvino(tensor):
    """Its memory; NumPy has no bfloat16."""
    if tensor.get_element_type().get_type_name() != "bf16":
        return torch.from_numpy(tensor.data)
    return torch.from_numpy(tensor.data.view("int16")).view(torch.bfloat16)


# ---- ONNX Runtime -----------------------------------------------------------


def _onnxruntime(module, arguments):
    import onnxruntime as ort

    with tempfile.TemporaryDirectory(prefix="onnx") as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(module, arguments, path, dynamo=True, verbose=False)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        settings.inter_op_num_threads = 1
        # Its threads would go on spinning while another backend is timed.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
        session = ort.InferenceSession(
            path, settings, providers=["CPUExecutionProvider"]
        )
    names = [entry.name for entry in session.get_inputs()]

    def run(*arguments):
        feed = {n: t.numpy() for n, t in zip(names, arguments, strict=True)}
        return list(map(torch.from_numpy, session.run(None, feed)))

    return run
