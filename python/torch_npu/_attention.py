"""npu_fusion_attention and npu_rotary_mul: attention and rotary positions of
models that are trained, made of torch's own operators, so that autograd and
compiled graphs see through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

FAR = 2**31 - 1
COMPRESSED = 2048  # rows and columns of the mask of modes 2 to 4
STATISTICS = 8  # the last size of softmax_max and softmax_sum
_RANKS = {"BSH": 3, "SBH": 3, "BSND": 4, "BNSD": 4, "TND": 3}
# layout: the permutation that makes [batch, heads, rows, width] of it once
# the heads are an axis, and back
_ORDERS = {
    "BSH": (0, 2, 1, 3),
    "SBH": (1, 2, 0, 3),
    "BSND": (0, 2, 1, 3),
    "BNSD": (0, 1, 2, 3),
}
_BACK = {**_ORDERS, "SBH": (2, 0, 1, 3)}
_Result = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, int
]

DEFINITIONS = (
    "npu_fusion_attention(Tensor query, Tensor key, Tensor value, "
    "int head_num, str input_layout, Tensor? pse=None, "
    "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., "
    "float keep_prob=1., int pre_tockens=2147483647, "
    "int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
    "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, "
    "int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False) "
    "-> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    "npu_rotary_mul(Tensor self, Tensor r1, Tensor r2, "
    'str rotary_mode="half") -> Tensor',
)


def _fail(op: str, argument: str, text: str) -> None:
    raise RuntimeError(f"{op}: {argument} {text}")


# ---- rotary positions ----


def npu_rotary_mul(
    input: torch.Tensor,
    r1: torch.Tensor,
    r2: torch.Tensor,
    rotary_mode: str = "half",
) -> torch.Tensor:
    """input * r1 + turned * r2; r1, r2: cosines and sines that broadcast to
    input.

    turned: of each pair (a, b) of the last axis (-b, a). Pairs are the two
    halves of it ("half") or neighbours ("interleave"). RuntimeError else.
    """
    width = input.shape[-1]
    if width % 2 != 0:
        _fail("npu_rotary_mul", "input", f"has an odd last size, {width}")
    if rotary_mode == "half":
        a, b = input.chunk(2, -1)
        turned = torch.cat((-b, a), -1)
    elif rotary_mode == "interleave":
        a, b = input[..., 0::2], input[..., 1::2]
        turned = torch.stack((-b, a), -1).flatten(-2)
    else:
        _fail(
            "npu_rotary_mul",
            "rotary_mode",
            f'is {rotary_mode!r}; "half" and "interleave" are known',
        )
    return (input * r1 + turned * r2).to(input.dtype)


# ---- attention ----


def _check(layout: str, heads: int, tensors: Sequence[torch.Tensor]) -> None:
    op = "npu_fusion_attention"
    if layout not in _RANKS:
        _fail(
            op,
            "input_layout",
            f"is {layout!r}; choose one of {', '.join(_RANKS)}",
        )
    if heads <= 0:
        _fail(op, "head_num", f"is {heads}; give the number of query heads")
    for name, t in zip(("query", "key", "value"), tensors, strict=True):
        if t.dim() != _RANKS[layout]:
            _fail(
                op,
                name,
                f"has {t.dim()} dimensions, layout {layout} has "
                f"{_RANKS[layout]}",
            )
        if t.dtype is not tensors[0].dtype:
            _fail(op, name, f"is {t.dtype}, query {tensors[0].dtype}")


def _refuse(given: dict[str, Any]) -> None:
    """What the public description leaves open."""
    for name, (value, why) in given.items():
        if value is not None:
            _fail("npu_fusion_attention", name, f"is not supported: {why}")


def _heads_apart(t: torch.Tensor, layout: str, width: Any) -> torch.Tensor:
    if layout in ("BSH", "SBH"):
        t = t.unflatten(-1, (-1, width))
    return t.permute(_ORDERS[layout])


def _hidden(
    mask: torch.Tensor | None,
    mode: int,
    pre: int,
    following: int,
    rows: Any,
    keys: Any,
    like: torch.Tensor,
) -> torch.Tensor | None:
    """True where a query may not look, [.., rows, keys]; None: nowhere."""
    if mode == 0 and mask is None:
        return None
    if mode == 1 or (mode == 0 and pre >= FAR and following >= FAR):
        return None if mask is None else mask.bool()
    more = keys - rows
    i = torch.arange(rows, device=like.device)[:, None]
    j = torch.arange(keys, device=like.device)[None]
    before, after = {
        2: (FAR, 0),
        3: (FAR, more),
        4: (pre - more, following + more),
    }.get(mode, (pre, following))
    hidden: torch.Tensor = (j - i < -before) | (j - i > after)
    return hidden | mask.bool() if mask is not None and mode == 0 else hidden


def _check_mask(mask: torch.Tensor | None, mode: int) -> None:
    op = "npu_fusion_attention"
    if mode not in range(5):
        _fail(
            op,
            "sparse_mode",
            f"is {mode}; 0 to 4 are computed here, prefixes (5, 6) and outer "
            "bands (7, 8) are not",
        )
    if mode in (2, 3, 4) and (
        mask is None or tuple(mask.shape[-2:]) != (COMPRESSED,) * 2
    ):
        _fail(
            op,
            "atten_mask",
            f"with sparse_mode {mode} is triu(ones(2048, 2048), 1), "
            f"got {None if mask is None else list(mask.shape)}",
        )
    if mode == 1 and mask is None:
        _fail(op, "atten_mask", "is missing: sparse_mode 1 needs it")
    if mask is not None and mask.dtype not in (torch.bool, torch.uint8):
        _fail(op, "atten_mask", f"is {mask.dtype}; bool or uint8 is due")


def _statistics(
    q: torch.Tensor, k: torch.Tensor, hidden: Any, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest score of each row, and the sum of e^(score - largest)."""
    with torch.no_grad():
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scores = q.float() @ k.float().mT * scale
        if hidden is not None:
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        top = scores.amax(-1, keepdim=True)
        total = (scores - top).exp().sum(-1, keepdim=True)
        wide = (*top.shape[:-1], STATISTICS)
        return top.expand(wide).contiguous(), total.expand(wide).contiguous()


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    hidden: Any,
    scale: float,
    keep_prob: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[batch, heads, rows, width] of everything."""
    if q.shape[1] % k.shape[1] != 0:
        _fail(
            "npu_fusion_attention",
            "key",
            f"has {k.shape[1]} heads, which do not divide {q.shape[1]}",
        )
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        None if hidden is None else ~hidden,
        1 - keep_prob,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out, *_statistics(q, k, hidden, scale)


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = FAR,
    next_tockens: int = FAR,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> _Result:
    """(dropout(softmax(scale query key^T, masked)) value, softmax_max,
    softmax_sum, an empty tensor, 0, 0, 0).

    input_layout: BSH, SBH, BSND, BNSD or TND; with TND the two lists are the
    ends of the batches. atten_mask: True hides. softmax_max, softmax_sum:
    float32, [batch, heads, rows, 8], TND [rows, heads, 8]. Dropout draws from
    torch's generator; the seed and offset in the result are 0. RuntimeError
    names what is refused: docs/attention.md.
    """
    tensors = (query, key, value)
    _check(input_layout, head_num, tensors)
    _refuse(
        {
            "pse": (pse, "where it is added is not certain; add it to scores"),
            "padding_mask": (padding_mask, "use atten_mask"),
            "prefix": (prefix, "use atten_mask"),
        }
    )
    _check_mask(atten_mask, sparse_mode)
    if not 0 < keep_prob <= 1:
        _fail("npu_fusion_attention", "keep_prob", "must be in (0, 1]")

    def attend(q: Any, k: Any, v: Any) -> Any:
        hidden = _hidden(
            atten_mask,
            sparse_mode,
            pre_tockens,
            next_tockens,
            q.shape[2],
            k.shape[2],
            q,
        )
        return _attend(q, k, v, hidden, scale, keep_prob)

    if input_layout == "TND":
        parts = _packed(tensors, actual_seq_qlen, actual_seq_kvlen)
        found = [attend(*p) for p in parts]
        out, top, total = (
            torch.cat([x[0].transpose(0, 1) for x in r])
            for r in zip(*found, strict=True)
        )
    else:
        joined = input_layout in ("BSH", "SBH")
        width = query.shape[-1] // (head_num if joined else 1)
        apart = [_heads_apart(t, input_layout, width) for t in tensors]
        out, top, total = attend(*apart)
        out = out.permute(_BACK[input_layout])
        out = (out.flatten(2) if joined else out).contiguous()
    return out, top, total, query.new_empty(0), 0, 0, 0


def _packed(
    tensors: Sequence[torch.Tensor], q_ends: Any, k_ends: Any
) -> list[list[torch.Tensor]]:
    """[1, heads, rows, width] of each batch."""
    every = []
    for name, t, given in (
        ("actual_seq_qlen", tensors[0], q_ends),
        ("actual_seq_kvlen", tensors[1], k_ends),
        ("actual_seq_kvlen", tensors[2], k_ends),
    ):
        if not given:
            _fail("npu_fusion_attention", name, "is missing: TND needs it")
        ends = [int(n) for n in given]
        starts = [0, *ends[:-1]]
        if ends[-1] != t.shape[0] or any(
            b < a for a, b in zip(starts, ends, strict=True)
        ):
            _fail(
                "npu_fusion_attention",
                name,
                f"is {ends}; ends that do not decrease, the last one "
                f"{t.shape[0]}, are due",
            )
        every.append(
            [
                t[a:b].transpose(0, 1)[None]
                for a, b in zip(starts, ends, strict=True)
            ]
        )
    if len(every[0]) != len(every[1]):
        _fail(
            "npu_fusion_attention",
            "actual_seq_kvlen",
            f"has {len(every[1])} batches, actual_seq_qlen {len(every[0])}",
        )
    return [list(p) for p in zip(*every, strict=True)]


def register(fragment: Any) -> None:
    """As torch.ops.npu.*, which modes and autograd see through."""
    for definition in DEFINITIONS:
        fragment.define(definition)
    for fn in (npu_fusion_attention, npu_rotary_mul):
        fragment.impl(fn.__name__, fn, "CompositeImplicitAutograd")
