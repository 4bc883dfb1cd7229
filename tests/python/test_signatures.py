"""Names and defaults of arguments, as the interface specifies them."""

import inspect

import pytest
import torch

import torchair
from torchair import ge, inference, llm_datadist, ops, scope
from torchair.tools.gegraph_check import align_trace as at
from torchair.tools.gegraph_check import deadlock_check as dc
from torchair.tools.gegraph_check import filter_operators as fo

FUNCTIONS = [
    (
        torchair.get_npu_backend,
        "*, compiler_config=None, custom_decompositions",
    ),
    (torchair.get_compiler, "compiler_config=None"),
    (
        torchair.dynamo_export,
        "*args, model, export_path='export_file', export_name='export', "
        "dynamic=False, config, **kwargs",
    ),
    (torchair.use_internal_format_weight, "model"),
    (
        torchair.npu_format_cast_via_cpu,
        "self, acl_format, customize_dtype=None, input_dtype=None",
    ),
    (torchair.register_fx_node_ge_converter, "aten_op"),
    (torchair.patch_for_hcom, ""),
    (
        torchair.register_replacement,
        "search_fn, replace_fn, example_inputs, trace_fn, extra_check, "
        "search_fn_pattern=None, scalar_workaround=None, skip_duplicates=False",
    ),
    (ge.Const, "v, dtype=None, node_name=None, readable=True"),
    (ge.Cast, "x, *, dst_type, dependencies, node_name=None"),
    (ge.Clone, "x, *, dependencies, node_name=None"),
    (
        ge.custom_op,
        "op_type, *args, inputs=None, outputs=None, attrs=None, node_name=None",
    ),
    (
        inference.cache_compile,
        "func, *, config=None, backend=None, dynamic=True, cache_dir=None, "
        "global_rank=None, tp_rank=None, pp_rank=None, ge_cache=False, "
        "custom_decompositions=None, **_kwargs",
    ),
    (inference.readable_cache, "cache_bin, print_output=True, file=None"),
    (inference.set_dim_gears, "t, dim_gears"),
    (ops.npu_print, "*args, summarize_size=3, tensor_detail=False"),
    (ops.npu_create_tagged_event, "tag"),
    (ops.npu_tagged_event_record, "event"),
    (ops.npu_tagged_event_wait, "event"),
    (ops.npu_record_tagged_stream, "input, tagged_stream"),
    (ops.record, ""),
    (ops.wait, "tensors"),
    (
        scope.npu_stream_switch,
        "stream_tag, stream_priority=0, enable_inner_parallel=True",
    ),
    (scope.npu_wait_tensor, "self, dependency"),
    (scope.super_kernel, "scope, options=''"),
    (scope.limit_core_num, "op_aicore_num, op_vectorcore_num"),
    (scope.op_never_timeout, "enable=True"),
    (scope.data_dump, ""),
    (llm_datadist.create_npu_tensors, "shape, dtype, addresses"),
    (dc.deadlock_check, "input_path, output_path, aivec_total, merge_gap=0.0"),
    (fo.filter_comm_ops, "input_path, output_path, merge_gap=0.0"),
    (at.align_trace_json, "input, output, merge_gap=0.0"),
]


def split(text):
    """ "a, *, b=1" -> ["a", "*", "b=1"]"""
    return text.split(", ") if text else []


def shown(fn, wanted):
    """The signature of fn as `wanted` spells it; defaults where that has."""
    names: list[str] = []
    given = {w.partition("=")[0] for w in wanted if "=" in w}
    for p in inspect.signature(fn).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not any(n[0] == "*" for n in names):
            names.append("*")
        name = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        name += p.name
        names.append(f"{name}={p.default!r}" if name in given else name)
    return names


@pytest.mark.parametrize(
    "fn, wanted", FUNCTIONS, ids=[f.__name__ for f, _ in FUNCTIONS]
)
def test_functions(fn, wanted):
    if not wanted:
        assert not inspect.signature(fn).parameters
    else:
        assert shown(fn, split(wanted)) == split(wanted)


NAMES = """
pse_shift atten_mask actual_seq_lengths actual_seq_lengths_kv dequant_scale1
quant_scale1 dequant_scale2 quant_scale2 quant_offset2 antiquant_scale
antiquant_offset key_antiquant_scale key_antiquant_offset
value_antiquant_scale value_antiquant_offset block_table query_padding_size
kv_padding_size key_shared_prefix value_shared_prefix
actual_shared_prefix_len query_rope key_rope key_rope_antiquant_scale
num_heads=1 scale=1.0 pre_tokens=2147483647 next_tokens=2147483647
input_layout=BSH num_key_value_heads=0 sparse_mode=0 inner_precise=0
block_size=0 antiquant_mode=0 key_antiquant_mode=0 value_antiquant_mode=0
softmax_lse_flag=False
"""
NAMES_V2 = """
query_rope key_rope pse_shift atten_mask actual_seq_qlen actual_seq_kvlen
block_table dequant_scale_query dequant_scale_key dequant_offset_key
dequant_scale_value dequant_offset_value dequant_scale_key_rope
quant_scale_out quant_offset_out quant_scale_p learnable_sink
num_query_heads=1 num_key_value_heads=0 softmax_scale=1.0
pre_tokens=2147483647 next_tokens=2147483647 input_layout=BSH sparse_mode=0
block_size=0 query_quant_mode=0 key_quant_mode=0 value_quant_mode=0
inner_precise=0 return_softmax_lse=False query_dtype key_dtype value_dtype
query_rope_dtype key_rope_dtype key_shared_prefix_dtype
value_shared_prefix_dtype dequant_scale_query_dtype dequant_scale_key_dtype
dequant_scale_value_dtype dequant_scale_key_rope_dtype out_dtype
"""


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("npu_fused_infer_attention_score", NAMES),
        ("npu_fused_infer_attention_score_v2", NAMES_V2),
    ],
)
def test_fused_attention(name, wanted):
    arguments = getattr(torch.ops.air, name).default._schema.arguments
    assert [a.name for a in arguments[:3]] == ["query", "key", "value"]
    assert all(a.kwarg_only for a in arguments[3:])
    found = {
        a.name + ("" if a.default_value is None else f"={a.default_value}")
        for a in arguments[3:]
    }
    assert found == set(wanted.split())


def test_operators():
    found = {
        "print": "(Tensor[] tensors, str msg_format, str placeholder, int "
        "summarize_size, bool tensor_detail) -> ()",
        "tagged_event_record": "(str tag, bool created_inside=False) -> ()",
        "tagged_event_wait": "(str tag, bool created_inside=False) -> ()",
        "record_tagged_stream": "(Tensor input, str tag) -> ()",
        "record": "(*, Device? device=None) -> Tensor",
        "wait": "(Tensor[] x) -> ()",
        "scope_enter": "(str[] keys, str[] values, bool need_execute=False) "
        "-> ()",
        "scope_exit": "(bool need_execute=False) -> ()",
    }
    for name, schema in found.items():
        said = str(getattr(torch.ops.air, name).default._schema)
        assert said == f"air::{name}{schema}"
