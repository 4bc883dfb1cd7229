"""Graphs on a GPU: where their tensors are, and what the engine needs there.

A graph whose tensors are on one GPU runs there, on torch's current stream and
with memory of torch's allocator. What the driver has no kernel for is a HOST
node: torch's own kernel on the same memory and the same stream. Numbers on the
CPU, tensors without dimensions, are moved at each call, as torch does.

Environment: TORCHAIR_CUDA_PATH, folders with NVIDIA's libraries (":" between)
that are looked in first; TORCHAIR_CACHE_DIR, where compiled kernels are kept
(default ~/.cache/torchair; "" keeps none); TORCHAIR_CUDA_OVERLAP=0, kernels of
a graph begin when the one before is over, not while it ends;
TORCHAIR_CUDA_PERSISTENT, which steps of few rows are one kernel
(docs/cuda-persistent.md): not set, where that is faster, 0 none, 1 all, "check"
all, and each waits for the one before; TORCHAIR_CUDA_PATIENCE, milliseconds
after which such a kernel gives up waiting (default 2000, 0: never).
"""

from __future__ import annotations

import glob
import operator
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch

from . import compat, files, schema
from .sizes import Unexpressible

# What a message of a missing kernel that names nothing new leaves out.
COMPOSITES = "composite"  # the class of rows, see air_op_describe
# Operators that a pass of the engine makes of others, and the pass.
PASSES = {"scaled_dot_product_attention": "attention"}
NO_KERNEL = "the device has no kernel for it"
# py.h: PLACE_HOST, PLACE_NPU, PLACE_CUDA + index
HOST, NPU, PLACE = 0, 1, 2
HOST_DEVICE = torch.device("cpu")
# air_persistent (include/air.h) and checks, by TORCHAIR_CUDA_PERSISTENT.
_PAYS, _NONE, _ALL = range(3)
_PERSISTENT = {
    "": (_PAYS, False),
    "0": (_NONE, False),
    "1": (_ALL, False),
    "check": (_ALL, True),
}


def place(value: torch.Tensor) -> int:
    """Where a tensor is, as a number of the extension."""
    if value.device.type == "cuda":
        return PLACE + (value.device.index or 0)
    return HOST if value.device.type == "cpu" else NPU


def device_of(number: int) -> torch.device | None:
    """The GPU of a place; None: the host."""
    return torch.device("cuda", number - PLACE) if number >= PLACE else None


def is_at(value: torch.Tensor, number: int) -> bool:
    """May a program of this place use the tensor?"""
    if number >= PLACE:
        return place(value) == number
    return value.device.type in compat.HOST_DEVICES


def is_loose_scalar(value: torch.Tensor, number: int) -> bool:
    """A number on the CPU among tensors of a GPU."""
    return number >= PLACE and value.dim() == 0 and value.device.type == "cpu"


# Operators whose indices may be on the CPU.
_INDEXING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten._unsafe_index.Tensor,
    torch.ops.aten._unsafe_index_put.default,
)


def movable(graph: torch.fx.Graph, number: int) -> set[torch.fx.Node]:
    """What is a tensor of the CPU in torch's graph, and as good on the GPU: its
    readers move it there, have it as an index, or are such themselves. Those
    compute from nothing that the caller passes. zeros(n).to(x.device)"""
    if number < PLACE:
        return set()
    made: set[torch.fx.Node] = set()
    for node in graph.nodes:
        if _is_made(node, made):
            made.add(node)
    found: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node not in made and node.op != "placeholder":
            continue
        if node.users and all(_moves(u, node, found) for u in node.users):
            found.add(node)
    return found


def _is_made(node: torch.fx.Node, made: set[torch.fx.Node]) -> bool:
    """A constant of the graph, or computed on the CPU from such only."""
    if node.op == "get_attr":
        return True
    if not _is_of_host(node) or not _is_plain(node):
        return False
    others = (x.meta.get("val") for x in node.all_input_nodes if x not in made)
    return not any(isinstance(v, torch.Tensor) for v in others)


def _is_of_host(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _is_plain(node: torch.fx.Node) -> bool:
    """Writes nothing, and draws nothing from the generator of the CPU."""
    target = node.target
    if schema.namespace_of(target) not in ("aten", "prims"):
        return False
    return not schema.mutates(node) and not schema.is_random(target)


def _moves(
    user: torch.fx.Node, node: torch.fx.Node, found: set[torch.fx.Node]
) -> bool:
    """found: of the nodes behind `node`."""
    if user in found:
        return True
    if user.target is torch.ops.aten._to_copy.default:
        return getattr(user.kwargs.get("device"), "type", "") == "cuda"
    if _is_of_host(user):
        return False
    if user.target is torch.ops.aten.copy.default:
        return node is not user.args[0]
    others = (user.args[0], *user.args[2:]) if user.args else ()
    return user.target in _INDEXING and node not in others


def is_loose_constant(
    node: torch.fx.Node,
    value: torch.Tensor,
    number: int,
    loose: set[torch.fx.Node],
) -> bool:
    """Given to the graph, or of it, on the CPU, and as good on the GPU: a
    number, or one of `loose`, which are `movable`: the [0, 2] of x[[0, 2]]."""
    return is_loose_scalar(value, number) or (
        number >= PLACE and value.device.type == "cpu" and node in loose
    )


def is_loose_result(
    node: torch.fx.Node,
    value: torch.Tensor,
    number: int,
    loose: set[torch.fx.Node],
) -> bool:
    """Computed on the CPU in torch's graph, and as good on the GPU: numbers
    made of numbers, and what is `movable`. Not what is written to an input, nor
    what the generator of the CPU gives."""
    if node in loose:
        return True
    return is_loose_scalar(value, number) and _is_plain(node)


def needs_host(graph: torch.fx.Graph) -> bool:
    """Has a graph of a GPU tensors of the CPU that are not as good there? What
    operators with several results give (seeds of attention) is not asked."""
    loose = movable(graph, PLACE)
    (output,) = graph.find_nodes(op="output")
    for node in filter(_is_of_host, graph.nodes):
        value = node.meta["val"]
        if node.op == "placeholder" and node.users:
            good = is_loose_constant(node, value, PLACE, loose)
        elif node.op == "call_function" and node.target is not operator.getitem:
            good = is_loose_result(node, value, PLACE, loose)
            good = good and output not in node.users
        else:
            continue
        if not good:
            return True
    return False


def device_of_call(
    node: torch.fx.Node, number: int, loose: set[torch.fx.Node], on_cpu: bool
) -> torch.device | None:
    """What a HOST node is told for a device that the graph names. None: that.
    on_cpu: it runs there whatever the graph says."""
    if node in loose:
        return device_of(number)
    return HOST_DEVICE if on_cpu else None


def refuse_writes(node: torch.fx.Node, number: int) -> None:
    """Of a HOST node: its operand may be a copy of what the caller has."""
    if number >= PLACE and schema.mutates(node):
        raise Unexpressible(f"{node.target} writes an operand, on a GPU")


def place_of_host(number: int, tensors: Iterable[torch.Tensor]) -> int:
    """Where a HOST node that is not the same on the CPU sees its operands."""
    if number >= PLACE:
        return number
    return max((place(v) for v in tensors), default=HOST)


def _tensors(nodes: Iterable[torch.fx.Node]) -> Iterable[torch.Tensor]:
    for node in nodes:
        value = node.meta.get("val")
        for v in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(v, torch.Tensor):
                yield v


def place_of(gm: torch.fx.GraphModule) -> int:
    """The GPU that the graph's inputs are on, else the first that it makes a
    tensor on, else the host. Unexpressible where inputs are on several. A
    process that has used no GPU has no such tensors."""
    if not torch.cuda.is_initialized():
        return HOST
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    found = {v.device for v in _tensors(inputs) if v.device.type == "cuda"}
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise Unexpressible(f"tensors are on several GPUs: {names}")
    if not found:
        made = (v.device for v in _tensors(gm.graph.nodes))
        found = {next((d for d in made if d.type == "cuda"), HOST_DEVICE)}
    return _started(found.pop())


def _started(device: torch.device) -> int:
    if device.type != "cuda":
        return HOST
    start_once()
    return PLACE + (device.index or 0)


def folders() -> str:
    """Where NVIDIA's libraries may be, with ":" between."""
    torch_root = os.path.dirname(torch.__file__)
    site = os.path.dirname(torch_root)
    found = [f for f in [os.environ.get("TORCHAIR_CUDA_PATH", "")] if f]
    found += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
    found += [os.path.join(torch_root, "lib")]
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    found += [os.path.join(home, "lib64")]
    return ":".join(f for f in found if ":" in f or os.path.isdir(f))


def cache_folder() -> str | None:
    return files.cache_folder("cuda", "compiled kernels are")


def _persistent() -> tuple[int, bool]:
    """air_persistent of the value, and whether all waits are full ones.
    ValueError where it is another word."""
    text = os.environ.get("TORCHAIR_CUDA_PERSISTENT", "")
    if text not in _PERSISTENT:
        raise ValueError(
            f"TORCHAIR_CUDA_PERSISTENT is {text!r}; give 0 (no step), 1 (all "
            "steps), check (all, one by one), or nothing (where it pays)"
        )
    return _PERSISTENT[text]


def _patience() -> int:
    """ValueError where the variable is no number of milliseconds."""
    text = os.environ.get("TORCHAIR_CUDA_PATIENCE") or "2000"
    if not text.isdecimal():
        raise ValueError(
            f"TORCHAIR_CUDA_PATIENCE is {text!r}; give milliseconds, or 0 to "
            "wait for ever"
        )
    return int(text)


def start_once() -> None:
    """Tells the extension where everything is; no GPU is touched."""
    from . import _native

    _native.cuda_start(
        compat.torch_cpu_library(),
        compat.torch_cuda_library(),
        folders(),
        cache_folder(),
        os.environ.get("TORCHAIR_CUDA_OVERLAP") != "0",
        *_persistent(),
        _patience(),
    )


def reason(index: int = 0) -> str:
    """Why the engine cannot use a GPU; "" where it can."""
    from . import _native, engine

    engine.start_once()
    start_once()
    try:
        _native.cuda_check(index)
    except _native.AirError as why:
        return str(why)
    return ""


# ---- made ahead ----


def hints(sizes: Iterable[Any]) -> tuple[int, ...] | None:
    """The sizes that the graph was traced with; None where one is not known."""
    found = []
    for size in sizes:
        hint = size if isinstance(size, int) else size.node.hint
        if hint is None:
            return None
        found.append(int(hint))
    return tuple(found)


def _shape(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        dims, strides = hints(value.shape), hints(value.stride())
        return None if dims is None or strides is None else (dims, strides)
    if isinstance(value, torch.SymInt):
        hint = hints([value])
        return None if hint is None else hint[0]
    return 0


def shapes(gm: torch.fx.GraphModule) -> list[Any] | None:
    """What Program.prepare takes: the sizes that the graph was traced with;
    None where one is not known."""
    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
    found = [_shape(n.meta.get("val")) for n in nodes]
    return None if any(s is None for s in found) else found


_MESSAGE = re.compile(
    r"has no kernel \S+ for these arguments of (\S+)(?: \(node (\w+),)?"
)


def without_kernel(
    why: str, known: frozenset[str], gm: torch.fx.GraphModule | None = None
) -> frozenset[str]:
    """`known` and what the message names: the pass that made it of others, a
    node, else an operator, else the one that the node of gm is or is a result
    of (a gradient of convolutions is written in convolutions), else all that is
    written in others; `known` where it names no kernel."""
    found = _MESSAGE.search(why)
    if found is None:
        return known
    op, node = found.groups()
    row, made = _row_of(node, gm), PASSES.get(op)
    if made and (row is None or made in row):  # the model wrote it so
        made = None
    for name in (made, node, op, row, COMPOSITES):
        if name and name not in known:
            return known | {name}
    return known


def _row_of(name: str, gm: torch.fx.GraphModule | None) -> str | None:
    nodes = gm.graph.nodes if gm is not None else ()
    node: Any = next((n for n in nodes if n.name == name), None)
    while node is not None and node.target is operator.getitem:
        node = node.args[0]
    row = None if node is None else schema.find_row(node.target)
    return None if row is None else row.name


def prepare(program: Any, gm: torch.fx.GraphModule, known: Any) -> Any:
    """Makes what a run of the program needs; gives `known`, with what the
    driver has no kernel for, which may be nothing. AirUnsupportedError where
    the driver refuses for another reason."""
    from ._native import AirUnsupportedError

    sizes = shapes(gm)
    try:
        if sizes is not None:
            program.prepare(sizes)
    except AirUnsupportedError as why:
        more = without_kernel(str(why), known, gm)
        if more == known:
            raise
        return more
    return known


def until_made(
    make: Callable[[frozenset[str]], Any],
) -> Callable[..., Any]:
    """What make(without) gives as soon as that is not a larger `without`."""
    made: Any = frozenset()
    while isinstance(made, frozenset):
        made = make(made)
    program: Callable[..., Any] = made
    return program
