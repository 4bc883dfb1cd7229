"""What is written for people to read: graphs under TORCH_COMPILE_DEBUG=1, the
FX graph as Python, and tensors of a run.

    torch_compile_debug/run_.../torchair/          npugraph_ex[-rank_N]/
        debug.log
        model__0/dynamo_out_graph.txt
        model__0/forward/000_aot_forward_graph.txt
        model__0/forward/001_aot_forward_graph_after_pattern_fusion.txt
        model__0/forward/002_aot_forward_original_ge_graph.pbtxt
        model__0/forward/003_aot_forward_graph_after_fold.pbtxt
        model__0/forward/004_aot_forward_optimized_ge_graph.pbtxt
        model__0/forward/engine/05-fold.txt        the same, to be run by air
        model__0/forward/output_code.py
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from . import compat, files, lanes
from .config import CompilerConfig
from .logs import engine_log, file_handler, logger
from .sizes import is_symbolic

_models: dict[str, Iterator[int]] = {}
_logging: set[str] = set()


def debugging() -> bool:
    return os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1"


def model_folder(config: CompilerConfig, gm: GraphModule) -> str | None:
    """The folder of the next model, with Dynamo's graph in it; None without
    TORCH_COMPILE_DEBUG=1."""
    if not debugging():
        return None
    root = root_folder(config)
    count = _models.setdefault(root, itertools.count())
    folder = os.path.join(root, f"model__{next(count)}")
    os.makedirs(folder, exist_ok=True)
    _log_to(os.path.join(root, "debug.log"))
    write(os.path.join(folder, "dynamo_out_graph.txt"), f"{gm.graph}\n")
    return folder


def root_folder(config: CompilerConfig) -> str:
    """Of all models that are compiled this way."""
    name = "torchair"
    if config.mode.raw == "npugraph_ex":
        rank = os.environ.get("RANK")
        name = "npugraph_ex" + (f"-rank_{rank}" if rank else "")
    return os.path.join(compat.debug_folder(), name)


def _log_to(path: str) -> None:
    if path in _logging:
        return
    _logging.add(path)
    handler = file_handler(path)
    logger.addHandler(handler)
    engine_log.addHandler(handler)
    logger.setLevel(logging.DEBUG)


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def log_compiled(
    record: Any, program: Any, gm: GraphModule, config: CompilerConfig
) -> None:
    """A graph was compiled."""
    _log_times(record, program)
    _log_kind(record, gm, config)


def _log_times(record: Any, program: Any) -> None:
    logger.event(
        "graph %s: %d nodes (%d by torch) imported in %.0f us, compiled in "
        "%.0f us",
        record.name,
        record.nodes,
        len(record.hosts),
        record.import_s * 1e6,
        record.compile_s * 1e6,
    )
    engine_log.event(
        "graph %s compiled in %.0f us", record.name, record.compile_s * 1e6
    )
    for host in record.hosts:
        engine_log.info(
            "graph %s: HOST %s (%s): %s",
            record.name,
            host.op,
            host.location,
            host.reason,
        )
    if engine_log.isEnabledFor(logging.DEBUG):
        engine_log.debug("after the passes:\n%s", program.text(0))


def _log_kind(record: Any, gm: GraphModule, config: CompilerConfig) -> None:
    """Do sizes vary, and which inputs are updated in place?"""
    if not logger.isEnabledFor(logging.INFO):
        return
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    values = [n.meta.get("val") for n in inputs]
    sizes = [s for v in values for s in getattr(v, "shape", ())]
    # A number that varies leaves a graph static for the engine.
    said = [
        "Dynamic" if any(map(is_symbolic, sizes + values)) else "Static",
        "dynamic" if any(map(is_symbolic, sizes)) else "static",
    ]
    for log in (logger, engine_log):
        log.info(
            "%s FX graph compiled to %s Ascend GE graph, graph id: %d",
            *said,
            record.number,
        )
    if config.experimental_config.enable_ref_data:
        for i, node in enumerate(inputs):
            if any(u.target is _COPY and u.args[0] is node for u in node.users):
                logger.info("Replace RefData_%d with %s:Data", i, node.name)


_COPY = torch.ops.aten.copy_.default
_REWRITES = re.compile(r"^# .* (\d+) rewrites,")


class Folder:
    """Where the graphs of one phase go, numbered."""

    def __init__(self, model: str, kind: str) -> None:
        self.phase = kind if kind in ("backward", "joint") else "forward"
        self.path = os.path.join(model, self.phase)
        self.count = itertools.count()
        os.makedirs(self.path, exist_ok=True)

    def graph(self, gm: GraphModule, what: str) -> None:
        name = f"aot_{self.phase}_graph" + (f"_{what}" if what else "")
        write(
            os.path.join(self.path, f"{next(self.count):03}_{name}.txt"),
            f"{gm.graph}\n",
        )

    def ge(self, what: str, text: str) -> None:
        """The graph that is built, at some moment."""
        name = f"{next(self.count):03}_aot_{self.phase}_{what}"
        write(os.path.join(self.path, name), text)

    def engine_passes(self) -> Iterator[tuple[str, str]]:
        """(name, graph as text) of each that changed something, in order."""
        for file in sorted(os.listdir(self.engine())):
            with open(os.path.join(self.engine(), file)) as opened:
                head, text = opened.readline(), opened.read()
            changed = _REWRITES.search(head)
            if changed is not None and int(changed[1]):
                yield file.partition("-")[2].removesuffix(".txt"), text

    def engine(self) -> str:
        """A folder for the dumps of the engine's passes."""
        path = os.path.join(self.path, "engine")
        os.makedirs(path, exist_ok=True)
        return path


@contextlib.contextmanager
def engine_folder(folder: Folder | None, noop: bool) -> Iterator[str | None]:
    """Where the engine's passes write while a program is made: the bundle's
    folder, or one for what the log says of those that remove what changes
    nothing, if they do (noop); None: nowhere."""
    if not noop or not logger.isEnabledFor(logging.DEBUG):
        yield None if folder is None else folder.engine()
        return
    with tempfile.TemporaryDirectory() as mine:
        path = mine if folder is None else folder.engine()
        yield path
        for file in os.listdir(path):
            if file.endswith("-tidy.txt"):  # the last to remove any
                with open(os.path.join(path, file)) as opened:
                    logger.debug("After removing noop ops:\n%s", opened.read())


# ---- the graph as Python ----


def python_code(gm: GraphModule, config: CompilerConfig) -> str:
    """The graph after its passes as a function, streams as `with` blocks.

    For reading: what runs is the engine's program made of the same nodes.
    """
    mode = config.debug.aclgraph.capture_error_mode.raw
    head = ["import torch", ""]
    if config.captures:
        head += [
            "# captured inside torch.npu.graph(graph, pool=pool, "
            f'stream=stream, capture_error_mode="{mode}")',
        ]
    inputs = [n.name for n in gm.graph.nodes if n.op == "placeholder"]
    lines = [f"def forward({', '.join(inputs)}):"]
    lane = lanes.MAIN
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op != "call_function":
            lane = lanes.MAIN
        elif lanes.lane_of(node) != lane:
            lane = lanes.lane_of(node)
            if lane != lanes.MAIN:
                lines.append(f"    with torch.npu.stream(streams[{lane!r}]):")
        indent = "    " if lane == lanes.MAIN else "        "
        lines.extend(indent + text for text in _statements(node))
    return "\n".join(head + lines) + "\n"


def _statements(node: Node) -> Iterator[str]:
    for before in node.meta.get("after", ()):
        yield f"torch.npu.current_stream().wait_event(events[{str(before)!r}])"
    if node.op == "output":
        yield f"return {node.args[0]}"
    elif node.op == "get_attr":
        yield f"{node.name} = self.{node.target}"
    else:
        args = [str(a) for a in node.args]
        args += [f"{k}={v}" for k, v in node.kwargs.items()]
        yield f"{node.name} = {_target(node.target)}({', '.join(args)})"


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    return getattr(target, "__name__", str(target))


# ---- tensors ----


class _Saving(Interpreter):
    """Runs a graph; save(node, args, result) sees each node's."""

    def __init__(
        self, gm: GraphModule, save: Callable[[Node, Any, Any], None]
    ) -> None:
        super().__init__(gm)
        self.save = save

    def run_node(self, n: Node) -> Any:
        if n.op != "call_function":
            return super().run_node(n)
        args, _ = self.fetch_args_kwargs_from_env(n)
        kept = torch.utils._pytree.tree_map(_copied, args)
        result = super().run_node(n)
        self.save(n, kept, result)
        return result


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def save_tensors(gm: GraphModule, config: CompilerConfig, index: int) -> Any:
    """A callable that runs gm and saves every tensor a node computes as
    <node>_device_<d>_<index>.pt; the next run writes the same files."""
    folder = files.rank_folder(config.dump_config.dump_path.raw)

    def save(node: Node, _args: Any, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            device = max(result.get_device(), 0)
            name = f"{node.name}_device_{device}_{index}.pt"
            torch.save(result.detach().clone(), os.path.join(folder, name))

    return _Saving(gm, save).run


def save_arrays(gm: GraphModule, root: str, chosen: Any, index: int) -> Any:
    """A callable that runs gm and saves inputs and outputs of each node as
    graph_<index>/<step>/<node>-<target>.INPUT.<i>.<time>.npy and
    .OUTPUT.<i>.<time>.npy; steps count the calls, elements of a list have a
    number of their own. chosen(node): the node is saved; None: all are."""
    folder = os.path.join(files.rank_folder(root), f"graph_{index}")
    steps = itertools.count()

    def run(*args: Any) -> Any:
        path = os.path.join(folder, str(next(steps)))
        files.make_folder(path)

        def save(node: Node, args: Any, result: Any) -> None:
            if chosen is None or chosen(node):
                stem = os.path.join(path, f"{node.name}-{node.target}")
                save_all(args, f"{stem}.INPUT")
                save_all(
                    result if isinstance(result, (tuple, list)) else (result,),
                    f"{stem}.OUTPUT",
                )

        return _Saving(gm, save).run(*args)

    return run


def save_all(values: Any, stem: str) -> None:
    """<stem>.<i>.<time>.npy of each; what NumPy cannot hold is left out."""
    for i, value in enumerate(values):
        if isinstance(value, (tuple, list)):
            save_all(value, f"{stem}.{i}")
        else:
            save_array(value, f"{stem}.{i}.{files.now()}.npy")


def save_array(value: Any, path: str) -> None:
    import numpy

    if isinstance(value, torch.Tensor):
        numpy.save(path, as_array(value))
    elif isinstance(value, (bool, int, float)):
        numpy.save(path, numpy.array(value))


def as_array(value: torch.Tensor) -> Any:
    """bfloat16, which NumPy lacks, becomes float32."""
    value = value.detach().cpu()
    if value.dtype == torch.bfloat16:
        value = value.float()
    return value.resolve_conj().resolve_neg().numpy()
