"""The attention and rotary operators that scripts of language models call:
other names of the fused operator, which computes them, eager, compiled and
captured."""

from __future__ import annotations

from typing import Any

import torch

from . import _attention

_SCALES = (
    "Tensor? quant_scale1=None, Tensor? {0}2=None, Tensor? quant_scale2=None,"
    " Tensor? quant_offset2=None"
)
_HEADS = "int num_heads=1, float scale_value=1.0"
DEFINITIONS = (
    "npu_prompt_flash_attention(Tensor query, Tensor key, Tensor value, *,"
    " Tensor? padding_mask=None, Tensor? atten_mask=None,"
    " Tensor? pse_shift=None, SymInt[]? actual_seq_lengths=None,"
    f" Tensor? deq_scale1=None, {_SCALES.format('deq_scale')}, {_HEADS},"
    " int pre_tokens=2147473647, int next_tokens=0,"
    ' str input_layout="BSH", int num_key_value_heads=0,'
    " SymInt[]? actual_seq_lengths_kv=None, int sparse_mode=0) -> Tensor",
    "npu_incre_flash_attention(Tensor query, Tensor key, Tensor value, *,"
    " Tensor? padding_mask=None, Tensor? atten_mask=None,"
    " Tensor? pse_shift=None, SymInt[]? actual_seq_lengths=None,"
    " Tensor? antiquant_scale=None, Tensor? antiquant_offset=None,"
    " Tensor? block_table=None, Tensor? dequant_scale1=None,"
    f" {_SCALES.format('dequant_scale')}, Tensor? kv_padding_size=None,"
    f' {_HEADS}, str input_layout="BSH", int num_key_value_heads=0,'
    " int block_size=0, int inner_precise=1) -> Tensor",
    "npu_apply_rotary_pos_emb(Tensor query, Tensor key, Tensor cos,"
    ' Tensor sin, str layout="BSH", str rotary_mode="half")'
    " -> (Tensor, Tensor)",
)


def _attend(op: str, tensors: Any, given: dict[str, Any], names: Any) -> Any:
    """The fused operator on the arguments, by its own names."""
    if given.pop("padding_mask") is not None:
        raise RuntimeError(f"{op}: padding_mask must be None; use atten_mask")
    found = {names.get(key, key): value for key, value in given.items()}
    return torch.ops.npu.npu_fused_infer_attention_score(*tensors, **found)[0]


_PROMPT = {
    "scale_value": "scale",
    "deq_scale1": "dequant_scale1",
    "deq_scale2": "dequant_scale2",
}


def npu_prompt_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    padding_mask: torch.Tensor | None = None,
    next_tokens: int = 0,
    **given: Any,
) -> torch.Tensor:
    """softmax(scale_value query key^T, masked) value of a whole prompt; see
    npu_fused_infer_attention_score."""
    given |= {"padding_mask": padding_mask, "next_tokens": next_tokens}
    return _attend(  # type: ignore[no-any-return]
        "npu_prompt_flash_attention", (query, key, value), given, _PROMPT
    )


_INCRE = {
    "scale_value": "scale",
    "actual_seq_lengths": "actual_seq_lengths_kv",
}


def npu_incre_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    padding_mask: torch.Tensor | None = None,
    inner_precise: int = 1,
    **given: Any,
) -> torch.Tensor:
    """The same of one row of each batch over a cache; actual_seq_lengths: how
    much of the cache counts."""
    given |= {"padding_mask": padding_mask, "inner_precise": inner_precise}
    return _attend(  # type: ignore[no-any-return]
        "npu_incre_flash_attention", (query, key, value), given, _INCRE
    )


def npu_apply_rotary_pos_emb(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    layout: str = "BSH",
    rotary_mode: str = "half",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both turned, as npu_rotary_mul does; cos and sin broadcast to them. The
    results are new tensors. layout: BSH and BSND are [batch, rows, heads,
    width] alike, as in the sizes of cos."""
    if layout not in ("BSH", "BSND"):
        raise RuntimeError(
            f"npu_apply_rotary_pos_emb: layout is {layout!r}; BSH and BSND "
            "are known"
        )
    turn = _attention.npu_rotary_mul
    return turn(query, cos, sin, rotary_mode), turn(key, cos, sin, rotary_mode)


FUNCTIONS = (
    npu_prompt_flash_attention,
    npu_incre_flash_attention,
    npu_apply_rotary_pos_emb,
)


def register(fragment: Any) -> None:
    """As torch.ops.npu.*, which modes and autograd see through."""
    for definition, fn in zip(DEFINITIONS, FUNCTIONS, strict=True):
        fragment.define(definition)
        fragment.impl(fn.__name__, fn, "CompositeImplicitAutograd")
