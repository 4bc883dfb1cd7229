"""What the operator refuses, one function a rule; nothing is computed yet.

Rules look at shapes, dtypes and plain numbers. Lengths in tensors are data:
the engine cuts them to what memory holds.
"""

from __future__ import annotations

from typing import Any

import torch

from . import forms, units
from .arguments import (
    LENGTH_NAMES,
    MAX_BATCHES,
    MAX_BLOCK,
    MAX_GROUP,
    MAX_GROUP_ROPE,
    MAX_HEADS,
    MAX_WIDTH,
    Call,
)
from .forms import LAYOUTS, Sizes
from .units import FLOATS

ROPE_WIDTH, ROPE_QUERIES = 64, (128, 512)
_MASKS = (torch.bool, torch.int8, torch.uint8)
_MODES = {1: (0, 1, 2, 3, 4), 2: (0, 1, 2, 3, 4, 9)}


def _layout(c: Call) -> None:
    if c.input_layout not in LAYOUTS:
        c.fail(
            "input_layout",
            f"is {c.input_layout!r}; choose one of {', '.join(LAYOUTS)}",
        )
    rank = len(LAYOUTS[c.input_layout][0])
    if c.query.dim() != rank:
        c.fail(
            "query",
            f"has {c.query.dim()} dimensions, layout {c.input_layout} has "
            f"{rank}; reshape it or choose another input_layout",
        )
    for name in ("key", "value", "key_rope"):
        t = c.values[name]
        if t is None:
            continue
        if c.block_table is None and t.dim() != rank:
            c.fail(
                name,
                f"has {t.dim()} dimensions, the query has {rank}; without "
                "block_table the two must agree",
            )
        if c.block_table is not None and t.dim() not in (3, 4, 5):
            c.fail(name, "of a paged cache must have 3, 4 or 5 dimensions")


def _heads(c: Call) -> None:
    if c.heads <= 0:
        c.fail("heads", f"is {c.heads}; give the number of query heads")
    if c.kv_heads < 0:
        c.fail("kv_heads", f"is {c.kv_heads}; it must not be negative")
    heads = forms.kv_heads(c)
    most = MAX_GROUP if c.query_rope is None else MAX_GROUP_ROPE
    if c.heads % heads != 0 or c.heads // heads > most:
        c.fail(
            "kv_heads",
            f"is {heads}, the query has {c.heads} heads; it must divide "
            f"them into groups of {most} at most",
        )
    if c.heads > MAX_HEADS:
        c.fail("heads", f"is {c.heads}; {MAX_HEADS} are the most")
    axes = LAYOUTS[c.input_layout][0]
    for name, n in (
        ("query", c.heads),
        ("query_rope", c.heads),
        ("key", heads),
        ("value", heads),
        ("key_rope", heads),
        ("key_prefix", heads),
        ("value_prefix", heads),
    ):
        t = c.values[name]
        if t is None:
            continue
        if c.block_table is not None and name in ("key", "value", "key_rope"):
            where, ok = _paged_heads(t, n)
        elif axes == "BSH":
            where, ok = "the last dimension", t.shape[-1] % n == 0
        else:
            at = axes.index("N")
            where, ok = f"dimension {at}", t.shape[at] == n
        if not ok:
            c.fail(name, f"has shape {list(t.shape)}: {where} must hold {n} "
                         "heads")  # fmt: skip


def _paged_heads(t: torch.Tensor, n: int) -> tuple[str, bool]:
    if t.dim() == 3:
        return "the last dimension", t.shape[-1] % n == 0
    return "dimension 1", t.shape[1] == n


def _dtypes(c: Call) -> None:
    q, k = c.query.dtype, c.key.dtype
    if q is not torch.int8 and q not in FLOATS:
        c.fail("query", f"is {q}; float16, bfloat16, float32 or int8 is due")
    if c.value.dtype is not k:
        c.fail("value", f"is {c.value.dtype}, the key is {k}; make them agree")
    quantised = k in (torch.int8, torch.int32)
    if not quantised and k is not q:
        c.fail("key", f"is {k}, the query is {q}; make them agree")
    if q is torch.int8 and k is not torch.int8:
        c.fail("key", f"is {k}; an int8 query needs an int8 key and value")
    if quantised and q is not torch.int8 and not units.is_scaled(c):
        c.fail("key_scale", f"is missing: the key is {k}, whose unit it gives")
    for name in ("query_rope", "key_rope"):
        t = c.values[name]
        if t is not None and t.dtype not in FLOATS:
            c.fail(name, f"is {t.dtype}; it must be floating point")


def _widths(c: Call, z: Sizes) -> None:
    heads = forms.kv_heads(c)
    paged = c.block_table is not None
    width = (
        forms._cache_width(c.key, heads)
        if paged
        else forms._row_width(c.key, z.axes, heads)
    )
    if width != z.width:
        c.fail("key", f"has heads of {width} elements, the query of {z.width}")
    if z.value_width > z.width:
        c.fail("value", f"has heads of {z.value_width}; {z.width} at most")
    if z.width > MAX_WIDTH:
        c.fail("query", f"has heads of {z.width}; {MAX_WIDTH} are the most")
    unit = {torch.float32: 1, torch.int8: 32, torch.int32: 64}.get(
        c.key.dtype, 16
    )
    if z.width % unit or z.value_width % unit:
        c.fail(
            "query",
            f"has heads of {z.width} (values: {z.value_width}); with "
            f"{c.key.dtype} keys a multiple of {unit} is due",
        )


def _shapes(c: Call, z: Sizes) -> None:
    k, v = c.key.shape, c.value.shape
    token_axes = [i for i, a in enumerate(z.axes) if a in "BST" and i < len(k)]
    if c.block_table is not None:
        token_axes = [0, {3: 1, 4: 2, 5: 3}[len(k)]]
    if len(k) != len(v) or any(k[i] != v[i] for i in token_axes):
        c.fail("value", f"has shape {list(v)}, the key {list(k)}")
    if c.block_table is None and "B" in z.axes and k[0] != z.batch:
        c.fail("key", f"has {k[0]} batches, the query {z.batch}")
    if z.batch > MAX_BATCHES:
        c.fail("query", f"has {z.batch} batches; {MAX_BATCHES} are the most")
    if z.rows == 1 and c.input_layout == "BNSD_BSND":
        c.fail("input_layout", "BNSD_BSND needs more than one row; use BNSD")


# ---- lengths ----


def _list(c: Call, name: str) -> list[Any] | None:
    value = c.values[name]
    return None if isinstance(value, torch.Tensor) else value


def batches(c: Call, z: Sizes) -> Any:
    """Their number; rows that follow each other are counted by lengths."""
    if not z.packed:
        return z.batch
    lens = c.query_lens
    return lens.numel() if isinstance(lens, torch.Tensor) else len(lens)


def _lengths(c: Call, z: Sizes) -> None:
    paged = c.block_table is not None
    for name in LENGTH_NAMES:
        t = c.values[name]
        if isinstance(t, torch.Tensor) and t.dtype not in (
            torch.int64,
            torch.int32,
        ):
            c.fail(name, f"is a tensor of {t.dtype}; int64 is due")
    if z.packed:
        for name in ("query_lens", "key_lens"):
            if c.values[name] is None:
                c.fail(name, f"is missing: layout {c.input_layout} needs it")
        ends = ["query_lens"] if paged else ["query_lens", "key_lens"]
        for name, all_rows in zip(ends, (z.rows, z.tokens), strict=False):
            _check_ends(c, name, all_rows)
    elif paged and c.key_lens is None:
        c.fail("key_lens", "is missing: block_table needs it")
    want = batches(c, z)
    for name in ("query_lens", "key_lens"):
        t = c.values[name]
        if t is None:
            continue
        n = t.numel() if isinstance(t, torch.Tensor) else len(t)
        if n != want and (z.packed or (n != 1 and n < want)):
            c.fail(name, f"has {n} entries for {want} batches")
    if not z.packed:
        _check_range(c, "query_lens", z.rows)
    if not (z.packed and not paged):
        limit = (
            c.block_table.shape[1] * z.tokens
            if c.block_table is not None
            else z.tokens
        )
        _check_range(c, "key_lens", limit)


def _check_ends(c: Call, name: str, total: Any) -> None:
    """Ends of the batches, none before the one in front of it."""
    ends = _list(c, name)
    if ends is None:
        return
    for a, b in zip([0, *ends], ends, strict=False):
        if b < a:
            c.fail(name, f"is {ends}: ends of batches must not decrease")
    if not ends or ends[-1] != total:
        c.fail(name, f"is {ends}: the last end must be {total}, all rows")


def _check_range(c: Call, name: str, most: Any) -> None:
    for n in _list(c, name) or ():
        if n < 0 or n > most:
            c.fail(name, f"has a length of {n}; 0 to {most} fit")


# ---- masks ----


def _mask(c: Call, z: Sizes) -> None:
    m, mode = c.atten_mask, c.sparse_mode
    if mode not in _MODES[c.version]:
        c.fail("sparse_mode", f"is {mode}; it is one of {_MODES[c.version]}")
    if m is not None and m.dtype not in _MASKS:
        c.fail("atten_mask", f"is {m.dtype}; bool, int8 or uint8 is due")
    if m is None and mode != 0 and not (z.one_row and c.query_rope is None):
        c.fail("atten_mask", f"is missing: sparse_mode {mode} needs it")
    if m is None:
        return
    if mode == 9:
        _tree_mask(c, z, m)
    elif mode >= 2 and not (z.one_row and not forms.is_compressed(m)):
        if not forms.is_compressed(m) or any(n != 1 for n in m.shape[:-2]):
            c.fail(
                "atten_mask",
                f"has shape {list(m.shape)}; sparse_mode {mode} takes the "
                "compressed one, triu(ones(2048, 2048), 1)",
            )
    else:
        _full_mask(c, z, m)


def _tree_mask(c: Call, z: Sizes, m: torch.Tensor) -> None:
    ok = (
        m.dim() == 1
        if z.packed
        else tuple(m.shape) == (z.batch, z.rows, z.rows)
    )
    if not ok:
        c.fail(
            "atten_mask",
            f"has shape {list(m.shape)}; sparse_mode 9 takes (batches, rows, "
            "rows), or one dimension with layout TND",
        )
    if c.query_rope is None and c.key.dim() != 5:
        c.fail(
            "sparse_mode",
            "9 needs query_rope and key_rope, or blocks of five dimensions",
        )


def _key_room(c: Call, z: Sizes) -> Any:
    """Keys of a batch at most, as masks count them."""
    if c.block_table is not None:
        return c.block_table.shape[1] * z.tokens
    return 0 if z.packed else z.tokens


def _full_mask(c: Call, z: Sizes, m: torch.Tensor) -> None:
    s = tuple(m.shape)
    one = z.one_row
    heads = {4: s[:2], 3: (s[0], 1)}.get(len(s), (1, 1))
    n = batches(c, z)
    ok = len(s) in (2, 3, 4) and heads[0] in (1, n) and heads[1] == 1
    if ok and len(s) == 2 and one:
        ok = s[0] == n
    elif ok:
        ok = z.packed or s[-2] >= z.rows
    if not ok or s[-1] < _key_room(c, z):
        c.fail(
            "atten_mask",
            f"has shape {list(s)}; (1 or {n}, 1, rows, keys) with at least "
            f"{z.rows} rows and {_key_room(c, z)} keys is due",
        )


def _pse(c: Call, z: Sizes) -> None:
    t = c.pse_shift
    if t is None:
        return
    want = torch.float16 if c.query.dtype is torch.int8 else c.query.dtype
    if t.dtype is not want:
        c.fail("pse_shift", f"is {t.dtype}; {want} is due")
    s = tuple(t.shape)
    if (
        len(s) != 4
        or s[0] not in (1, batches(c, z))
        or s[1] != c.heads
        or (not z.packed and s[2] < z.rows)
        or s[3] < _key_room(c, z)
    ):
        c.fail("pse_shift", f"has shape {list(s)}; (1 or batches, {c.heads}, "
                            "rows, keys) is due")  # fmt: skip


# ---- caches of blocks ----


def _paging(c: Call, z: Sizes) -> None:
    table = c.block_table
    if table is None:
        return
    if table.dim() != 2 or table.dtype is not torch.int32:
        c.fail(
            "block_table",
            f"is {table.dtype} of {table.dim()} dimensions; int32, "
            "(batches, blocks of a batch) is due",
        )
    if table.shape[0] != batches(c, z):
        c.fail("block_table", f"has {table.shape[0]} rows for "
                              f"{batches(c, z)} batches")  # fmt: skip
    size = c.block_size
    if size <= 0 or size % 16 or size > MAX_BLOCK:
        c.fail(
            "block_size",
            f"is {size}; a multiple of 16 up to {MAX_BLOCK} is due",
        )
    if z.tokens != size:
        c.fail("block_size", f"is {size}, blocks of the key have {z.tokens}")
    if c.key.dim() == 4 and z.axes in ("BSH", "BSND"):
        c.fail(
            "key",
            f"of shape (blocks, heads, tokens, width) does not go with layout "
            f"{c.input_layout}; use (blocks, tokens, heads * width)",
        )


# ---- what does not go together ----

_EXCLUDED = (
    (
        "block_table",
        ("query_padding", "key_padding", "key_prefix", "dequant_scale1"),
    ),
    ("query_rope", ("pse_shift", "key_prefix", "query_padding", "key_padding")),
    ("query_rope", ("antiquant_scale", "out_scale")),
    ("key_prefix", ("query_padding", "key_padding", "dequant_scale1")),
    ("sink", ("pse_shift", "out_scale", "key_scale")),
)


def _together(c: Call, z: Sizes) -> None:
    for one, others in _EXCLUDED:
        for other in others:
            if c.values[one] is not None and c.values[other] is not None:
                c.fail(other, f"does not go with {c.public(one)}")
    for a, b in (
        ("query_rope", "key_rope"),
        ("key_rope", "query_rope"),
        ("key_prefix", "value_prefix"),
        ("value_prefix", "key_prefix"),
    ):
        if c.values[a] is not None and c.values[b] is None:
            c.fail(b, f"is missing: {c.public(a)} is given")
    for pad, lens in (
        ("query_padding", "query_lens"),
        ("key_padding", "key_lens"),
    ):
        if c.values[pad] is None:
            continue
        if c.values[lens] is None:
            c.fail(lens, f"is missing: {c.public(pad)} needs it")
        if z.packed:
            c.fail(pad, f"does not go with layout {c.input_layout}")
        if c.values[pad].numel() != 1:
            c.fail(pad, "must be a tensor of one int64")


def _rope(c: Call, z: Sizes) -> None:
    if c.query_rope is None:
        return
    if z.width not in ROPE_QUERIES:
        c.fail("query", f"has heads of {z.width}; with query_rope "
                        f"{ROPE_QUERIES} are known")  # fmt: skip
    if z.width == 512 and c.lse:
        c.fail("lse", "does not go with query_rope and heads of 512")
    for name, heads in (("query_rope", c.heads), ("key_rope", None)):
        t = c.values[name]
        n = forms.kv_heads(c) if heads is None else heads
        width = (
            forms._cache_width(t, n)
            if heads is None and c.block_table is not None
            else forms._row_width(t, z.axes, n)
        )
        if width != ROPE_WIDTH:
            c.fail(name, f"has heads of {width}; {ROPE_WIDTH} are due")
    rows = tuple(c.query.shape[:-1])
    if tuple(c.query_rope.shape[:-1]) != rows:
        c.fail("query_rope", f"has shape {list(c.query_rope.shape)}; that of "
                             "the query but for the last is due")  # fmt: skip
    plain = c.key.dim() < 5
    if plain and tuple(c.key_rope.shape[:-1]) != tuple(c.key.shape[:-1]):
        c.fail("key_rope", f"has shape {list(c.key_rope.shape)}; that of the "
                           "key but for the last is due")  # fmt: skip


def _prefix(c: Call, z: Sizes) -> None:
    for name, of in (("key_prefix", "key"), ("value_prefix", "value")):
        t = c.values[name]
        if t is None:
            continue
        if t.dim() != c.key.dim() or t.shape[0] != 1 or z.packed:
            c.fail(name, f"has shape {list(t.shape)}; one batch in the "
                         "layout of the key is due")  # fmt: skip
        if t.dtype is not c.key.dtype or t.shape[-1] != c.values[of].shape[-1]:
            c.fail(name, f"must have the dtype and width of {c.public(of)}")


def _sink(c: Call, z: Sizes) -> None:
    if c.sink is None:
        return
    if tuple(c.sink.shape) != (c.heads,):
        c.fail("sink", f"has shape {list(c.sink.shape)}; ({c.heads},) is due")
    if c.sink.dtype not in FLOATS:
        c.fail("sink", f"is {c.sink.dtype}; it must be floating point")
    if c.input_layout not in ("TND", "NTD_TND") or z.value_width > 128:
        c.fail("sink", "needs layout TND or NTD_TND and values of 128 at most")


def _precision(c: Call, z: Sizes) -> None:
    most = 1 if z.one_row else 3
    if not 0 <= c.inner_precise <= most:
        c.fail("inner_precise", f"is {c.inner_precise}; 0 to {most} are known")


_FIRST = (_layout, _heads, _dtypes)
_RULES = (
    _widths,
    _shapes,
    _lengths,
    _mask,
    _pse,
    _paging,
    *units.RULES,
    _together,
    _rope,
    _prefix,
    _sink,
    _precision,
)


def check(c: Call) -> Sizes:
    """FusedAttentionError names the argument and what to do."""
    for rule in _FIRST:
        rule(c)
    z = forms.sizes(c)
    for check_one in _RULES:
        check_one(c, z)
    return z
