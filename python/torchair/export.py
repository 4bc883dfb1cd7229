"""dynamo_export: a model as files that run without Python.

    export_file/
      export.air      the graph as text, and the weights (tools/air_file.h)
      dynamo.pbtxt    the graph in terms of the Ascend IR

`air run export_file/export.air --input x=x.npy` computes it. Weights of more
than 1,848 MiB together with the graph lie in files of their own beside it.
Several processes write export0.air, export1.air ... and what belongs to them
into rank_0, rank_1 ...
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import checks, comm, cuda, files
from .config import CompilerConfig, copy
from .logs import logger
from .origin import MODULES_MARK

_MOST = (2048 - 200) << 20  # bytes of graph and weights in one file
_PBTXT = 1  # Graph.ge_text


class ExportSuccess(Exception):
    """The files are written; there is nothing to compute."""


def dynamo_export(
    *args: Any,
    model: torch.nn.Module,
    export_path: str = "export_file",
    export_name: str = "export",
    dynamic: bool = False,
    config: CompilerConfig | None = None,
    **kwargs: Any,
) -> None:
    """Writes the model's graph for these arguments, with its weights, to
    `<export_path>/<export_name>.air`; see docs/export.md.

    args, kwargs: of the model, for one trace. dynamic: sizes of the inputs
    stay symbols. Of export_name the last part counts.

    ValueError: the configuration captures or freezes parameters. RuntimeError:
    an operator is left that only PyTorch computes, or a path is a symbolic
    link. Dynamo's exceptions: the model is not one graph.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            "dynamo_export: model must be a torch.nn.Module, "
            f"got {type(model).__name__}"
        )
    found = _configuration(config, export_path, export_name, model)
    if os.path.islink(export_path):
        raise RuntimeError(
            f"dynamo_export: {export_path} is a symbolic link; give the "
            "folder itself"
        )
    from . import backend

    torch._dynamo.reset()
    compiled = torch.compile(
        model,
        backend=backend.get_npu_backend(compiler_config=found),
        fullgraph=True,
        dynamic=dynamic,
    )
    try:
        with torch.no_grad():
            compiled(*args, **kwargs)
    except ExportSuccess:
        return
    finally:
        torch._dynamo.reset()
    raise RuntimeError(
        "dynamo_export: the model computes nothing, there is no graph to write"
    )


def _configuration(
    given: CompilerConfig | None, path: str, name: str, model: torch.nn.Module
) -> CompilerConfig:
    config = copy(given)
    checks.is_a(str, name, "dynamo_export: export_name", "a str")
    if not os.path.basename(name):
        raise ValueError(
            f"dynamo_export: export_name is {name!r}; give the name of a file"
        )
    if config.captures:
        raise ValueError(
            "dynamo_export: mode is reduce-overhead; graphs are exported in "
            "mode max-autotune"
        )
    if config.experimental_config.frozen_parameter:
        raise ValueError(
            "dynamo_export: frozen_parameter is on; addresses of parameters "
            "mean nothing in a file, leave it out"
        )
    export = config.export
    export.export_mode = True
    export.export_path_dir = path
    export.export_name = os.path.basename(name)
    named = [*model.named_parameters(), *model.named_buffers()]
    export.weight_name = {id(t): n for n, t in named}
    config.experimental_config.enable_ref_data = True
    return config


# ---- the graph that is written instead of run ----


def runner(
    gm: torch.fx.GraphModule, got: Any, config: CompilerConfig
) -> Callable[..., Any]:
    """Called like a program, with an Imported graph; writes it and raises
    ExportSuccess. RuntimeError: it has operators of PyTorch."""
    if got.place >= cuda.PLACE:
        raise RuntimeError(
            "dynamo_export: the model is on a GPU; export it on the CPU, "
            "where its weights are written from"
        )
    if got.host_nodes:
        told = "; ".join(
            f"{h.op} ({h.location or 'no location'}): {h.reason}"
            for h in got.host_nodes
        )
        raise RuntimeError(
            "dynamo_export: the graph has operators that only PyTorch "
            f"computes: {told}. Give them formulas (torchair.ops.define) or "
            "converters, or leave them out"
        )

    def write(args: list[Any]) -> Any:
        place = _Place(config)
        weights, inputs = _sorted(got, args, config)
        place.write(got.graph, weights)
        groups = _groups(gm)
        if config.export.experimental.auto_atc_config_generated and groups:
            place.write_relations(groups)
        logger.info("dynamo_export: %s, inputs %s", place.air, inputs)
        args.clear()
        raise ExportSuccess

    write._boxed_call = True  # type: ignore[attr-defined]
    return write


Weight = tuple[str, str, torch.Tensor]  # of the graph, of the model, value


def _sorted(
    got: Any, args: Sequence[Any], config: CompilerConfig
) -> tuple[list[Weight], list[str]]:
    """(weights, names of the other inputs)"""
    known = config.export.weight_name.raw or {}
    places = {
        _place_of(t): n for t in args if (n := known.get(id(t))) is not None
    }
    taken = [a for a, kind in zip(args, got.args, strict=True) if kind]
    weights, inputs = [], []
    for name, value in zip(got.inputs, taken, strict=False):
        found = None
        if isinstance(value, torch.Tensor):
            found = known.get(id(value)) or places.get(_place_of(value))
        if found is None:
            inputs.append(name)
        else:
            weights.append((name, found, value))
    constants = zip(got.inputs[len(taken) :], got.consts, strict=True)
    return weights + [(name, name, c) for name, c in constants], inputs


def _place_of(value: Any) -> tuple[Any, ...]:
    """AOTAutograd may hand a parameter on as another object."""
    return value.data_ptr(), value.shape, value.stride(), value.dtype


class _Place:
    """Where the files of this process go."""

    def __init__(self, config: CompilerConfig) -> None:
        self.world, self.rank = files.ranks()
        self.root = config.export.export_path_dir.raw
        self.name = config.export.export_name.raw or "export"
        self.several = self.world > 1
        self.sub = f"rank_{self.rank}" if self.several else ""
        self.own = os.path.join(self.root, self.sub)
        self.air = os.path.join(self.root, self._stem(self.rank) + ".air")

    def _stem(self, rank: int) -> str:
        return f"{self.name}{rank}" if self.several else self.name

    def write(self, graph: Any, weights: Sequence[Weight]) -> None:
        """RuntimeError where a file is a symbolic link; OSError."""
        text = graph.text().encode()
        apart = len(text) + sum(map(_size, weights)) > _MOST
        files.write(
            os.path.join(self.own, "dynamo.pbtxt"),
            _with_modules(graph.ge_text(_PBTXT)),
        )
        lines, inside, at = [], [], 0
        for name, of_model, value in weights:
            size = _size((name, of_model, value))
            if apart:
                path = os.path.join(self.sub, of_model.replace(".", "_"))
                with files.opened(os.path.join(self.root, path)) as out:
                    out.write(_bytes(value))
                lines.append(f"weight {name} 0 {size} {path}\n")
            else:
                lines.append(f"weight {name} {at} {size}\n")
                inside.append(value)
                at += size
        with files.opened(self.air) as out:
            out.write(b"air 1\n" + "".join(lines).encode())
            out.write(f"graph {len(text)}\n".encode() + text)
            for value in inside:
                out.write(_bytes(value))

    def write_relations(self, groups: dict[str, list[int]]) -> None:
        """What the offline compiler of a cluster reads, by rank 0."""
        if self.rank:
            return
        names = [self._stem(r) + ".air" for r in range(self.world)]
        self._json("model_relation_config.json", _relation(names, groups))
        self._json("numa_config.json", _numa(self.world))

    def _json(self, name: str, content: Any) -> None:
        path = os.path.join(self.root, name)
        files.write(path, json.dumps(content, indent=4) + "\n")


def _size(weight: Weight) -> int:
    value = weight[2]
    return value.numel() * value.element_size()


def _bytes(value: torch.Tensor) -> memoryview:
    """Dense and row-major, whatever it is part of."""
    flat = value.detach().cpu().contiguous().reshape(-1)
    found: Any = flat.view(torch.uint8).numpy()
    return memoryview(found)


_LOCATION = re.compile(
    r'( *attr \{\n *key: ")_location("\n *value \{ s: ")([^"\n]*)'
    + MODULES_MARK
    + r'([^"\n]*)(" \}\n *\}\n)'
)


def _with_modules(text: str) -> str:
    """The modules of a node as an attribute of their own."""
    return _LOCATION.sub(r"\1_location\2\3\5\1nn_module_stack\2\4\5", text)


def _groups(gm: torch.fx.GraphModule) -> dict[str, list[int]]:
    """Name -> ranks of the process groups that the graph uses."""
    found = {}
    for name in _group_names(gm):
        group = comm.resolve(name)
        found[name] = list(torch.distributed.get_process_group_ranks(group))
    return found


def _group_names(gm: torch.fx.GraphModule) -> Iterator[str]:
    for node in gm.graph.nodes:
        target: Any = node.target
        if getattr(target, "namespace", "") != comm.NAMESPACE:
            continue
        names = [a.name for a in target._schema.arguments]
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        if "group_name" in given:
            yield str(given["group_name"])


def _relation(names: list[str], groups: dict[str, list[int]]) -> Any:
    ranks = range(len(names))
    return {
        "deploy_config": [
            {"submodel_name": n, "deploy_device_id_list": f"0:0:{r}"}
            for r, n in zip(ranks, names, strict=True)
        ],
        "model_name_to_instance_id": [
            {"submodel_name": n, "model_instance_id": r}
            for r, n in zip(ranks, names, strict=True)
        ],
        "comm_group": [
            {"group_name": n, "group_rank_list": str(r)}
            for n, r in groups.items()
        ],
        "rank_table": [{"rank_id": r, "model_instance_id": r} for r in ranks],
    }


def _numa(world: int) -> Any:
    """Keys as that compiler reads them, the last one misspelt too."""
    return {
        "cluster": [
            {
                "cluster_nodes": [
                    {
                        "node_id": 0,
                        "node_type": "ATLAS800",
                        "ipaddr": "127.0.0.1",
                        "port": 29500,
                        "item_list": [{"item_id": r} for r in range(world)],
                    }
                ],
                "nodes_toplogy": {},
            }
        ],
        "item_def": [{"item_type": "Ascend910"}],
        "node_def": [{"item": [{"item_type": "Ascend910"}]}],
    }
