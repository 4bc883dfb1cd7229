"""Calls of npu_fused_infer_attention_score, drawn from a seed."""

import random

import torch
from fused_reference import Case
from helpers import seeded

LAYOUTS = [
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
]
KINDS = [
    "plain",
    "plain",
    "mask",
    "sparse",
    "sparse",
    "paged",
    "paged",
    "channel",
    "token",
    "integers",
    "prefix",
    "padding",
    "pse",
    "rope",
    "rope_paged",
    "lse",
    "out",
    "full",
    "tree",
    "sink",
    "latent8",
]
_V2 = {v1: v2 for v2, v1 in Case.V2.items()}
ONLY_V1 = {"prefix", "padding", "full", "merged"}
ONLY_V2 = {"tree", "sink", "latent8"}
ROPE = {"rope", "rope_paged", "tree", "latent8"}


class Sample:
    """Tensors and keyword arguments of one call, lengths as lists."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.gen = seeded(seed)
        pick = self.rng.choice
        self.kind = KINDS[seed % len(KINDS)]
        self.dtype = pick((torch.float32, torch.float16, torch.bfloat16))
        self.layout = self._layout()
        self.axes = self.layout.split("_")[0]
        self.packed = "T" in self.axes
        self.n, self.nk = pick(
            ((1, 1), (4, 1), (4, 2), (6, 6), (16, 2), (3, 3), (64, 1))
        )
        self.d = pick((16, 32, 48, 64, 96, 128))
        self.b = 1 if self.axes == "NSD" else pick((1, 2, 3))
        self.s = pick((2, 5, 17, 70) if "_" in self.layout else (1, 5, 17, 70))
        self.t = pick((1, 7, 33, 150, 300))
        self.kv_dtype = self.dtype
        self.kw = {
            "input_layout": self.layout,
            "num_heads": self.n,
            "num_key_value_heads": self.nk if pick((0, 1)) else self._zero(),
            "scale": self.d**-0.5,
        }
        self.version = pick((1, 2))
        if self.kind in ONLY_V1:
            self.version = 1
        if self.kind in ONLY_V2:
            self.version = 2
        self._lengths()
        getattr(self, f"_{self.kind}", lambda: None)()
        self._tensors()
        self._more()
        if pick((0, 1)) and self.d != 512:  # not of latent attention
            self.kw["softmax_lse_flag"] = True

    # ---- shapes ----

    def _layout(self):
        pick = self.rng.choice
        if self.kind in ("full", "out"):
            return pick(LAYOUTS[:3])
        if self.kind in ("padding", "prefix", "pse", "channel", "token"):
            return pick(("BSH", "BSND", "BNSD", "BNSD_BSND"))
        if self.kind == "sink":
            return pick(("TND", "NTD_TND"))
        if self.kind == "latent8":
            return pick(("BSH", "BSND", "BNSD", "TND"))
        if self.kind == "paged":
            return pick([x for x in LAYOUTS if x != "NSD"])
        if self.kind == "rope_paged":
            return pick(("BSND", "BNSD", "TND"))
        return pick(LAYOUTS)

    def _zero(self):
        """Leaves num_key_value_heads out: as many as query heads."""
        self.nk = self.n
        return 0

    def randn(self, *size, dtype=None):
        t = torch.randn(size, generator=self.gen)
        return t.to(dtype or self.dtype)

    def randint(self, low, high, size, dtype=torch.int64):
        return torch.randint(low, high, size, generator=self.gen).to(dtype)

    def _draw(self, most, least=0):
        return [self.rng.randint(least, most) for _ in range(self.b)]

    def _lengths(self):
        """Queries [s] and keys [t] of each batch; ends where rows follow."""
        self.q_rows = self._draw(self.s) if self.packed else None
        self.k_rows = self._draw(self.t) if self.packed else None
        if self.packed:
            self.kw["actual_seq_lengths"] = ends(self.q_rows)
            self.kw["actual_seq_lengths_kv"] = ends(self.k_rows)
            return
        if self.rng.random() < 0.4:
            self.kw["actual_seq_lengths_kv"] = self._draw(self.t)
        if self.rng.random() < 0.3:
            one = [self.rng.randint(0, self.s)]
            self.kw["actual_seq_lengths"] = self.rng.choice(
                (one, self._draw(self.s))
            )

    def rows(self, heads, rows, width, batches=None, dtype=None, lens=None):
        """A tensor in the layout of the query."""
        b = batches or self.b
        total = sum(lens) if self.packed else rows
        shape = {
            "BSH": (b, rows, heads * width),
            "BSND": (b, rows, heads, width),
            "BNSD": (b, heads, rows, width),
            "TND": (total, heads, width),
            "NTD": (heads, total, width),
            "NSD": (heads, rows, width),
        }[self.axes]
        return self.stored(shape, dtype or self.dtype)

    def stored(self, shape, dtype):
        if dtype is torch.int8:
            return self.randint(-100, 101, shape, dtype)
        if dtype is torch.int32:
            size = (*shape[:-1], shape[-1] // 8)
            return self.randint(-(2**31), 2**31, size, dtype)
        return self.randn(*shape, dtype=dtype)

    def _tensors(self):
        integers = self.kind in ("full", "latent8")
        q_dtype = torch.int8 if integers else self.dtype
        self.q = self.rows(
            self.n, self.s, self.d, dtype=q_dtype, lens=self.q_rows
        )
        if "block_table" in self.kw:
            return
        width = getattr(self, "dv", self.d)
        self.k = self.rows(
            self.nk, self.t, self.d, dtype=self.kv_dtype, lens=self.k_rows
        )
        self.v = self.rows(
            self.nk, self.t, width, dtype=self.kv_dtype, lens=self.k_rows
        )

    # ---- kinds ----

    def _plain(self):
        self.dv = max(16, self.d // self.rng.choice((1, 2)) // 16 * 16)

    def _mask(self):
        """One of its own, in any of its shapes."""
        keys = self.room + self.rng.choice((0, 16))
        rows, one = self.s, self.s == 1 and not self.packed
        mask = self.randint(0, 3, (self.rng.choice((1, self.b)), 1, rows, keys))
        mask = (mask == 0).to(
            self.rng.choice((torch.bool, torch.int8, torch.uint8))
        )
        if one and mask.shape[0] == self.b and self.rng.random() < 0.5:
            mask = mask[:, 0, 0]
        elif mask.shape[0] == 1 and self.rng.random() < 0.5:
            mask = mask[0]
            if rows > 1 and self.rng.random() < 0.5:
                mask = mask[0]
        self.kw["atten_mask"] = mask
        self.kw["sparse_mode"] = self.rng.choice((0, 1))
        if self.kw["sparse_mode"] == 0 and self.rng.random() < 0.6:
            self._band()

    @property
    def room(self):
        """Keys of a batch at most."""
        if "block_table" in self.kw:
            return self.per_batch * self.block
        prefix = self.kw.get("key_shared_prefix")
        if prefix is None:
            return self.t
        return self.t + prefix.shape[2 if self.axes == "BNSD" else 1]

    def _more(self):
        """Arguments that go with all kinds, or nearly."""
        pick, chance, kw = self.rng.choice, self.rng.random, self.kw
        one = self.s == 1 and not self.packed
        kw["inner_precise"] = pick((0, 1) if one else (0, 1, 2, 3))
        if chance() < 0.2 and "atten_mask" not in kw:
            self._mask()
        if chance() < 0.1 and self.kind not in {*ROPE, "sink", "pse"}:
            shape = pick((1, self.b)), self.n, self.s, self.room
            half = torch.float16 if self.kind == "full" else self.dtype
            kw["pse_shift"] = self.randn(*shape, dtype=half)
        if chance() < 0.15 and self.kind not in {*ROPE, "sink", "out"}:
            self._out()
        if "quant_scale2" in kw and self.version == 2 and chance() < 0.5:
            kw["out_dtype"] = 1
        for name in ("actual_seq_lengths", "actual_seq_lengths_kv"):
            if len(kw.get(name, ())) == self.b > 1 and not self.packed:
                kw[name] = [*kw[name], 0][: self.b + pick((0, 1))]
        for name in "qkv":
            if chance() < 0.2:
                setattr(self, name, strided(getattr(self, name), pick))
        for name, t in kw.items():
            small = isinstance(t, torch.Tensor) and t.numel() < 2**20
            if small and t.dim() > 1 and chance() < 0.15:
                kw[name] = strided(t, pick)

    def _band(self):
        self.kw["pre_tokens"] = self.rng.randint(-3, 40)
        self.kw["next_tokens"] = self.rng.randint(-3, 40)

    def _sparse(self):
        self.kw["sparse_mode"] = self.rng.choice((2, 3, 4))
        if self.kw["sparse_mode"] == 4:
            self._band()
        mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
        shape = self.rng.choice(((), (1,), (1, 1)))
        self.kw["atten_mask"] = mask.view(*shape, 2048, 2048)

    def _paged(self, dtype=None):
        """A cache in blocks, in one of its three layouts."""
        size = self.rng.choice((16, 48, 128, 512))
        self.block = size
        each = -(-self.t // size)
        self.per_batch = each
        self.blocks = self.b * each + 2
        order = torch.randperm(self.blocks, generator=self.gen)
        table = order[: self.b * each].view(self.b, each)
        self.kw["block_table"] = table.to(torch.int32)
        self.kw["block_size"] = size
        self.kw["actual_seq_lengths_kv"] = self._draw(self.t)
        self.form = self.rng.choice(
            ("3",) if self.axes in ("BSH", "BSND") else ("3", "4", "5")
        )
        if self.axes in ("BSH", "BSND") and self.rng.random() < 0.3:
            self.form = "5"
        self.k, self.v = (self.cache(self.d, dtype or self.dtype) for _ in "kv")
        if self.rng.random() < 0.5 and dtype is None:
            self._sparse()

    def cache(self, width, dtype):
        b, n, s = self.blocks, self.nk, self.block
        piece = 32 if dtype is torch.int8 else 16
        shape = {
            "3": (b, s, n * width),
            "4": (b, n, s, width),
            "5": (b, n, width // piece, s, piece),
        }[self.form]
        return self.stored(shape, dtype)

    def _quantised(self, dtype):
        self.kv_dtype = dtype
        unit = 64 if dtype is torch.int32 else 32
        self.d = -(-self.d // unit) * unit
        self.kw["scale"] = self.d**-0.5 / 4

    def _pair(self, *shape, dtype=torch.float32):
        unit = 0.01 if self.kv_dtype is torch.int8 else 0.1
        return (self.randn(*shape, dtype=torch.float32).abs() * unit + unit).to(
            dtype
        )

    def _split(self, shapes, modes, dtypes):
        offsets = self.rng.random() < 0.5
        for part, shape, mode, dtype in zip(
            ("key", "value"), shapes, modes, dtypes, strict=True
        ):
            self.kw[f"{part}_antiquant_scale"] = self._pair(*shape, dtype=dtype)
            self.kw[f"{part}_antiquant_mode"] = mode
            if offsets:
                self.kw[f"{part}_antiquant_offset"] = self.randn(
                    *shape, dtype=dtype
                )

    def _channel(self):
        self._quantised(self.rng.choice((torch.int8, torch.int32)))
        n, d = self.nk, self.d
        shape = self.rng.choice(
            ((1, n, 1, d), (1, n, d), (n, d), (1, n * d), (n * d,), (1,))
        )
        if self.rng.random() < 0.3:  # merged: the first version only
            self.version = 1
            shape = self.rng.choice(((n, 1, d), (n, d), (n * d,), ()))
            self.kw["antiquant_scale"] = self._pair(2, *shape)
            if self.rng.random() < 0.6:
                self.kw["antiquant_offset"] = self.randn(2, *shape)
            return
        self._split([shape] * 2, (0, 0), [self.dtype] * 2)

    def _token(self):
        self._quantised(self.rng.choice((torch.int8, torch.int32)))
        b, n, t, d = self.b, self.nk, self.t, self.d
        f32 = torch.float32
        if self.rng.random() < 0.25:
            self.version = 1
            self.kw["antiquant_scale"] = self._pair(2, b, t)
            self.kw["antiquant_mode"] = 1
            if self.rng.random() < 0.5:
                self.kw["antiquant_offset"] = self.randn(2, b, t, dtype=f32)
            return
        shapes, modes, dtypes = self.rng.choice(
            (
                ([(b, t)] * 2, (1, 1), (f32, f32)),
                ([(1, b, t)] * 2, (1, 1), (f32, f32)),
                ([(n,)] * 2, (2, 2), (self.dtype, self.dtype)),
                ([(b, n, t)] * 2, (3, 3), (f32, f32)),
                ([(n, d), (b, t)], (0, 1), (self.dtype, f32)),
            )
        )
        self._split(shapes, modes, dtypes)

    def _integers(self):
        """An int8 cache in blocks."""
        self._quantised(torch.int8)
        self.axes = self.layout = self.rng.choice(("BSH", "BSND", "BNSD"))
        self.packed = False
        self.kw["input_layout"] = self.layout
        self.kw.pop("actual_seq_lengths", None)
        self._paged(torch.int8)
        mode = self.rng.choice((0, 1, 4, 5))
        room = self.per_batch * self.block
        shape = {
            0: (self.nk, self.d),
            1: (self.b, room),
            4: (self.blocks, self.block),
            5: (self.blocks, self.nk, self.block),
        }[mode]
        self._split([shape] * 2, (mode, mode), [torch.float32] * 2)

    def _prefix(self):
        n, room = self.nk, self.rng.choice((3, 40))
        for name in ("key_shared_prefix", "value_shared_prefix"):
            self.kw[name] = self.rows(n, room, self.d, batches=1)
        if self.rng.random() < 0.6:
            self.kw["actual_shared_prefix_len"] = [self.rng.randint(0, room)]

    def _padding(self):
        pads = self.rng.choice(("q", "k", "qk"))
        if "q" in pads:
            self.kw["query_padding_size"] = torch.tensor(
                [self.rng.randint(0, 2)]
            )
            self.kw["actual_seq_lengths"] = self._draw(self.s)
        if "k" in pads:
            self.kw["kv_padding_size"] = torch.tensor([self.rng.randint(-1, 3)])
            self.kw["actual_seq_lengths_kv"] = self._draw(self.t)

    def _pse(self):
        b = self.rng.choice((1, self.b))
        self.kw["pse_shift"] = self.randn(b, self.n, self.s, self.t + 2)
        if self.rng.random() < 0.4:
            self._sparse()

    def _rope(self):
        self.d = 128
        self.kw["query_rope"] = self.rows(self.n, self.s, 64, lens=self.q_rows)
        self.kw["key_rope"] = self.rows(self.nk, self.t, 64, lens=self.k_rows)
        self.kw["scale"] = 192**-0.5
        if self.rng.random() < 0.5:
            self._sparse()

    def _rope_paged(self):
        """Latent attention: one head of 512 for all queries."""
        self.d, self.nk = 512, 1
        self.kw["num_key_value_heads"] = 1
        self.kw["scale"] = 576**-0.5
        self._paged()
        self.v = self.k
        self.kw["query_rope"] = self.rows(self.n, self.s, 64, lens=self.q_rows)
        self.kw["key_rope"] = self.cache(64, self.dtype)

    def _lse(self):
        self.kw["softmax_lse_flag"] = True
        if self.rng.random() < 0.5:
            self._sparse()

    def _out(self):
        n, d = self.n, getattr(self, "dv", self.d)
        shape = self.rng.choice(((1,), (n, d), (n * d,), (1, n, 1, d)))
        self.kw["quant_scale2"] = self.randn(*shape, dtype=torch.float32) * 30
        if self.rng.random() < 0.5:
            self.kw["quant_offset2"] = self.randn(*shape, dtype=torch.float32)

    def _full(self):
        self.kv_dtype = torch.int8
        self.d = -(-self.d // 32) * 32
        for name, value in (
            ("dequant_scale1", 4e-4),
            ("quant_scale1", 120.0),
            ("dequant_scale2", 2e-4),
        ):
            t = torch.tensor([value])
            if name != "quant_scale1" and self.rng.random() < 0.5:
                t = t.view(torch.int32).to(torch.int64).view(torch.uint64)
            self.kw[name] = t

    def _tree(self):
        self._rope()
        self.kw.pop("pre_tokens", None)
        self.kw["sparse_mode"] = 9
        if self.packed:
            total = sum(n * n for n in self.q_rows)
            self.k_rows = [
                max(a, b) for a, b in zip(self.q_rows, self.k_rows, strict=True)
            ]
            self.kw["actual_seq_lengths_kv"] = ends(self.k_rows)
            self.kw["key_rope"] = self.rows(self.nk, 0, 64, lens=self.k_rows)
            self.kw["atten_mask"] = self.randint(0, 2, (total,), torch.int8)
            return
        self.t = max(self.t, self.s)
        self.kw["key_rope"] = self.rows(self.nk, self.t, 64)
        for name in ("actual_seq_lengths", "actual_seq_lengths_kv"):
            self.kw.pop(name, None)
        self.kw["atten_mask"] = self.randint(
            0, 2, (self.b, self.s, self.s), torch.bool
        )

    def _latent8(self):
        """The same with int8: a scale for each row of queries and head."""
        self.dtype, self.kv_dtype = torch.bfloat16, torch.int8
        self.d, self.nk = 512, 1
        self.kw["num_key_value_heads"] = 1
        self.kw["scale"] = 576**-0.5
        paged = self.rng.random() < 0.5
        if paged:
            self._paged(torch.int8)
        self.kw["query_rope"] = self.rows(self.n, self.s, 64, lens=self.q_rows)
        self.kw["key_rope"] = (
            self.cache(64, self.dtype)
            if paged
            else self.rows(1, self.t, 64, lens=self.k_rows)
        )
        like = {
            "BSH": (self.b, self.s, self.n),
            "BSND": (self.b, self.s, self.n),
            "BNSD": (self.b, self.n, self.s),
            "TND": (sum(self.q_rows or ()), self.n),
        }[self.layout]
        self.kw["dequant_scale_query"] = self._pair(*like)
        self.kw["query_quant_mode"] = 3
        for part in ("key", "value"):
            self.kw[f"{part}_antiquant_scale"] = self._pair(1)

    def _sink(self):
        self.kw["learnable_sink"] = self.randn(self.n, dtype=torch.bfloat16)

    # ---- calls ----

    @property
    def named(self):
        """The keyword arguments by the names of the version."""
        if self.version == 1:
            return dict(self.kw)
        return {_V2.get(n, n): x for n, x in self.kw.items()}


def ends(rows):
    found, total = [], 0
    for n in rows:
        total += n
        found.append(total)
    return found


def with_tensors(kw):
    """Lengths as torchair.ops takes them."""
    names = [
        "actual_seq_lengths",
        "actual_seq_lengths_kv",
        "actual_seq_qlen",
        "actual_seq_kvlen",
        "actual_shared_prefix_len",
    ]
    return {
        n: torch.tensor(x) if n in names and x is not None else x
        for n, x in kw.items()
    }


def strided(t, pick):
    """The same numbers with gaps between the rows, or lying otherwise."""
    how = pick(("gap", 0, -1))
    if how == "gap":
        gap = torch.zeros(*t.shape[:-1], 16, dtype=t.dtype)
        return torch.cat([t, gap], -1)[..., : t.shape[-1]]
    return t.transpose(how, -2).contiguous().transpose(how, -2)
