"""Golden vectors of the op table, made by PyTorch eager.

    python tools/gen_golden.py            (needs torchair installed)

A comparison with driver ref cannot see a wrong body in src/ir/ops.def: ref
runs the same body. So for every POINTWISE and REDUCE row this writes what
eager computes on a few values, special ones included, to tests/golden/*.txt;
tests/golden/golden.c replays them on every driver and instruction set. A case:

    op DTYPE
    the graph, on one line
    in   bytes of an input, hexadecimal
    out  bytes of the result

Run it after adding a row; a row it cannot make arguments for gets an entry of
ARGUMENTS.
"""

import struct
import sys
from pathlib import Path

import torch

from torchair import _native, backend
from torchair.importer import import_graph

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden"
INF, NAN = float("inf"), float("nan")
FLOATS = [
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -0.75, 0.001, 12.0, -7.25, 40.0]
    + [INF, -INF, NAN, 0.3],
    [2.0, 1.0, -0.0, 0.5, -1.5, 3.0, -3.0, NAN, 0.25, -7.0, 2.5, 0.125]
    + [1.0, 2.0, 1.0, INF],
    [0.25, 1.5, -1.0, 0.75, 2.0, -0.5, 0.0, 1.0, 3.0, -2.0, 0.5, 0.875]
    + [1.0, -1.0, 0.5, 2.0],
]
INTS = [
    [0, 1, -1, 2, -3, 7, -8, 5, 100, -100, 12, 3, 6, -6, 9, 4],
    [1, 2, 3, -2, 2, -7, 3, 5, 7, 9, -5, 2, 1, 4, -3, 6],
    [3, -1, 2, 5, 0, 1, 4, -2, 8, 3, 2, 1, -4, 6, 7, 5],
]
DTYPES = {"f32": torch.float32, "i64": torch.int64, "bool": torch.bool}

# Arguments by name of the parameter, where the usual ones will not do.
ARGUMENTS = {
    "rounding_mode": ["floor", "trunc", None],
    "approximate": ["none", "tanh"],
    "decimals": [1, -1],
    "dim": [1],
    "n": [2],
}
# Rows without a case, and why.
WITHOUT = {
    "prims::fma": "prims.fma has no CPU kernel in eager",
    **{
        op: f"no operator of torch: {where}"
        for prefix, where in (
            ("air::float8_", "tests/python/test_float8.py has all codes"),
            ("air::fake_quantize", "tests/python/test_fake_quantize.py"),
            ("air::moment", "pass expand writes it as other rows"),
        )
        for op in _native.ops()
        if op.startswith(prefix)
    },
}


def values(which, dtype, reduce):
    if dtype is torch.bool:
        flat = [x > 0 for x in INTS[which % 3]]
    elif dtype.is_floating_point:
        flat = FLOATS[which % 3]
        flat = [x for x in flat if abs(x) <= 40] * 2 if reduce else flat
    else:
        flat = INTS[which % 3]
    if reduce:
        return torch.tensor(flat[:15], dtype=dtype).reshape(3, 5)
    return torch.tensor(flat, dtype=dtype)


def scalar(name, number, dtype):
    if dtype.is_floating_point:
        return {"min": -0.75, "max": 1.5, "eps": 0.125}.get(
            name, [1.75, -0.5, 2.0][number % 3]
        )
    return {"min": -3, "max": 6}.get(name, [2, 3, 1][number % 3])


def variants(schema, dtype, reduce):
    """Lists of arguments, by position, for one dtype."""
    made = [[]]
    tensors = scalars = 0
    for arg in schema.arguments:
        kind = str(arg.type)
        if arg.name == "dtype" and not arg.has_default_value():
            choices = [torch.float32, torch.int64, torch.bool]
        elif arg.name in (
            "dtype",
            "layout",
            "device",
            "pin_memory",
            "generator",
        ):
            choices = [None]
        elif arg.name == "buffer":  # log_sigmoid's own intermediate
            buffer = values(1, torch.float32, reduce).abs().neg().exp()
            choices = [buffer.to(dtype)]
        elif arg.name in ("mask", "condition"):
            choices = [values(tensors, torch.bool, reduce)]
            tensors += 1
        elif arg.name == "value" and kind == "Tensor":
            choices = [torch.tensor(3).to(dtype)]
        elif "Tensor" in kind:
            choices = [values(tensors, dtype, reduce)]
            tensors += 1
        elif arg.name in ARGUMENTS:
            choices = ARGUMENTS[arg.name]
            if "List" in kind:
                choices = [[c] for c in choices]
        elif "number" in kind.lower() or kind == "float":
            choices = [scalar(arg.name, scalars, dtype)]
            if arg.has_default_value() and arg.default_value is not None:
                choices.insert(0, arg.default_value)
            scalars += 1
        elif kind == "bool":
            choices = [False, True]
        elif "Optional" in kind:
            choices = [None, 0.125] if "float" in kind else [None]
        elif arg.has_default_value():
            choices = [arg.default_value]
        else:
            choices = [1]
        made = [m + [c] for m in made for c in choices]
    return made


def overload(name):
    """The torch operator of a row's name."""
    space, _, rest = name.rpartition("::")
    base, _, form = rest.partition(".")
    packet = getattr(getattr(torch.ops, space or "aten"), base)
    return getattr(packet, form or "default")


def split(op, arguments):
    """The same arguments as (args, kwargs)."""
    pairs = list(zip(op._schema.arguments, arguments, strict=True))
    args = [a for spec, a in pairs if not spec.kwarg_only]
    return tuple(args), {spec.name: a for spec, a in pairs if spec.kwarg_only}


def eager(op, arguments, reduce):
    """What eager computes; pointwise, from one element at a time: its vector
    loops take NaN and -0 otherwise in a few backward operators."""
    if reduce:
        args, kwargs = split(op, arguments)
        return op(*args, **kwargs)
    count = max(a.numel() for a in arguments if isinstance(a, torch.Tensor))
    parts = []
    for i in range(count):
        one = [
            a[i : i + 1] if isinstance(a, torch.Tensor) and a.dim() else a
            for a in arguments
        ]
        args, kwargs = split(op, one)
        parts.append(op(*args, **kwargs))
    return torch.cat(parts)


def text_of(op, arguments, want):
    """The graph of one node on one line; None: the engine has no row for it
    with these arguments."""
    graph = torch.fx.Graph()
    filled = list(arguments)
    for i, value in enumerate(arguments):
        if isinstance(value, torch.Tensor):
            filled[i] = graph.placeholder(f"arg{i}")
            filled[i].meta["val"] = value
    node = graph.call_function(op, *split(op, filled))
    node.meta["val"] = want
    graph.output((node,))
    got = import_graph(torch.fx.GraphModule({}, graph), "g", {})
    return None if got.hosts else " ".join(got.graph.text().split())


def raw(tensor):
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return bytes(flat.tolist()).hex()


def cases(name, reduce):
    op = overload(name)
    for label, dtype in DTYPES.items():
        for arguments in variants(op._schema, dtype, reduce):
            try:
                want = eager(op, arguments, reduce)
            except (RuntimeError, IndexError, NotImplementedError):
                continue  # not for this dtype
            text = text_of(op, arguments, want)
            if text is None:
                continue
            lines = [f"{name} {label}", text]
            tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
            lines += [f"in {raw(t)}" for t in tensors]
            yield "\n".join([*lines, f"out {raw(want)}"]) + "\n"


def main():
    torch.compile(lambda x: x + 1, backend=backend.torchair)(torch.ones(1))
    assert sys.byteorder == "little" and struct.calcsize("q") == 8
    missing = []
    for kind in ("pointwise", "reduce"):
        found = []
        for name in _native.ops():
            if _native.describe(name)[1] != kind or name in WITHOUT:
                continue
            made = list(cases(name, kind == "reduce"))
            found += made
            if not made:
                missing.append(name)
        (FOLDER / f"{kind}.txt").write_text("\n".join(found))
        print(f"{kind}: {len(found)} cases")
    if missing:
        print("no case for:", *missing)
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
