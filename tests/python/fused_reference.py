"""npu_fused_infer_attention_score in float64, batch by batch, head by head,
straight from its description; for tests. Lengths are lists."""

import math

import torch

AXES = {"BSH": "BSND", "NSD": "BNSD"}  # once the heads are apart


def unpack4(t):
    """int32 -> eight times as many 4-bit integers, the lowest first."""
    shifts = torch.arange(0, 32, 4)
    found = t.to(torch.int64)[..., None] >> shifts & 15
    return ((found ^ 8) - 8).flatten(-2)


def integers(t):
    return unpack4(t) if t.dtype == torch.int32 else t


def by_batch(t, layout, heads, ends=None):
    """[heads, rows, width] of each batch."""
    t = integers(t)
    if layout == "BSH":
        t = t.unflatten(-1, (heads, -1))
    axes = AXES.get(layout, layout)
    if layout == "NSD":
        t = t[None]
    if "T" in axes:
        t = t if axes == "NTD" else t.transpose(0, 1)
        starts = [0, *ends][:-1]
        return [t[:, a:b] for a, b in zip(starts, ends, strict=True)]
    return list(t if axes == "BNSD" else t.transpose(1, 2))


def blocks_of(t, heads):
    """[blocks, heads, tokens, width] of a cache."""
    t = integers(t)
    if t.dim() == 3:
        return t.unflatten(-1, (heads, -1)).transpose(1, 2)
    if t.dim() == 5:
        return t.transpose(2, 3).flatten(3)
    return t


def paged(t, heads, table):
    found = blocks_of(t, heads)
    return [found[row.long()].transpose(0, 1).flatten(1, 2) for row in table]


def scale_of(t, mode, heads, width, batch, table):
    """Broadcasts to [heads, tokens, width] of a batch."""
    if mode == 0:
        return t.reshape(1, 1, 1) if t.numel() == 1 else t.reshape(
            heads, 1, width
        )  # fmt: skip
    if mode == 1:
        return t.reshape(t.shape[-2:])[batch][None, :, None]
    if mode == 2:
        return t[:, None, None]
    if mode == 3:
        return t[batch][:, :, None]
    rows = t[table[batch].long()]  # [blocks, tokens] or [blocks, heads, tokens]
    if mode == 4:
        return rows.flatten()[None, :, None]
    return rows.transpose(0, 1).flatten(1)[:, :, None]


def numbers(x, scale, offset, mode, heads, batch, table):
    """Integers of a cache as what they stand for."""
    x = x.double()
    if scale is None:
        return x
    args = mode, heads, x.shape[-1], batch, table
    if offset is not None:
        x = x + scale_of(offset.double(), *args)
    return x * scale_of(scale.double(), *args)


def visible(mode, mask, pre, following, rows, keys, *, one, batch, start):
    """[rows, keys] of True where a query sees a key."""
    i = torch.arange(rows)[:, None]
    j = torch.arange(keys)[None]
    seen = torch.ones(rows, keys, dtype=torch.bool)
    compressed = mask is not None and mask.shape[-2:] == (2048, 2048)
    if one:
        mode = 1
    if mode == 0 and mask is not None:
        seen = (j - i >= -pre) & (j - i <= following)
    elif mode == 2:
        seen = j <= i
    elif mode == 3:
        seen = j - i <= keys - rows
    elif mode == 4:
        more = keys - rows
        seen = (j - i >= more - pre) & (j - i <= following + more)
    if mask is None or (compressed and mode != 9):
        return seen
    if mode == 9:
        own = mask[start : start + rows * rows].view(rows, rows) if (
            mask.dim() == 1
        ) else mask[batch][:rows, :rows]  # fmt: skip
        seen = seen.clone()
        seen[:, keys - rows :] &= own == 0
        return seen
    m = mask.reshape(-1, *mask.shape[-2:])
    m = m[batch if m.shape[0] > 1 else 0]
    return seen & (m[:rows, :keys] == 0)


def attend(q, k, v, scale, bias, seen, sink, weight_scale):
    """One head: [rows, width], [rows]."""
    s = q @ k.T * scale + bias
    s = s.masked_fill(~seen, -math.inf)
    none = ~seen.any(-1)
    top = s.amax(-1, keepdim=True) if k.shape[0] else torch.zeros(
        q.shape[0], 1, dtype=torch.float64
    )  # fmt: skip
    top = top.masked_fill(none[:, None], 0)
    w = (s - top).exp()
    total = w.sum(-1, keepdim=True)
    if sink is not None:
        total = total + (sink - top).exp()
    w = (w / total).masked_fill(none[:, None], 0)
    if weight_scale is not None:
        w = (w * weight_scale).round().clamp(-128, 127)
    lse = (top + total.log())[:, 0].masked_fill(none, math.inf)
    return w @ v, lse


def hardware(t):
    """A number, or the bits of one in 64."""
    if t is not None and t.dtype in (torch.int64, torch.uint64):
        t = t.view(torch.float32)[:1]
    return None if t is None else t.double().reshape(())


class Case:
    """A call by the names of the first version, as the second has them too."""

    V2 = {
        "actual_seq_qlen": "actual_seq_lengths",
        "actual_seq_kvlen": "actual_seq_lengths_kv",
        "dequant_scale_key": "key_antiquant_scale",
        "dequant_offset_key": "key_antiquant_offset",
        "dequant_scale_value": "value_antiquant_scale",
        "dequant_offset_value": "value_antiquant_offset",
        "key_quant_mode": "key_antiquant_mode",
        "value_quant_mode": "value_antiquant_mode",
        "quant_scale_out": "quant_scale2",
        "quant_offset_out": "quant_offset2",
        "num_query_heads": "num_heads",
        "softmax_scale": "scale",
        "return_softmax_lse": "softmax_lse_flag",
    }

    def __init__(self, q, k, v, kwargs):
        self.q, self.k, self.v = q, k, v
        self.args = {self.V2.get(n, n): x for n, x in kwargs.items()}

    def __getattr__(self, name):
        return self.args.get(name)

    @property
    def layout(self):
        return (self.input_layout or "BSH").split("_")[0]

    @property
    def result(self):
        return (self.input_layout or "BSH").split("_")[-1]

    def caches(self, heads):
        """Rows of keys, values and rope keys of each batch."""
        parts = self.k, self.v, self.key_rope
        if self.block_table is not None:
            return [
                None if t is None else paged(t, heads, self.block_table)
                for t in parts
            ]
        ends = self.actual_seq_lengths_kv if "T" in self.layout else None
        return [
            None if t is None else by_batch(t, self.layout, heads, ends)
            for t in parts
        ]

    def scales(self, index):
        """Scale, offset and mode of keys (0) or values (1)."""
        part = ("key", "value")[index]
        scale = self.args.get(f"{part}_antiquant_scale")
        if scale is not None:
            return (
                scale,
                self.args.get(f"{part}_antiquant_offset"),
                self.args.get(f"{part}_antiquant_mode", 0),
            )
        if self.antiquant_scale is None:
            return None, None, 0
        offset = self.antiquant_offset
        return (
            self.antiquant_scale[index],
            None if offset is None else offset[index],
            self.antiquant_mode or 0,
        )


def windows(lengths, batches, room, padding, one):
    """[start, end) of the rows of each batch."""
    if lengths is None or one:
        lengths = [room]
    if len(lengths) == 1:
        lengths = list(lengths) * batches
    found = []
    for n in lengths[:batches]:
        if padding is None:
            found.append((0, n))
            continue
        start = room - max(int(padding), 0) - n
        found.append((start, start + n) if start >= 0 else (0, 0))
    return found


def is_one_row(c):
    """One query in each batch, whatever the lengths say."""
    axes = AXES.get(c.layout, c.layout)
    at = 1 if c.layout == "NSD" else axes.find("S")
    return at >= 0 and c.q.shape[at] == 1


def reference(query, key, value, **kwargs):
    """(result in float64 or int8, lse) with zeros and +inf in rows that are no
    batch's or see nothing."""
    c = Case(query, key, value, kwargs)
    heads = c.num_heads
    kv_heads = c.num_key_value_heads or heads
    packed = "T" in c.layout
    mask = c.atten_mask
    own = mask is not None and tuple(mask.shape) != (2048, 2048)
    if own and mask.dim() == 2 and is_one_row(c):
        mask = mask[:, None, None]  # of each batch
    ends = c.actual_seq_lengths if packed else None
    queries = by_batch(query, c.layout, heads, ends)
    ropes = (
        by_batch(c.query_rope, c.layout, heads, ends)
        if c.query_rope is not None
        else None
    )
    keys, values, key_ropes = c.caches(kv_heads)
    one = is_one_row(c)
    n = len(queries)
    every = [(0, x.shape[1]) for x in queries]
    if not packed:
        every = windows(
            c.actual_seq_lengths,
            n,
            queries[0].shape[1],
            None if one else c.query_padding_size,
            one,
        )
    cached = [(0, x.shape[1]) for x in keys]
    if not packed or c.block_table is not None:
        cached = windows(
            c.actual_seq_lengths_kv,
            n,
            keys[0].shape[1],
            c.kv_padding_size,
            False,
        )
    padded = (c.query_padding_size, c.kv_padding_size) != (None, None)
    factor = hardware(c.dequant_scale1)
    weight, after = hardware(c.quant_scale1), hardware(c.dequant_scale2)
    outs, sums, squares = [], [], 0
    for b in range(n):
        (q0, q1), (k0, k1) = every[b], cached[b]
        full_k = [
            numbers(x[b], *c.scales(i), kv_heads, b, c.block_table)
            for i, x in enumerate((keys, values))
        ]
        k, v = (x[:, k0:k1] for x in full_k)
        if c.key_shared_prefix is not None:
            k, v = (
                torch.cat([prefix_of(c, i, kv_heads), x], 1)
                for i, x in enumerate((k, v))
            )
        q = queries[b][:, q0:q1].double()
        if c.dequant_scale_query is not None:
            unit = c.dequant_scale_query.double()
            unit = by_batch(unit[..., None], c.layout.replace(
                "BSH", "BSND"), heads, ends)[b]  # fmt: skip
            q = q * unit[:, q0:q1]
        if ropes is not None:
            q = torch.cat([q, ropes[b][:, q0:q1].double()], -1)
            k = torch.cat([k, key_ropes[b][:, k0:k1].double()], -1)
        if factor is not None:
            q, v = q * factor, v * after
        rows, total = q.shape[1], k.shape[1]
        seen = visible(
            c.sparse_mode or 0,
            mask,
            2**40 if padded else c.args.get("pre_tokens", 2**40),
            2**40 if padded else c.args.get("next_tokens", 2**40),
            rows,
            total,
            one=one and ropes is None,
            batch=b,
            start=squares,
        )
        squares += rows * rows
        size = queries[b].shape[1]
        out = torch.zeros(heads, size, v.shape[-1], dtype=torch.float64)
        lse = torch.full((heads, size), math.inf, dtype=torch.float64)
        for h in range(heads):
            g = h // (heads // kv_heads)
            bias = 0.0
            if c.pse_shift is not None:
                at = b if c.pse_shift.shape[0] > 1 else 0
                bias = c.pse_shift[at, h, :rows, :total].double()
            sink = c.learnable_sink
            out[h, q0:q1], lse[h, q0:q1] = attend(
                q[h],
                k[g],
                v[g],
                c.args.get("scale", 1.0),
                bias,
                seen,
                None if sink is None else sink[h].double(),
                weight,
            )
        outs.append(out)
        sums.append(lse)
    return arrange(c, outs, heads), lse_of(c, sums)


def prefix_of(c, index, heads):
    t = (c.key_shared_prefix, c.value_shared_prefix)[index]
    scale, offset, mode = c.scales(index)
    x = by_batch(t, c.layout, heads)[0]
    x = numbers(x, scale, offset, mode, heads, 0, None)
    lens = c.actual_shared_prefix_len
    return x if lens is None else x[:, : lens[0]]


def arrange(c, outs, heads):
    if "T" in c.layout:
        full = torch.cat(outs, 1)
        full = full if c.result == "NTD" else full.transpose(0, 1)
    else:
        full = torch.stack(outs)  # [batch, heads, rows, width]
        if c.result == "NBSD":
            full = full.transpose(0, 1)
        elif c.result == "NSD":
            full = full[0]
        elif c.result in ("BSH", "BSND"):
            full = full.transpose(1, 2)
    if c.quant_scale2 is not None:
        full = quantised(c, full, heads)
    return full.flatten(-2) if c.result == "BSH" else full


def quantised(c, full, heads):
    at = {"BNSD": 1, "NBSD": 0, "NTD": 0, "NSD": 0}.get(
        c.result, full.dim() - 2
    )

    def along(t):
        if t.numel() == 1:
            return t.double().reshape(())
        shape = [1] * full.dim()
        shape[at], shape[-1] = heads, full.shape[-1]
        return t.double().reshape(shape)

    full = full * along(c.quant_scale2)
    if c.quant_offset2 is not None:
        full = full + along(c.quant_offset2)
    return full.round().clamp(-128, 127).to(torch.int8)


def lse_of(c, sums):
    if "T" in c.layout:
        return torch.cat(sums, 1).T[..., None]
    if c.layout == "NSD":
        return sums[0][..., None]
    return torch.stack(sums)[..., None]
