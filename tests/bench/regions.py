"""Fused regions: six workloads, four sizes, two dtypes.

WORKLOADS[name](elements, dtype) -> (function, inputs), each a pointwise or
reduction region of real models, whose inputs hold about `elements` each.
"""

import torch
import torch.nn.functional as F

SIZES = {"4K": 4096, "64K": 65536, "1M": 1 << 20, "16M": 1 << 24}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def gate_gelu(x):
    return F.gelu(x * 1.1 + 0.2, approximate="tanh") * torch.sigmoid(x) + x


def swiglu(gate, up):
    return F.silu(gate) * up


def add_rms_norm(x, y, weight):
    s = (x + y).float()
    scale = torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (s * scale).to(x.dtype) * weight


def softmax(x):
    return torch.softmax(x, -1)


def adam(p, g, m, v, master):
    """One step of Adam on a flat tensor: five inputs, three results."""
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return master + p * 0.01 - 1e-3 * m / (torch.sqrt(v) + 1e-8), m, v


def bias_gelu(x, bias):
    return F.gelu(x + bias)


def _rows(elements, width):
    return max(1, elements // width), width


WORKLOADS = {
    "w1 gelu*sigmoid": (gate_gelu, lambda n: [(n,)]),
    "w2 swiglu": (swiglu, lambda n: [(n,)] * 2),
    "w3 add+rmsnorm": (
        add_rms_norm,
        lambda n: [_rows(n, 2048), _rows(n, 2048), (2048,)],
    ),
    "w4 softmax": (softmax, lambda n: [_rows(n, 1024)]),
    "w5 adam": (adam, lambda n: [(n,)] * 5),
    "w6 bias+gelu": (bias_gelu, lambda n: [_rows(n, 3072), (3072,)]),
}


def build(name, size, dtype):
    function, shapes = WORKLOADS[name]
    torch.manual_seed(0)
    # Positive, so that the square root of adam is real.
    inputs = [torch.rand(s) + 0.1 for s in shapes(SIZES[size])]
    return function, [t.to(DTYPES[dtype]) for t in inputs]
