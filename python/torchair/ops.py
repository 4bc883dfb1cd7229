"""torchair.ops: events inside compiled functions, attention, and operators
of the user (`define`, see define.py).

Events order work, they never change a result: in a compiled function these
calls become nodes of the graph, which the passes of lanes.py turn into
dependencies; outside of one they do nothing. Attention computes in both.

The operators behind them belong to the libraries `air` and `npugraph_ex`, one
and the same set in both, so that an FX pass of the user may insert either.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from . import attention, checks, quantised  # noqa: F401 - an operator
from .define import define as define
from .printing import npu_print as npu_print

NAMESPACES = ("air", "npugraph_ex")
_STREAM = "str stream_id, str device_index, str device_type"
_INSIDE = "bool created_inside=False"
_SCHEMAS = (
    "scope_enter(str[] keys, str[] values, bool need_execute=False) -> ()",
    "scope_exit(bool need_execute=False) -> ()",
    f"tagged_event_record(str tag, {_INSIDE}) -> ()",
    f"tagged_event_wait(str tag, {_INSIDE}) -> ()",
    f"tagged_event_record_on_stream(str event_tag, {_STREAM}, {_INSIDE}) -> ()",
    f"tagged_event_wait_on_stream(str event_tag, {_STREAM}, {_INSIDE}) -> ()",
    f"tagged_stream_wait_stream({_STREAM}, str other_stream_id, "
    "str other_device_index, str other_device_type) -> ()",
    "record_tagged_stream(Tensor input, str tag) -> ()",
    "record_tagged_stream_(Tensor(a!) input, str tag) -> ()",
    f"record_tagged_on_stream(Tensor input, {_STREAM}) -> ()",
    f"record_tagged_on_stream_(Tensor(a!) input, {_STREAM}) -> ()",
    "record(*, Device? device=None) -> Tensor",
    "wait(Tensor[] x) -> ()",
    "wait_tensor(Tensor self, Tensor dependency) -> ()",
)
NAMES = frozenset(schema.partition("(")[0] for schema in _SCHEMAS)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Work of one device is in order already."""


def _refuse(_self: torch.Tensor, _dependency: torch.Tensor) -> None:
    raise NotImplementedError(
        "npu_wait_tensor orders the work of a compiled function of mode "
        "max-autotune; elsewhere use torchair.ops.record and wait"
    )


def _record(*, device: torch.device | None = None) -> torch.Tensor:
    return torch.empty(0, device=device)


_DOES = {"record": _record, "wait_tensor": _refuse}


def _register(namespace: str) -> Any:
    make: Any = torch.library.Library
    library: Any = make(namespace, "FRAGMENT")
    for schema in _SCHEMAS:
        name = schema.partition("(")[0]
        library.define(schema)
        does = _DOES.get(name, _nothing)
        library.impl(name, does, "CompositeExplicitAutograd")
        if does is _refuse:
            library.impl(name, _nothing, "Meta")
        op = getattr(getattr(torch.ops, namespace), name).default
        torch.fx.node.has_side_effect(op)
    return library


_libraries = [_register(namespace) for namespace in NAMESPACES]
attention.register("air")


class TaggedEvent:
    """A point in a stream's work; only its tag matters in a graph."""

    def __init__(self, tag: str) -> None:
        self.tag = tag

    def record(self, stream: Any = None) -> None:
        npu_tagged_event_record(self)

    def wait(self, stream: Any = None) -> None:
        npu_tagged_event_wait(self)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Work of this device is complete when a call returns."""


_events: weakref.WeakValueDictionary[str, TaggedEvent] = (
    weakref.WeakValueDictionary()
)


def npu_create_tagged_event(tag: str) -> TaggedEvent:
    """An event for `npu_tagged_event_record` and `npu_tagged_event_wait`.

    ValueError where another event of this process has the tag.
    """
    checks.is_a(str, tag, "npu_create_tagged_event: tag", "a str")
    if tag in _events:
        raise ValueError(
            f"tagged event tag {tag!r} is already in use; choose another one"
        )
    event = TaggedEvent(tag)
    _events[tag] = event
    return event


def _tag_of(event: Any) -> str:
    if not isinstance(event, TaggedEvent):
        raise ValueError(
            f"{event!r} is no tagged event; make it with "
            "torchair.ops.npu_create_tagged_event"
        )
    return event.tag


def npu_tagged_event_record(event: TaggedEvent) -> None:
    """The event stands for all work issued so far on the current stream."""
    torch.ops.air.tagged_event_record(_tag_of(event))


def npu_tagged_event_wait(event: TaggedEvent) -> None:
    """Later work of the current stream starts after the event."""
    torch.ops.air.tagged_event_wait(_tag_of(event))


def npu_record_tagged_stream(input: torch.Tensor, tagged_stream: str) -> None:
    """The memory of `input` is in use until the stream's work is done.

    tagged_stream: a tag of `npu_stream_switch`, or "default".
    """
    torch.ops.air.record_tagged_stream(input, tagged_stream)


def record() -> torch.Tensor:
    """Stands for the work issued so far on the current stream, for `wait`."""
    return torch.ops.air.record()  # type: ignore[no-any-return]


def wait(tensors: list[torch.Tensor]) -> None:
    """The next work on the current stream starts after these tensors, results
    of `record` or others, have been computed. ValueError where the list is
    empty or holds something else."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) == 0:
        raise ValueError("wait needs a list of at least one tensor")
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"wait needs tensors, got {tensor!r}")
    torch.ops.air.wait(list(tensors))


def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale * query key^T + pse_shift) value, and where
    softmax_lse_flag is set the logarithms of the sums, else an empty tensor.

    Layouts, masks, caches of blocks and integer caches: docs/attention.md.
    actual_seq_lengths, actual_seq_lengths_kv and actual_shared_prefix_len are
    int64 tensors, or lists of int. ValueError, which is a RuntimeError as
    well, names an argument that is refused.
    """
    return torch.ops.air.npu_fused_infer_attention_score(  # type: ignore
        query, key, value, **_with_lengths(query, arguments)
    )


def npu_fused_infer_attention_score_v2(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    **arguments: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same with the arguments of the second version; actual_seq_qlen and
    actual_seq_kvlen are int64 tensors, or lists of int."""
    return torch.ops.air.npu_fused_infer_attention_score_v2(  # type: ignore
        query, key, value, **_with_lengths(query, arguments)
    )


def _with_lengths(
    query: torch.Tensor, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Lists become tensors: torch_npu's operators of these names take them,
    and only lengths are lists."""
    return {
        name: torch.tensor(value, dtype=torch.int64, device=query.device)
        if isinstance(value, (list, tuple))
        else value
        for name, value in arguments.items()
    }
