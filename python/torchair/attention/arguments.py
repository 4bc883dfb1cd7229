"""The arguments of npu_fused_infer_attention_score and its second version.

One row, one argument: the name it has in each version, its type and default.
Everything else (schemas, checks, the engine's operands, docs/attention.md)
goes by the first column.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FAR = 2**31 - 1  # pre_tokens, next_tokens: no limit
NAME = "npu_fused_infer_attention_score"
TENSOR, LENGTHS, DTYPE = "Tensor?", "SymInt[]?", "int?"


class FusedAttentionError(RuntimeError, ValueError):
    """An argument that the operator refuses. The vendor's adapter raises
    RuntimeError, torchair.ops ValueError: this is both."""


@dataclass(frozen=True)
class Row:
    """name: ours; v1, v2: the public names, "" where the version has none."""

    name: str
    v1: str
    v2: str
    type: str = TENSOR
    default: Any = None

    def public(self, version: int) -> str:
        return self.v2 if version == 2 else self.v1


def _same(name: str, type: str = TENSOR, default: Any = None) -> Row:
    return Row(name, name, name, type, default)


# In the order of the versions' schemas as far as that matters: NPUGraph.update
# finds lengths by position, 5 and 6 in the first version, 7 and 8 in the other.
ROWS = (
    Row("query", "query", "query", "Tensor"),
    Row("key", "key", "key", "Tensor"),
    Row("value", "value", "value", "Tensor"),
    Row("query_rope", "", "query_rope"),
    Row("key_rope", "", "key_rope"),
    _same("pse_shift"),
    _same("atten_mask"),
    Row("query_lens", "actual_seq_lengths", "actual_seq_qlen", LENGTHS),
    Row("key_lens", "actual_seq_lengths_kv", "actual_seq_kvlen", LENGTHS),
    Row("dequant_scale1", "dequant_scale1", ""),
    Row("quant_scale1", "quant_scale1", ""),
    Row("dequant_scale2", "dequant_scale2", ""),
    Row("out_scale", "quant_scale2", "quant_scale_out"),
    Row("out_offset", "quant_offset2", "quant_offset_out"),
    Row("antiquant_scale", "antiquant_scale", ""),
    Row("antiquant_offset", "antiquant_offset", ""),
    _same("block_table"),
    Row("query_padding", "query_padding_size", ""),
    Row("key_padding", "kv_padding_size", ""),
    Row("query_scale", "", "dequant_scale_query"),
    Row("key_scale", "key_antiquant_scale", "dequant_scale_key"),
    Row("key_offset", "key_antiquant_offset", "dequant_offset_key"),
    Row("value_scale", "value_antiquant_scale", "dequant_scale_value"),
    Row("value_offset", "value_antiquant_offset", "dequant_offset_value"),
    Row("key_prefix", "key_shared_prefix", ""),
    Row("value_prefix", "value_shared_prefix", ""),
    Row("prefix_lens", "actual_shared_prefix_len", "", LENGTHS),
    Row("query_rope", "query_rope", ""),
    Row("key_rope", "key_rope", ""),
    Row("key_rope_scale", "key_rope_antiquant_scale", "dequant_scale_key_rope"),
    Row("weight_scale", "", "quant_scale_p"),
    Row("sink", "", "learnable_sink"),
    Row("heads", "num_heads", "num_query_heads", "int", 1),
    Row("kv_heads", "", "num_key_value_heads", "int", 0),
    Row("scale", "scale", "softmax_scale", "float", 1.0),
    _same("pre_tokens", "int", FAR),
    _same("next_tokens", "int", FAR),
    _same("input_layout", "str", "BSH"),
    Row("kv_heads", "num_key_value_heads", "", "int", 0),
    _same("sparse_mode", "int", 0),
    Row("inner_precise", "inner_precise", "", "int", 0),
    _same("block_size", "int", 0),
    Row("antiquant_mode", "antiquant_mode", "", "int", 0),
    Row("lse", "softmax_lse_flag", "", "bool", False),
    Row("query_mode", "", "query_quant_mode", "int", 0),
    Row("key_mode", "key_antiquant_mode", "key_quant_mode", "int", 0),
    Row("value_mode", "value_antiquant_mode", "value_quant_mode", "int", 0),
    Row("inner_precise", "", "inner_precise", "int", 0),
    Row("lse", "", "return_softmax_lse", "bool", False),
    *(
        Row(f"{of}_dtype", "", f"{of}_dtype", DTYPE)
        for of in (
            "query",
            "key",
            "value",
            "query_rope",
            "key_rope",
            "key_shared_prefix",
            "value_shared_prefix",
            "dequant_scale_query",
            "dequant_scale_key",
            "dequant_scale_value",
            "dequant_scale_key_rope",
            "out",
        )
    ),
)
# What each is; docs/attention.md is made from it.
MEANING = {
    "query": "float16, bfloat16, float32, or int8 with scales",
    "key": "as the query; int8, or int4 in int32 (8 in each, the lowest "
    "first), with scales; blocks of a cache with block_table",
    "value": "as key; heads may be narrower",
    "query_rope": "64 more elements of each query head, which has 128 or 512",
    "key_rope": "the same for keys; goes with query_rope",
    "pse_shift": "added to the scaled scores; (1 or batches, heads, rows, "
    "keys) or larger",
    "atten_mask": "bool, int8, uint8; not zero hides; see the modes",
    "query_lens": "rows of each batch, one for all, or ends (T layouts)",
    "key_lens": "keys of each batch; ends in T layouts without block_table",
    "dequant_scale1": "int8 queries: unit of the scores, one number",
    "quant_scale1": "int8 queries: weights are rounded to int8 by it",
    "dequant_scale2": "int8 queries: unit of the result",
    "out_scale": "the result is round(x * scale + offset) in int8; one number "
    "or one for each channel",
    "out_offset": "see out_scale",
    "antiquant_scale": "scales of keys and values in one tensor, (2, ..)",
    "antiquant_offset": "the offsets, as antiquant_scale",
    "block_table": "int32 (batches, blocks of a batch): numbers of blocks",
    "query_padding": "rows behind those of a batch, which end that early",
    "key_padding": "the same for keys",
    "query_scale": "int8 queries: a scale for each row and head",
    "key_scale": "scales of integer keys; see the modes of scales",
    "key_offset": "a key is (x + offset) * scale",
    "value_scale": "as key_scale",
    "value_offset": "as key_offset",
    "key_prefix": "keys in front of those of every batch, one batch",
    "value_prefix": "their values",
    "prefix_lens": "how many of them; all",
    "key_rope_scale": "reserved: no effect",
    "weight_scale": "reserved: no effect",
    "sink": "a number for each head that joins the softmax and has no value; "
    "layouts TND, NTD_TND",
    "heads": "of the query",
    "kv_heads": "of keys and values; 0: as many",
    "scale": "of the scores",
    "pre_tokens": "modes 0 and 4: how far back a query sees",
    "next_tokens": "modes 0 and 4: how far ahead",
    "input_layout": "of query, key, value, and of the result",
    "sparse_mode": "what the mask means",
    "inner_precise": "0 to 3 (one row: 0, 1); no effect: scores are floats, "
    "rows that see nothing are 0",
    "block_size": "tokens of a block, a multiple of 16 up to 1024",
    "antiquant_mode": "0: a scale for each channel or one; 1: for each token",
    "lse": "logarithms of the sums as second result, else it is empty",
    "query_mode": "of query_scale: 3",
    "key_mode": "of key_scale",
    "value_mode": "of value_scale: as key_mode, or 1 where that is 0",
    "out_dtype": "of quantised results: int8 only",
}
LAYOUT_NAMES = (
    "BSH",
    "BSND",
    "BNSD",
    "TND",
    "NTD",
    "NSD",
    "BNSD_BSND",
    "BSH_BNSD",
    "BSND_BNSD",
    "NTD_TND",
    "TND_NTD",
    "BSH_NBSD",
    "BSND_NBSD",
    "BNSD_NBSD",
)
MAX_HEADS, MAX_GROUP, MAX_GROUP_ROPE = 256, 64, 128
MAX_WIDTH, MAX_BLOCK, MAX_BATCHES = 512, 1024, 65536
LIMITS = (
    f"{MAX_HEADS} heads, groups of {MAX_GROUP} ({MAX_GROUP_ROPE} with rope), "
    f"widths of {MAX_WIDTH} that are multiples of 16 (32 with int8, 64 with "
    f"int4 keys; any with float32), blocks of {MAX_BLOCK}, {MAX_BATCHES} "
    "batches"
)
LENGTH_NAMES = ("query_lens", "key_lens", "prefix_lens")


@functools.cache
def rows(version: int) -> list[Row]:
    return [r for r in ROWS if r.public(version)]


@functools.cache
def _defaults() -> dict[str, Any]:
    return {r.name: r.default for r in ROWS}


@functools.cache
def _names(version: int) -> dict[str, str]:
    """Ours, by what the caller says."""
    return {r.public(version): r.name for r in rows(version)}


def _parameter(row: Row, name: str, tensors: bool) -> str:
    kind = TENSOR if tensors and row.type == LENGTHS else row.type
    if row.type == "Tensor":
        return f"Tensor {name}"
    default = f'"{row.default}"' if row.type == "str" else str(row.default)
    return f"{kind} {name}={default}"


def op_name(version: int) -> str:
    return NAME if version == 1 else f"{NAME}_v2"


def schema(version: int, tensors: bool, overload: str = "") -> str:
    """tensors: lengths are int64 tensors, as in torchair.ops, not lists.
    overload: "" or "out" (results in `out`, a list of the two)."""
    parts = [_parameter(r, r.public(version), tensors) for r in rows(version)]
    name, result = op_name(version), "(Tensor, Tensor)"
    parts.insert(3, "*")
    if overload == "out":
        name += ".out"
        parts += ["Tensor? workspace=None", "Tensor(a!)[] out"]
        result = "()"
    return f"{name}({', '.join(parts)}) -> {result}"


@dataclass
class Call:
    """One call by our names; what a version lacks has its default."""

    version: int
    values: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, version: int, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Call:
        values = _defaults().copy()
        for row, value in zip(rows(version), args, strict=False):
            values[row.name] = value
        names = _names(version)
        for name, value in kwargs.items():
            if name in names:
                values[names[name]] = value
        return cls(version, values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def public(self, name: str) -> str:
        """What the caller calls it."""
        for row in rows(self.version):
            if row.name == name:
                return row.public(self.version)
        return name

    def fail(self, name: str, text: str) -> None:
        raise FusedAttentionError(
            f"{op_name(self.version)}: {self.public(name)} {text}"
        )
