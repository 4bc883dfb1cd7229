"""What the operator refuses of scales and offsets: of integer caches, of int8
queries, of int8 results."""

from __future__ import annotations

import torch

from . import forms
from .arguments import Call
from .forms import PAGED_MODES, Sizes

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_PLAIN_LAYOUTS = ("BSH", "BSND", "BNSD", "BNSD_BSND")


def is_scaled(c: Call) -> bool:
    return c.key_scale is not None or c.antiquant_scale is not None


def _anti(c: Call, z: Sizes) -> None:
    """Scales of an integer cache."""
    if c.query.dtype is torch.int8 and c.dequant_scale1 is not None:
        return
    given = [n for n in ("key_scale", "value_scale") if c.values[n] is not None]
    if len(given) == 1:
        missing = "value_scale" if given[0] == "key_scale" else "key_scale"
        c.fail(missing, f"is missing: {c.public(given[0])} is given")
    if (c.key_offset is None) != (c.value_offset is None):
        name = "key_offset" if c.key_offset is None else "value_offset"
        c.fail(name, "is missing: key and value need one both")
    for name, scale in (
        ("key_offset", "key_scale"),
        ("antiquant_offset", "antiquant_scale"),
    ):
        if c.values[name] is not None and c.values[scale] is None:
            c.fail(scale, f"is missing: {c.public(name)} is given")
    _anti_modes(c, z)
    if is_scaled(c) and c.key.dtype not in (torch.int8, torch.int32):
        c.fail("key", f"is {c.key.dtype}; scales are for int8 and int4 keys")
    for argument, form in forms.scales(c, z).values():
        t = c.values[argument]
        if form is None:
            c.fail(argument, f"has shape {list(t.shape)}, which is none of "
                             "its mode")  # fmt: skip
        if t.dtype not in FLOATS:
            c.fail(argument, f"is {t.dtype}; it must be floating point")


def _anti_modes(c: Call, z: Sizes) -> None:
    for name in ("key_mode", "value_mode"):
        if c.values[name] not in forms.MODES:
            c.fail(name, f"is {c.values[name]}; 0 to 5 are known")
    if c.antiquant_mode not in (0, 1):
        c.fail("antiquant_mode", f"is {c.antiquant_mode}; 0 and 1 are known")
    if c.key_mode != c.value_mode and (c.key_mode, c.value_mode) != (0, 1):
        c.fail(
            "value_mode",
            f"is {c.value_mode}, that of the key {c.key_mode}; they must be "
            "equal, or 0 and 1",
        )
    if c.key_mode in PAGED_MODES and c.block_table is None:
        c.fail("key_mode", f"{c.key_mode} needs block_table")
    token_modes = (1, 3) if c.key_scale is not None else ()
    per_token = (
        c.key_mode in token_modes
        or c.value_mode in token_modes
        or (c.antiquant_scale is not None and c.antiquant_mode == 1)
    )
    if per_token and z.packed and c.block_table is None:
        c.fail("key_mode", "of a scale per token is not defined for layout "
                           f"{c.input_layout}")  # fmt: skip
    if c.key_mode != 0 and c.key_prefix is not None:
        c.fail("key_prefix", "with a scale per token has no scale of its own")
    if c.key.dtype is torch.int32 and c.block_table is not None:
        c.fail("block_table", "does not go with int4 keys")


def _full_quant(c: Call, z: Sizes) -> None:
    """int8 queries: scales of the scores, the weights and the result."""
    names = ("dequant_scale1", "quant_scale1", "dequant_scale2")
    if c.query.dtype is not torch.int8:
        for name in names:
            if c.values[name] is not None:
                c.fail(name, "is for an int8 query; leave it out")
        if c.query_scale is not None:
            c.fail("query_scale", "is for an int8 query; leave it out")
        return
    if c.version == 2 or c.query_scale is not None:
        for name in ("query_scale", "key_scale", "value_scale"):
            if c.values[name] is None:
                c.fail(name, "is missing: an int8 query needs it")
        if c.query_mode != 3:
            c.fail("query_mode", f"is {c.query_mode}; 3 is due, a scale for "
                                 "each row and head")  # fmt: skip
        if c.query_scale.numel() != z.batch * z.rows * c.heads:
            c.fail("query_scale", f"has shape {list(c.query_scale.shape)}; "
                                  "rows and heads are due")  # fmt: skip
        return
    for name in names:
        t = c.values[name]
        if t is None:
            c.fail(name, "is missing: an int8 query needs it")
        if t.numel() != 1:
            c.fail(name, f"has shape {list(t.shape)}; one number is due")
    if c.input_layout not in _PLAIN_LAYOUTS:
        c.fail("input_layout", f"with an int8 query is one of "
                               f"{', '.join(_PLAIN_LAYOUTS)}")  # fmt: skip


def _out_quant(c: Call, z: Sizes) -> None:
    if c.out_offset is not None and c.out_scale is None:
        c.fail("out_scale", f"is missing: {c.public('out_offset')} is given")
    if c.values["out_dtype"] not in (None, 1, torch.int8):
        c.fail("out_dtype", f"is {c.values['out_dtype']}; int8 only, which "
                            "is what quantised results are")  # fmt: skip
    for name in ("out_scale", "out_offset"):
        t = c.values[name]
        if t is not None and forms.out_scale_form(t, c, z) is None:
            c.fail(
                name,
                f"has shape {list(t.shape)}; one number, or one for each of "
                f"{c.heads} x {z.value_width} channels is due",
            )


RULES = (_anti, _full_quant, _out_quant)
