"""Arguments of another kind: each public function says which of them is wrong
and what it takes, before anything has changed. What options and operators say
of wrong values is tested beside them."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import torchair
from torchair import inference, llm_datadist, npu, ops, scope

aten = torch.ops.aten
ONE = torch.ones(3)


class Plus(nn.Module):
    def forward(self, x):
        return x + 1


def plus(x):
    return x + 1


def _events():
    return npu.Event(), npu.Event(enable_timing=True)


CASES = {
    "get_npu_backend, a dict": (
        lambda: torchair.get_npu_backend(custom_decompositions=3),
        (TypeError, "custom_decompositions must be a dict"),
    ),
    "get_npu_backend, an operator": (
        lambda: torchair.get_npu_backend(custom_decompositions={"relu": plus}),
        (TypeError, "an operator such as torch.ops.aten.relu.default"),
    ),
    "get_npu_backend, a function": (
        lambda: torchair.get_npu_backend(
            custom_decompositions={aten.relu.default: 1}
        ),
        (
            TypeError,
            r"custom_decompositions\[aten.relu.default\] must be a fun",
        ),
    ),
    "get_compiler": (
        lambda: torchair.get_compiler(3),
        (TypeError, "must be a torchair.CompilerConfig, got int"),
    ),
    "compare": (
        lambda: torchair.compare(3),
        (TypeError, "compare: model must be a function"),
    ),
    "dynamo_export, a configuration": (
        lambda: torchair.dynamo_export(ONE, model=Plus(), config=3),
        (TypeError, "must be a torchair.CompilerConfig, got int"),
    ),
    "dynamo_export, a name": (
        lambda: torchair.dynamo_export(ONE, model=Plus(), export_name=3),
        (TypeError, "export_name must be a str"),
    ),
    "dynamo_export, no name": (
        lambda: torchair.dynamo_export(ONE, model=Plus(), export_name="a/"),
        (ValueError, "give the name of a file"),
    ),
    "use_internal_format_weight": (
        lambda: torchair.use_internal_format_weight(plus),
        (TypeError, "model must be a torch.nn.Module, got function"),
    ),
    "npu_format_cast_via_cpu": (
        lambda: torchair.npu_format_cast_via_cpu([1], 29),
        (TypeError, "must be a tensor, got list"),
    ),
    "register_fx_node_ge_converter, a packet": (
        lambda: torchair.register_fx_node_ge_converter(aten.add),
        (TypeError, "aten_op is an overload"),
    ),
    "register_replacement, a pattern": (
        lambda: torchair.register_replacement(3, plus, [ONE]),
        (TypeError, "search_fn must be a function"),
    ),
    "register_replacement, a replacement": (
        lambda: torchair.register_replacement(plus, 3, [ONE]),
        (TypeError, "replace_fn must be a function"),
    ),
    "register_replacement, inputs": (
        lambda: torchair.register_replacement(plus, plus, 3),
        (TypeError, "example_inputs must be a list of tensors"),
    ),
    "register_replacement, a check": (
        lambda: torchair.register_replacement(plus, plus, [ONE], extra_check=3),
        (TypeError, "extra_check must be a function"),
    ),
    "cache_compile, a configuration": (
        lambda: inference.cache_compile(Plus().forward, config=3),
        (TypeError, "must be a torchair.CompilerConfig, got int"),
    ),
    "cache_compile, a folder": (
        lambda: inference.cache_compile(Plus().forward, cache_dir=3),
        (TypeError, "cache_dir must be a path, got int"),
    ),
    "cache_compile, a rank": (
        lambda: inference.cache_compile(Plus().forward, tp_rank="0"),
        (TypeError, "tp_rank must be an int, got str"),
    ),
    "cache_compile, a rank below 0": (
        lambda: inference.cache_compile(Plus().forward, pp_rank=-1),
        (ValueError, "pp_rank is -1; ranks count from 0"),
    ),
    "cache_compile, dynamic": (
        lambda: inference.cache_compile(Plus().forward, dynamic="yes"),
        (TypeError, "dynamic must be a bool, got str"),
    ),
    "set_dim_gears, a tensor": (
        lambda: inference.set_dim_gears(3, {0: [2, 3]}),
        (TypeError, "t must be a tensor, got int"),
    ),
    "set_dim_gears, a dict": (
        lambda: inference.set_dim_gears(ONE, [2, 3]),
        (AssertionError, "give a dict of dims"),
    ),
    "super_kernel": (
        lambda: scope.super_kernel("a", 3),
        (TypeError, "options must be a str, got int"),
    ),
    "npu_create_tagged_event": (
        lambda: ops.npu_create_tagged_event(3),
        (TypeError, "tag must be a str, got int"),
    ),
    "npu_tagged_event_record, what only has a tag": (
        lambda: ops.npu_tagged_event_record(SimpleNamespace(tag="one")),
        (ValueError, "make it with torchair.ops.npu_create_tagged_event"),
    ),
    "limit_core_num": (
        lambda: scope.limit_core_num(2, -1),
        (ValueError, "op_vectorcore_num is -1; give a number of cores"),
    ),
    "create_npu_tensors": (
        lambda: llm_datadist.create_npu_tensors(
            [1], torch.float32, [ONE.data_ptr() + 1]
        ),
        (RuntimeError, "no multiple of the 4 bytes"),
    ),
    "graph": (
        lambda: npu.graph(3),
        (TypeError, "npu_graph must be an NPUGraph, got int"),
    ),
    "graph, a stream": (
        lambda: npu.graph(npu.NPUGraph(), stream=3),
        (TypeError, "must be a torch.npu.Stream, got int"),
    ),
    "graph, a flag": (
        lambda: npu.graph(npu.NPUGraph(), auto_dispatch_capture="no"),
        (TypeError, "auto_dispatch_capture must be a bool"),
    ),
    "make_graphed_callables": (
        lambda: npu.make_graphed_callables(3, (ONE,)),
        (TypeError, "a callable must be a function, got int"),
    ),
    "make_graphed_callables, a number": (
        lambda: npu.make_graphed_callables(plus, (ONE,), num_warmup_iters="3"),
        (TypeError, "num_warmup_iters must be an int"),
    ),
    "graph_task_group_begin": (
        lambda: npu.graph_task_group_begin(3),
        (TypeError, "stream must be a torch.npu.Stream, got int"),
    ),
    "Stream": (
        lambda: npu.Stream("gpu"),
        (RuntimeError, "'gpu' is no device; give 0, 'npu' or 'npu:0'"),
    ),
    "set_stream": (
        lambda: npu.set_stream(3),
        (TypeError, "set_stream must be a torch.npu.Stream"),
    ),
    "stream": (
        lambda: npu.stream(ONE),
        (TypeError, "must be a torch.npu.Stream, got Tensor"),
    ),
    "wait_stream": (
        lambda: npu.Stream().wait_stream(_events()[0]),
        (TypeError, "wait_stream must be a torch.npu.Stream, got Event"),
    ),
    "wait_event": (
        lambda: npu.Stream().wait_event(3),
        (TypeError, "wait_event must be a torch.npu.Event"),
    ),
    "record_event": (
        lambda: npu.Stream().record_event(3),
        (TypeError, "record_event must be a torch.npu.Event"),
    ),
    "Event.record": (
        lambda: _events()[0].record("side"),
        (TypeError, "stream must be a torch.npu.Stream, got str"),
    ),
    "Event.elapsed_time": (
        lambda: _events()[1].elapsed_time(3),
        (TypeError, "elapsed_time must be a torch.npu.Event"),
    ),
    "get_stream_limit": (
        lambda: npu.get_stream_limit(3),
        (TypeError, "stream must be a torch.npu.Stream"),
    ),
    "set_stream_limit": (
        lambda: npu.set_stream_limit(3, 1, 1),
        (TypeError, "stream must be a torch.npu.Stream"),
    ),
    "set_device_limit": (
        lambda: npu.set_device_limit("gpu", 1, 1),
        (RuntimeError, "is no device"),
    ),
    "register_npu_graph_handler": (
        lambda: npu.register_npu_graph_handler(3),
        (TypeError, "op_names must be names of operators, got int"),
    ),
    "save_npugraph_tensor": (
        lambda: npu.save_npugraph_tensor(3),
        (TypeError, "input must be a tensor or a list of them"),
    ),
    "weak_ref_tensor": (
        lambda: npu.weak_ref_tensor(3),
        (TypeError, "must be a tensor, got int"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named(name):
    call, (error, text) = CASES[name]
    with pytest.raises(error, match=text):
        call()
