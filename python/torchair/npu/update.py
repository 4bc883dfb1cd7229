"""NPUGraph.update: host values of captured operators that change.

Some operators take lengths as host lists. A capture would freeze them. With
auto_dispatch_capture such an operator is captured as a task group behind an
ExternalEvent; update() replaces its values and records the event. Attention of
the table is a node of the engine instead, on lengths in memory (lengths.py).

The table of operators is BUILT_IN; register_npu_graph_handler adds to it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import checks
from . import limits, streams
from .lengths import Lengths
from .record import Recorder
from .streams import ExternalEvent, Stream
from .tasks import (
    Places,
    TaskGroup,
    change,
    graph_task_group_begin,
    graph_task_group_end,
    replaced,
)

if TYPE_CHECKING:
    from .graphs import NPUGraph

# ---- handlers ----


@dataclass
class UpdateRecord:
    """One captured operator that NPUGraph.update can change.

    args, kwargs: the last arguments, a Window where a tensor is.
    """

    op: Any
    args: list[Any]
    kwargs: dict[str, Any]
    handle: TaskGroup
    event: ExternalEvent
    handler: NpuGraphOpHandler
    limit: dict[str, int] = field(default_factory=dict)
    lengths: Lengths | None = None  # the engine computes the operator

    @property
    def names(self) -> set[str]:
        """What update may set."""
        if self.lengths is not None:
            return set(self.lengths.tensors)
        schema = {a.name for a in self.op._schema.arguments}
        return schema | set(self.handler.get_update_specs())


class NpuGraphOpHandler:
    """How an operator with changing host values is captured and updated.

    UPDATE_SPECS: name -> position of each argument that may change. Derive,
    set it, and register the class with register_npu_graph_handler.
    """

    UPDATE_SPECS: dict[str, int] = {}
    _of_table = False

    def get_update_specs(self) -> dict[str, int]:
        return self.UPDATE_SPECS

    def should_handle(self, func: Any, args: Any, kwargs: Any) -> bool:
        """False: this call is captured like any other."""
        return True

    def prepare_capture(
        self, func: Any, args: Any, kwargs: Any
    ) -> tuple[Any, Any, Any]:
        """The call to capture in place of this one."""
        return func, args, kwargs

    def postprocess_result(self, result: Any, kwargs: Any) -> Any:
        """What the caller gets."""
        return result

    def record_wrap_kwarg(
        self, key: str, value: Any, tensor_param_names: Sequence[str]
    ) -> Any:
        """What is kept of a keyword argument: a copy of a host value."""
        return value if key in tensor_param_names else copy.deepcopy(value)

    def update_args(
        self, record: UpdateRecord, update_input: dict[str, Any]
    ) -> None:
        """Puts new values into record.args, by position. Keyword arguments of
        the call have been replaced already."""
        for name, index in self.get_update_specs().items():
            if name not in update_input or name in record.kwargs:
                continue
            if index < len(record.args):
                record.args[index] = update_input[name]
            else:
                record.kwargs[name] = update_input[name]


_handlers: dict[str, NpuGraphOpHandler] = {}
Handler = type[NpuGraphOpHandler]


def register_npu_graph_handler(
    op_names: str | Sequence[str],
) -> Callable[[Handler], Handler]:
    """Decorator: the class handles these operators, named as in
    `func.__name__`: "npu_fused_infer_attention_score.default"."""
    names = [op_names] if isinstance(op_names, str) else op_names
    checks.is_many(
        names, "register_npu_graph_handler: op_names", "names of operators"
    )

    def register(handler: Handler) -> Handler:
        if not isinstance(handler, type) or not issubclass(
            handler, NpuGraphOpHandler
        ):
            raise TypeError(
                "register_npu_graph_handler needs a class derived from "
                f"NpuGraphOpHandler, got {handler!r}"
            )
        for name in names:
            _handlers[name] = handler()
        return handler

    return register


# operator: {argument: position}
BUILT_IN = {
    "npu_fused_infer_attention_score.default": {
        "actual_seq_lengths": 5,
        "actual_seq_lengths_kv": 6,
    },
    "npu_fused_infer_attention_score_v2.default": {
        "actual_seq_qlen": 7,
        "actual_seq_kvlen": 8,
    },
    "_npu_paged_attention.default": {"context_lens": 7},
    "_npu_paged_attention_splitfuse.default": {
        "context_lens": 4,
        "seq_len": 6,
    },
    "npu_multi_head_latent_attention.out": {"context_lens": 5},
    "npu_fusion_attention_v3.default": {
        "actual_seq_qlen": 14,
        "actual_seq_kvlen": 15,
    },
    "npu_fusion_attention_grad_v3.default": {
        "actual_seq_qlen": 21,
        "actual_seq_kvlen": 22,
    },
}
for _name in ("", "_v2"):
    _op = f"npu_fused_infer_attention_score{_name}"
    BUILT_IN[f"{_op}.out"] = BUILT_IN[f"{_op}.default"]
for _op, _specs in BUILT_IN.items():
    register_npu_graph_handler(_op)(
        type(
            "_BuiltIn",
            (NpuGraphOpHandler,),
            {"UPDATE_SPECS": _specs, "_of_table": True},
        )
    )


# ---- capture with auto_dispatch_capture ----


def dispatch(graph: NPUGraph) -> Callable[..., Any]:
    """The recorder's intercept: handled operators become records."""

    def intercept(func: Any, args: Any, kwargs: Any) -> Any:
        handler = _handlers.get(getattr(func, "__name__", ""))
        recorder = graph._recorder
        if handler is None or recorder is None or recorder.group is not None:
            return NotImplemented
        if not handler.should_handle(func, args, kwargs):
            return NotImplemented
        return _capture(recorder, handler, func, args, kwargs)

    return intercept


def _capture(
    recorder: Recorder,
    handler: NpuGraphOpHandler,
    func: Any,
    args: Any,
    kwargs: Any,
) -> Any:
    stream = streams.current_stream()
    event = ExternalEvent()
    event.wait(stream)
    event.reset(stream)
    with recorder:
        func, args, kwargs = handler.prepare_capture(func, args, kwargs)
    args, kwargs = _host_copies(handler, func, args, kwargs)
    found, handle = _in_group(recorder, stream, func, args, kwargs)
    (entry,) = handle.entries
    entry.opaque = entry.lengths is None  # it is going to change
    recorder.records.append(
        UpdateRecord(
            func,
            list(entry.args),
            dict(entry.kwargs),
            handle,
            event,
            handler,
            limits.get_stream_limit(stream),
            entry.lengths if handler._of_table else None,
        )
    )
    with recorder:
        return handler.postprocess_result(found, kwargs)


def _in_group(
    recorder: Recorder, stream: Stream, func: Any, args: Any, kwargs: Any
) -> tuple[Any, TaskGroup]:
    graph_task_group_begin(stream)
    try:
        found = recorder.issue(func, args, kwargs, stream.stream_id)
    finally:
        handle = graph_task_group_end(stream)
    return found, handle


def _host_copies(
    handler: NpuGraphOpHandler, func: Any, args: Any, kwargs: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Values that may change are the call's own from here on, tensors too:
    they are lengths in host memory."""
    specs = handler.get_update_specs()
    tensors = [
        a.name
        for a in func._schema.arguments
        if "Tensor" in str(a.type) and a.name not in specs
    ]
    own = [
        copy.deepcopy(a) if i in specs.values() else a
        for i, a in enumerate(args)
    ]
    kept = {
        k: handler.record_wrap_kwarg(k, v, tensors) for k, v in kwargs.items()
    }
    return own, kept


# ---- NPUGraph.update ----

_stream: list[Stream] = []


def update_stream() -> Stream:
    """One for all graphs: updates are ordered among each other."""
    if not _stream:
        _stream.append(Stream(priority=-1))
    return _stream[0]


def apply(records: list[UpdateRecord], inputs: list[dict[str, Any]]) -> None:
    """RuntimeError where the number of dicts is neither 1 nor that of the
    records. A name that no record knows is reported as a UserWarning."""
    if not isinstance(inputs, (list, tuple)) or not all(
        isinstance(i, dict) for i in inputs
    ):
        raise TypeError("cpu_update_input must be a list of dicts")
    broadcast = len(inputs) == 1 and len(records) != 1
    if not broadcast and len(inputs) != len(records):
        raise RuntimeError(
            f"the graph has {len(records)} operators to update, "
            f"cpu_update_input has {len(inputs)} entries; give one for each, "
            "or one for all"
        )
    _report_unknown(records, inputs, broadcast)
    for i, record in enumerate(records):
        _apply_one(record, inputs[0 if broadcast else i])


def _report_unknown(
    records: list[UpdateRecord], inputs: Sequence[dict[str, Any]], all_: bool
) -> None:
    sets = [r.names for r in records]
    groups = [set().union(*sets)] if all_ else sets
    for names, given in zip(groups, inputs, strict=True):
        unknown = sorted(set(given) - names)
        if unknown:
            wanted = sorted(
                {n for r in records for n in r.handler.get_update_specs()}
            )
            warnings.warn(
                f"NPUGraph.update: no captured operator has {unknown}; "
                f"these can be updated: {wanted}",
                UserWarning,
                stacklevel=4,
            )


def _apply_one(record: UpdateRecord, given: dict[str, Any]) -> None:
    stream = update_stream()
    if record.lengths is not None:
        record.lengths.update(given)
        record.event.record(stream)
        return
    (entry,) = record.handle.entries
    before = list(record.args), dict(record.kwargs)
    try:
        for name in record.kwargs:
            if name in given:
                record.kwargs[name] = copy.deepcopy(given[name])
        record.handler.update_args(record, copy.deepcopy(given))
        new = replaced(entry, record.args, record.kwargs, Places())
    except BaseException:
        record.args, record.kwargs = before
        raise
    change(record.handle.changes, entry, new)
    record.event.record(stream)
