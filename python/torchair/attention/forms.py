"""A call in the one form that the engine's attention takes.

Every layout becomes [batch, heads, rows, width] by a view and a permutation,
every cache [batch | block, heads, tokens, width], every scale a tensor that
broadcasts to its cache. Only shapes are read here: the same code serves
tensors and the nodes of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .arguments import LAYOUT_NAMES, LENGTH_NAMES, Call

# layout: (axes of the query, axes of the result)
LAYOUTS = {
    name: (name.split("_")[0], name.split("_")[-1]) for name in LAYOUT_NAMES
}
# result axes: permutation of [batch, heads, rows, width]
_ORDERS = {
    "BSH": (0, 2, 1, 3),
    "BSND": (0, 2, 1, 3),
    "BNSD": (0, 1, 2, 3),
    "NBSD": (1, 0, 2, 3),
    "TND": (0, 2, 1, 3),
    "NTD": (0, 1, 2, 3),
    "NSD": (0, 1, 2, 3),
}
COMPRESSED = 2048  # rows and columns of the mask of modes 2 to 4


@dataclass(frozen=True)
class Form:
    """t, or t[index] of it, seen with these sizes, then permuted."""

    index: int | None = None
    sizes: tuple[Any, ...] | None = None
    order: tuple[int, ...] | None = None

    def of(self, t: torch.Tensor) -> torch.Tensor:
        if self.index is not None:
            t = t[self.index]
        if self.sizes is not None:
            t = t.reshape(self.sizes)
        return t if self.order is None else t.permute(self.order)


SAME = Form()


@dataclass(frozen=True)
class Sizes:
    """What the shapes of a call say."""

    axes: str  # of the query
    out_axes: str
    batch: Any  # the dimension, 1 where rows of all batches follow each other
    rows: Any
    tokens: Any  # of a batch (or of all) at most; of a block, with paging
    width: Any  # of a query
    value_width: Any

    @property
    def packed(self) -> bool:
        return "T" in self.axes

    @property
    def one_row(self) -> bool:
        return not self.packed and self.rows == 1


def kv_heads(c: Call) -> int:
    return int(c.kv_heads or c.heads)


def _row_width(t: torch.Tensor, axes: str, heads: int) -> Any:
    packing = 8 if t.dtype is torch.int32 else 1
    width = t.shape[-1] // heads if axes == "BSH" else t.shape[-1]
    return width * packing


def _cache_width(t: torch.Tensor, heads: int) -> Any:
    """Of rows of a cache of blocks."""
    if t.dim() == 5:
        return t.shape[2] * t.shape[4]
    return _row_width(t, "BSH" if t.dim() == 3 else "", heads)


def sizes(c: Call) -> Sizes:
    """The layout is known and the ranks fit: checks.py has seen to it."""
    axes, out_axes = LAYOUTS[c.input_layout]
    q, k, v = c.query, c.key, c.value
    heads = kv_heads(c)
    at = {a: i for i, a in enumerate(axes.replace("T", "S"))}
    if c.block_table is not None:
        tokens = k.shape[{3: 1, 4: 2, 5: 3}[k.dim()]]
        value_width = _cache_width(v, heads)
    else:
        tokens = k.shape[at["S"]]
        value_width = _row_width(v, axes, heads)
    return Sizes(
        axes,
        out_axes,
        q.shape[at["B"]] if "B" in at else 1,
        q.shape[at["S"]],
        tokens,
        _row_width(q, axes, c.heads),
        value_width,
    )


def _rows_form(t: torch.Tensor, axes: str, heads: int) -> Form:
    s = t.shape
    if axes == "BSH":
        return Form(None, (s[0], s[1], heads, s[2] // heads), (0, 2, 1, 3))
    if axes == "BSND":
        return Form(None, None, (0, 2, 1, 3))
    if axes == "BNSD":
        return SAME
    order = (0, 2, 1, 3) if axes == "TND" else None
    return Form(None, (1, *s), order)


def _cache_form(t: torch.Tensor, heads: int) -> Form:
    s = t.shape
    if t.dim() == 3:
        return Form(None, (s[0], s[1], heads, s[2] // heads), (0, 2, 1, 3))
    return Form(None, None, (0, 1, 3, 2, 4)) if t.dim() == 5 else SAME


def _mask_form(c: Call, z: Sizes) -> Form | None:
    """None: the band of the mode says what the mask does."""
    m = c.atten_mask
    if m is None or (c.sparse_mode in (2, 3, 4) and is_compressed(m)):
        return None
    if m.dim() == 1 or m.dim() == 4:
        return SAME
    s = m.shape
    if m.dim() == 3:
        return Form(None, (s[0], 1, s[1], s[2]))
    return Form(None, (s[0], 1, 1, s[1]) if z.one_row else (1, 1, *s))


def is_compressed(mask: torch.Tensor) -> bool:
    return mask.dim() > 1 and tuple(mask.shape[-2:]) == (COMPRESSED,) * 2


# ---- scales ----

# mode: (sizes of [batch | block, heads, tokens, width] that a scale has)
MODES = {0: "channel", 1: "BS", 2: "N", 3: "BNS", 4: "PS", 5: "PNS"}
PAGED_MODES = (4, 5)


def scale_form(
    t: torch.Tensor, mode: int, heads: int, width: Any, index: int | None
) -> Form | None:
    """None: no shape of this mode. index: its half of a merged tensor."""
    s = tuple(t.shape[1:] if index is not None else t.shape)
    axes = MODES[mode]
    if axes == "channel":
        if t.numel() == (1 if index is None else 2):
            return Form(index, (1, 1, 1, 1))
        channels = {(heads, 1, width), (heads, width), (heads * width,)}
        plain = s[1:] if s[:1] == (1,) and len(s) > 1 else s
        if plain not in channels:
            return None
        return Form(index, (1, heads, 1, width))
    if axes == "N":
        return Form(index, (1, heads, 1, 1)) if s == (heads,) else None
    if len(s) == len(axes) + 1 and s[0] == 1:
        s = s[1:]
    if len(s) != len(axes) or ("N" in axes and s[1] != heads):
        return None
    return Form(index, (s[0], heads if "N" in axes else 1, s[-1], 1))


def _scales(c: Call, z: Sizes) -> dict[str, tuple[str, Form | None]]:
    """operand: (argument, its form), of keys and values."""
    heads = kv_heads(c)
    widths = {"key": z.width, "value": z.value_width}
    found = {}
    merged = c.key_scale is None and c.antiquant_scale is not None
    for index, part in enumerate(("key", "value")):
        for what in ("scale", "offset"):
            argument = f"antiquant_{what}" if merged else f"{part}_{what}"
            t = c.values[argument]
            if t is None:
                continue
            mode = c.antiquant_mode if merged else c.values[f"{part}_mode"]
            form = scale_form(
                t, mode, heads, widths[part], index if merged else None
            )
            found[f"{part}_{what}"] = (argument, form)
    return found


def scales(c: Call, z: Sizes) -> dict[str, tuple[str, Form | None]]:
    if c.query.dtype is torch.int8 and c.dequant_scale1 is not None:
        one = Form(None, (1, 1, 1, 1))
        return {
            "query_scale": ("dequant_scale1", Form(None, (1, 1, 1))),
            "weight_scale": ("quant_scale1", Form(None, (1,))),
            "value_scale": ("dequant_scale2", one),
        }
    return _scales(c, z)


# ---- the whole ----

# Operands of air::fused_attention, in its order.
OPERANDS = (
    "query",
    "key",
    "value",
    "query_rope",
    "key_rope",
    "pse",
    "mask",
    "query_lens",
    "key_lens",
    "prefix_lens",
    "block_table",
    "query_scale",
    "key_scale",
    "key_offset",
    "value_scale",
    "value_offset",
    "weight_scale",
    "key_prefix",
    "value_prefix",
    "query_padding",
    "key_padding",
    "sink",
)


def operands(c: Call, z: Sizes) -> dict[str, tuple[str, Form]]:
    """operand: (argument, how it is seen)."""
    heads = kv_heads(c)
    paged = c.block_table is not None
    found: dict[str, tuple[str, Form | None]] = {}
    for name in ("query", "query_rope"):
        if c.values[name] is not None:
            found[name] = name, _rows_form(c.values[name], z.axes, c.heads)
    for name in ("key", "value", "key_rope", "key_prefix", "value_prefix"):
        t = c.values[name]
        if t is None:
            continue
        found[name] = (
            name,
            _cache_form(t, heads) if paged else _rows_form(t, z.axes, heads),
        )
    if c.pse_shift is not None:
        found["pse"] = "pse_shift", SAME
    found["mask"] = "atten_mask", _mask_form(c, z)
    for name in ("block_table", "sink", "query_padding", "key_padding"):
        if c.values[name] is not None:
            found[name] = name, SAME
    for name in LENGTH_NAMES:
        if isinstance(c.values[name], torch.Tensor):
            found[name] = name, Form(None, (-1,))
    if c.query_scale is not None:
        found["query_scale"] = "query_scale", query_scale_form(c, z)
    found.update(scales(c, z))
    return {n: (a, f) for n, (a, f) in found.items() if f is not None}


def query_scale_form(c: Call, z: Sizes) -> Form:
    """dequant_scale_query: one number for each row of each head."""
    return Form(
        None,
        (z.batch, z.rows, c.heads)
        if z.axes in ("BSH", "BSND", "TND")
        else (z.batch, c.heads, z.rows),
        (0, 2, 1) if z.axes in ("BSH", "BSND", "TND") else None,
    )


def order(z: Sizes) -> tuple[int, ...]:
    return _ORDERS[z.out_axes]


def out_shape(c: Call, z: Sizes) -> tuple[Any, ...]:
    full = (z.batch, c.heads, z.rows, z.value_width)
    found = tuple(full[i] for i in order(z))
    if z.out_axes == "BSH":
        return (*found[:2], c.heads * z.value_width)
    return found if len(z.out_axes) == 4 else found[1:]


def lse_shape(c: Call, z: Sizes) -> tuple[Any, ...]:
    if not c.lse:
        return (0,)
    if z.packed:
        return (z.rows, c.heads, 1)
    if z.axes == "NSD":
        return (c.heads, z.rows, 1)
    return (z.batch, c.heads, z.rows, 1)


def float_dtype(c: Call) -> torch.dtype:
    """Of the result before it is made int8."""
    if c.out_scale is not None:
        return torch.float32
    if c.query.dtype is torch.int8:
        rope = c.query_rope
        return torch.float16 if rope is None else rope.dtype
    return c.query.dtype  # type: ignore[no-any-return]


def out_dtype(c: Call) -> torch.dtype:
    return torch.int8 if c.out_scale is not None else float_dtype(c)


def out_scale_form(t: torch.Tensor, c: Call, z: Sizes) -> Form | None:
    """Broadcasts to the result before its last view."""
    if t.numel() == 1:
        return Form(None, (1, 1, 1, 1))
    if t.numel() != c.heads * z.value_width:
        return None
    return Form(None, (1, c.heads, 1, z.value_width), order(z))


def numbers(c: Call, z: Sizes) -> Sequence[Any]:
    """scale .. paged_scales of the engine's schema."""
    merged = c.key_scale is None and c.antiquant_scale is not None
    mode = c.antiquant_mode if merged else c.key_mode
    return (
        float(c.scale),
        int(c.sparse_mode),
        int(c.pre_tokens),
        int(c.next_tokens),
        z.packed,
        c.key_scale is not None and mode in PAGED_MODES,
    )
