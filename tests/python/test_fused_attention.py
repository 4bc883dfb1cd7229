"""npu_fused_infer_attention_score, both versions, against float64."""

import pytest
import torch
from fused_reference import reference
from fused_samples import Sample, with_tensors
from helpers import DEVICE, compiled, without_lacking

from torchair import attention, importer, ops
from torchair.attention import arguments, run

attention.register("npu")
npu = torch.ops.npu
SAMPLES = 315


def names(version):
    return "npu_fused_infer_attention_score" + ("_v2" if version == 2 else "")


ON_GPU = DEVICE.type == "cuda"
HALVES = torch.float16, torch.bfloat16


def weights_slack(s, rounding):
    """What weights that are rounded to a dtype change at most: of products by
    pairs, which CPUs have that multiply bf16, and of kernels for halves."""
    if s.dtype not in rounding or s.v.dtype is not s.dtype:
        return 0
    kw = dict(s.named)
    if kw.get("value_shared_prefix") is not None:
        kw["value_shared_prefix"] = kw["value_shared_prefix"].abs()
    sizes, _ = reference(s.q, s.k, s.v.abs(), **kw)
    return sizes * torch.finfo(s.dtype).eps / 2


def check(s, got, rounding=HALVES[not ON_GPU :]):
    """Exact but for one rounding of the result and maybe of weights, sums of
    scores in floats, and for results of 8 bits."""
    want, lse = reference(s.q, s.k, s.v, **s.named)
    out, sums = got
    assert out.shape == want.shape
    if want.dtype is torch.int8:
        assert out.dtype is torch.int8
        assert ((out.int() - want.int()).abs() <= 1).all()
        return
    half = torch.float16 if s.kind == "full" else s.dtype
    assert out.dtype is half
    eps = torch.finfo(half).eps
    slack = 3e-5 if s.kind != "full" else 2e-2  # a weight rounded up or down
    most = weights_slack(s, rounding) + slack + (eps + 1e-5) * want.abs()
    assert ((out.double() - want).abs() <= most).all()
    if not s.kw.get("softmax_lse_flag"):
        assert tuple(sums.shape) == (0,)
        return
    assert sums.dtype is torch.float32 and sums.shape == lse.shape
    torch.testing.assert_close(sums.double(), lse, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", range(SAMPLES))
def test_eager(seed):
    s = Sample(seed)
    op = getattr(npu, names(s.version))
    check(s, op(s.q, s.k, s.v, **s.named))


def test_samples_have_every_argument():
    """And every value of those that have few."""
    names = {1: set(), 2: set()}
    values = {
        "sparse_mode": {0, 1, 2, 3, 4, 9},
        "input_layout": set(arguments.LAYOUT_NAMES),
        "inner_precise": {0, 1, 2, 3},
        "antiquant_mode": {1},
        "key_antiquant_mode": {0, 1, 2, 3, 4, 5},
        "value_antiquant_mode": {0, 1, 2, 3, 4, 5},
    }
    forms, masks = {3, 4, 5}, {1, 2, 3, 4}
    for seed in range(SAMPLES):
        s = Sample(seed)
        names[s.version] |= set(s.named)
        for name, missing in values.items():
            missing.discard(s.kw.get(name))
        if "block_table" in s.kw:
            forms.discard(s.k.dim())
        if "atten_mask" in s.kw:
            masks.discard(s.kw["atten_mask"].dim())
    assert not forms and not masks and not any(values.values()), values
    for version, seen in names.items():
        rows = arguments.rows(version)
        unused = {r.public(version) for r in rows} - seen
        reserved = {"key_rope_antiquant_scale", "dequant_scale_key_rope"}
        reserved |= {"query", "key", "value", "quant_scale_p"}
        reserved |= {n for n in unused if n.endswith("_dtype")} - {"out_dtype"}
        assert unused <= reserved, unused - reserved


# ---- the other ways to it ----

SOME = range(0, SAMPLES, 9)


@pytest.mark.parametrize("seed", SOME)
def test_lengths_as_tensors(seed):
    """torchair.ops: the same results, bit for bit where what computes them does
    not depend on the longest batch; lists will do as well."""
    s = Sample(seed)
    op = getattr(ops, names(s.version))
    want = getattr(npu, names(s.version))(s.q, s.k, s.v, **s.named)
    for given in (with_tensors(s.named), s.named):
        found = op(s.q, s.k, s.v, **given)
        if ON_GPU:
            check(s, found)
            continue
        for got, value in zip(found, want, strict=True):
            assert torch.equal(got, value)


def in_hardware_form(s):
    return any(
        isinstance(t, torch.Tensor) and t.dtype is torch.uint64
        for t in s.kw.values()
    )


@pytest.mark.parametrize("seed", SOME)
def test_compiled(seed, hosts):
    """One operator of the engine, nothing left to torch."""
    s = Sample(seed)
    if in_hardware_form(s):
        pytest.skip("64-bit scales are no tensors of the engine")
    op = getattr(npu, names(s.version))
    fn = compiled(lambda q, k, v, kw: op(q, k, v, **kw))
    check(s, fn(s.q, s.k, s.v, s.named))
    assert hosts() == []


@pytest.fixture
def hosts(monkeypatch):
    """Reasons of the operators that torch computes."""
    found = []
    plain = importer.import_graph

    def keep(*args):
        made = plain(*args)
        found.extend(made.host_nodes)
        return made

    monkeypatch.setattr(importer, "import_graph", keep)
    return lambda: without_lacking(h.op for h in found)


def dense(b=2, s=3, t=20, n=4, nk=2, d=16, dtype=torch.float32):
    q = torch.randn(b, n, s, d, dtype=dtype)
    k, v = (torch.randn(b, nk, t, d, dtype=dtype) for _ in "kv")
    kw = {
        "input_layout": "BNSD",
        "num_heads": n,
        "num_key_value_heads": nk,
        "scale": d**-0.5,
    }
    return q, k, v, kw


def test_lengths_are_data_in_a_compiled_function(hosts):
    q, k, v, kw = dense()
    op = ops.npu_fused_infer_attention_score
    fn = compiled(
        lambda lens: op(q, k, v, actual_seq_lengths_kv=lens, **kw)[0] * 2
    )
    for lens in ([1, 20], [7, 3], [20, 20]):
        want, _ = reference(q, k, v, actual_seq_lengths_kv=lens, **kw)
        got = fn(torch.tensor(lens))
        torch.testing.assert_close(got.double(), want * 2, rtol=0, atol=1e-5)
    assert hosts() == []


@pytest.mark.parametrize("library", [npu, ops])
def test_lengths_that_dynamo_made_dynamic(hosts, library):
    q, k, v, kw = dense()
    op = library.npu_fused_infer_attention_score
    fn = compiled(
        lambda a, b: op(q, k, v, actual_seq_lengths_kv=[a, b], **kw)[0],
        dynamic=True,
    )
    for a, b in ((5, 20), (7, 3), (13, 20)):
        want, _ = reference(q, k, v, actual_seq_lengths_kv=[a, b], **kw)
        got = fn(a, b)
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-5)
    assert hosts() == []


@pytest.mark.host("torch.npu's graphs are of host memory")
@pytest.mark.parametrize("version", (1, 2))
@pytest.mark.parametrize("into", (False, True))
def test_update_of_a_captured_graph(version, into):
    """Lengths change between replays, results lie where they did."""
    from test_npu_record import capture

    q, k, v, kw = dense()
    name = "actual_seq_lengths_kv"
    if version == 2:
        name = "actual_seq_kvlen"
        kw = {
            "input_layout": "BNSD",
            "num_query_heads": 4,
            "num_key_value_heads": 2,
            "softmax_scale": 0.25,
        }
    op = getattr(npu, names(version))
    memory = torch.empty_like(q)

    def call():
        if not into:
            return op(q, k, v, **{name: [1, 1]}, **kw)[0] + 1
        out = [memory, torch.empty(0)]
        workspace = torch.empty(0)
        op.out(q, k, v, **{name: [1, 1]}, **kw, workspace=workspace, out=out)
        return memory + 1

    g, y = capture(call, auto_dispatch_capture=True)
    for lens in ([4, 20], [9, 2]):
        q.normal_()
        g.update([{name: lens}])
        g.replay()
        want, _ = reference(q, k, v, **{name: lens}, **kw)
        torch.testing.assert_close(y.double(), want + 1, rtol=0, atol=1e-5)


def test_sizes_without_data():
    """The Meta functions: the sizes and dtypes of the real thing."""
    for seed in SOME:
        s = Sample(seed)
        op = getattr(npu, names(s.version))
        meta = {
            n: x.to("meta") if isinstance(x, torch.Tensor) else x
            for n, x in s.named.items()
        }
        tensors = (t.to("meta") for t in (s.q, s.k, s.v))
        want = op(s.q, s.k, s.v, **s.named)
        for made, real in zip(op(*tensors, **meta), want, strict=True):
            assert made.shape == real.shape and made.dtype is real.dtype
            assert made.stride() == real.stride()


@pytest.mark.parametrize("dtype", (torch.float32, torch.int8, torch.int32))
@pytest.mark.parametrize("rows", (1, 3, 40))
def test_a_prefix_lies_as_it_likes(dtype, rows):
    """Its strides are not those of the keys behind it."""
    q, k, v, kw = dense(d=64, s=rows)
    prefix = torch.randn(1, 2, 5, 64), torch.randn(1, 2, 5, 64)
    if dtype is not torch.float32:
        each = 8 if dtype is torch.int32 else 1
        draw = [torch.randint(-100, 100, (2, 2, 20, 64 // each)) for _ in "kv"]
        k, v = (x.to(dtype) for x in draw)
        prefix = (x[:1, :, :5] for x in (v, k))
        kw |= {"key_antiquant_scale": torch.ones(1) / 64}
        kw |= {"value_antiquant_scale": torch.ones(1) / 64}
    names = "key_shared_prefix", "value_shared_prefix"
    kw |= {
        name: x.transpose(2, 3).contiguous().transpose(2, 3)
        for name, x in zip(names, prefix, strict=True)
    }
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    want, _ = reference(q, k, v, **kw)
    torch.testing.assert_close(out.double(), want, rtol=1e-6, atol=1e-5)


def test_a_band_means_nothing_where_keys_are_padded():
    q, k, v, kw = dense()
    kw |= {"atten_mask": torch.zeros(1, 1, 3, 20, dtype=torch.bool)}
    kw |= {"pre_tokens": 1, "next_tokens": 1, "actual_seq_lengths_kv": [9, 20]}
    kw |= {"kv_padding_size": torch.tensor([0])}
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    want, _ = reference(q, k, v, **kw)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=1e-5)


def test_scales_of_one_token_are_those_of_its_batch():
    q, _, _, kw = dense(t=1, d=32)
    k, v = (torch.randint(-9, 9, (2, 2, 1, 32)).to(torch.int8) for _ in "kv")
    for part in ("key", "value"):
        kw[f"{part}_antiquant_scale"] = torch.tensor([[0.5], [2.0]])
        kw[f"{part}_antiquant_mode"] = 1
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    want, _ = reference(q, k, v, **kw)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=1e-5)


def test_nothing_to_attend_to():
    q, k, v, kw = dense(t=0)
    out, lse = npu.npu_fused_infer_attention_score(
        q, k, v, **kw, softmax_lse_flag=True
    )
    assert (out == 0).all() and (lse == float("inf")).all()
    q, k, v, kw = dense(b=0)
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    assert out.shape == q.shape


def test_blocks_that_do_not_exist_are_not_read():
    q, _, _, kw = dense(s=1)
    cache = torch.randn(3, 2, 16, 16)
    table = torch.tensor([[0, 900], [-5, 2]], dtype=torch.int32)
    kw |= {"block_table": table, "block_size": 16}
    out, _ = npu.npu_fused_infer_attention_score(
        q, cache, cache, actual_seq_lengths_kv=[30, 30], **kw
    )
    kw["block_table"] = table.clamp(0, 2)
    want, _ = reference(q, cache, cache, actual_seq_lengths_kv=[30, 30], **kw)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=1e-5)


def test_a_tree_over_blocks_of_five_dimensions():
    """It needs no rope there; the one of a chain is sparse_mode 3."""
    q = torch.randn(2, 10, 4, 128, dtype=torch.bfloat16)
    k, v = (torch.randint(-99, 99, (4, 1, 4, 128, 32)) for _ in "kv")
    kw = {
        "num_query_heads": 10,
        "num_key_value_heads": 1,
        "input_layout": "BNSD",
        "softmax_scale": 1e-3,
        "block_table": torch.tensor([[3, 0], [1, 2]], dtype=torch.int32),
        "block_size": 128,
        "actual_seq_kvlen": [201, 130],
        "dequant_scale_key": torch.ones(128, dtype=torch.bfloat16),
        "dequant_scale_value": torch.ones(128, dtype=torch.bfloat16),
    }
    op, k, v = npu.npu_fused_infer_attention_score_v2, k.char(), v.char()
    chain = torch.ones(2, 4, 4, dtype=torch.bool).triu(1)
    out, _ = op(q, k, v, **kw, sparse_mode=9, atten_mask=chain)
    want, _ = op(q, k, v, **kw, sparse_mode=3, atten_mask=MASK.triu(1))
    assert torch.equal(out, want)
    chain[:, 3, 0] = True
    out, _ = op(q, k, v, **kw, sparse_mode=9, atten_mask=chain)
    assert torch.equal(out[:, :, :3], want[:, :, :3])
    assert not torch.equal(out[:, :, 3], want[:, :, 3])


def test_bands_and_caches_at_their_limits():
    q, k, v, kw = dense()
    far = {"pre_tokens": 2**63 - 1, "next_tokens": 2**63 - 1}
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    kw |= {"sparse_mode": 4, "atten_mask": mask}
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw, **far)
    want, _ = reference(q, k, v, **kw, pre_tokens=2**40, next_tokens=2**40)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=1e-5)
    q, _, _, kw = dense(s=1)
    kw |= {"block_table": torch.zeros(2, 1, dtype=torch.int32)}
    kw |= {"block_size": 16, "actual_seq_lengths_kv": [5, 16]}
    none = torch.empty(0, 2, 16, 16)
    out, _ = npu.npu_fused_infer_attention_score(q, none, none, **kw)
    assert (out == 0).all()


def test_scales_of_tokens_belong_to_a_batch_where_rows_follow():
    """Of blocks, by the position of the key in its batch."""
    table = torch.tensor([[1], [0]], dtype=torch.int32)
    k, v = (torch.randint(-9, 9, (2, 16, 64)).to(torch.int8) for _ in "kv")
    kw = {
        "input_layout": "TND",
        "num_heads": 4,
        "num_key_value_heads": 2,
        "block_table": table,
        "block_size": 16,
        "actual_seq_lengths": [2, 5],
        "actual_seq_lengths_kv": [16, 9],
    }
    for part in ("key", "value"):
        kw[f"{part}_antiquant_scale"] = torch.rand(2, 16)
        kw[f"{part}_antiquant_mode"] = 1
    q = torch.randn(5, 4, 32)
    out, _ = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    want, _ = reference(q, k, v, **kw)
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)


# ---- on devices whose attention takes dense caches only ----


@pytest.fixture
def apart(monkeypatch):
    """Tensors of the default device pass for a GPU's."""
    monkeypatch.setattr(run, "_is_on_host", lambda t: False)
    monkeypatch.setattr(attention, "_is_apart", lambda node: True)


@pytest.mark.parametrize("seed", range(SAMPLES))
def test_dense(apart, seed):
    s = Sample(seed)
    op = getattr(npu, names(s.version))
    check(s, op(s.q, s.k, s.v, **s.named), HALVES)


@pytest.mark.parametrize("seed", range(0, SAMPLES, 5))
def test_dense_with_lengths_as_tensors(apart, seed):
    """Which are not looked at: a graph of the device may have them."""
    s = Sample(seed)
    op = getattr(ops, names(s.version))
    check(s, op(s.q, s.k, s.v, **with_tensors(s.named)), HALVES)


@pytest.mark.parametrize("tensors", (False, True))
@pytest.mark.parametrize("mode", ("max-autotune", "reduce-overhead"))
@pytest.mark.parametrize("seed", range(2, SAMPLES, 23))
def test_dense_compiled(apart, seed, mode, tensors):
    """Nodes of the engine, or HOST nodes where it has none."""
    s = Sample(seed)
    if in_hardware_form(s):
        pytest.skip("64-bit scales are no tensors of the engine")
    op = getattr(ops, names(s.version))
    named = with_tensors(s.named) if tensors else s.named
    fn = compiled(lambda q, k, v, kw: op(q, k, v, **kw), mode)
    for _ in range(2):
        check(s, fn(s.q, s.k, s.v, named), HALVES)


def test_dense_is_one_attention_of_the_engine(apart, hosts, graphs):
    """Of half precision, a cache of blocks and lengths that are data."""
    cache = torch.randn(4, 16, 2 * 64).half()
    q = torch.randn(2, 1, 4 * 64).half()
    table = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)
    kw = {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.125}
    kw |= {"block_table": table, "block_size": 16}
    op = ops.npu_fused_infer_attention_score
    fn = compiled(
        lambda lens: op(q, cache, cache, actual_seq_lengths_kv=lens, **kw)[0]
    )
    for lens in ([1, 32], [20, 0]):
        got = fn(torch.tensor(lens))
        want, _ = reference(q, cache, cache, actual_seq_lengths_kv=lens, **kw)
        torch.testing.assert_close(got.double(), want, rtol=1e-3, atol=2e-3)
    assert hosts() == []
    (graph,) = graphs
    core = torch.ops.air.dense_attention.default
    assert [n.target for n in graph.graph.nodes].count(core) == 1


def test_dense_with_lengths_that_dynamo_made_dynamic(apart, hosts):
    q, k, v, kw = dense()
    op = npu.npu_fused_infer_attention_score
    fn = compiled(
        lambda a, b: op(q, k, v, actual_seq_lengths_kv=[a, b], **kw)[0],
        dynamic=True,
    )
    for a, b in ((5, 20), (7, 3), (13, 20)):
        want, _ = reference(q, k, v, actual_seq_lengths_kv=[a, b], **kw)
        torch.testing.assert_close(fn(a, b).double(), want, rtol=0, atol=1e-5)
    assert hosts() == []


def test_dense_of_any_sizes(apart):
    op = npu.npu_fused_infer_attention_score
    fn = compiled(lambda q, k, v, kw: op(q, k, v, **kw)[0], dynamic=True)
    mask = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    for b, s, t in ((2, 3, 20), (3, 7, 33), (4, 5, 9)):
        q, k, v, kw = dense(b=b, s=s, t=t)
        kw |= {"atten_mask": mask, "sparse_mode": 3}
        want, _ = reference(q, k, v, **kw)
        got = fn(q, k, v, kw)
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", (False, True))
def test_dense_rows_are_done_in_pieces(apart, monkeypatch, causal):
    """As many as keep the scores within a limit."""
    from torchair.attention import core

    monkeypatch.setattr(core, "_AT_ONCE", 500)
    q, k, v, kw = dense(s=20)
    kw |= {"softmax_lse_flag": True}
    mask = torch.randint(0, 2, (2, 1, 20, 20)).bool()
    kw |= {"atten_mask": MASK.triu(1), "sparse_mode": 2} if causal else {
        "atten_mask": mask
    }  # fmt: skip
    out, lse = npu.npu_fused_infer_attention_score(q, k, v, **kw)
    want, sums = reference(q, k, v, **kw)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=1e-5)
    torch.testing.assert_close(lse.double(), sums, rtol=0, atol=1e-5)


def test_dense_of_nothing(apart):
    test_nothing_to_attend_to()
    test_blocks_that_do_not_exist_are_not_read()
    test_bands_and_caches_at_their_limits()
    test_a_tree_over_blocks_of_five_dimensions()


# ---- refusals ----

with torch.device(DEVICE):
    MASK = torch.ones(2048, 2048, dtype=torch.bool)
    TABLE = torch.zeros(2, 2, dtype=torch.int32)
    SCALE, PAIR, SEVEN = torch.ones(1), torch.ones(2), torch.ones(7)
    ROPE = torch.ones(2, 4, 3, 64)
REFUSED = (
    ({"input_layout": "BDS"}, "input_layout is 'BDS'; choose one of BSH"),
    ({"input_layout": "BSH"}, "query has 4 dimensions"),
    ({"num_heads": 0}, "num_heads is 0"),
    ({"num_heads": 3}, "num_key_value_heads is 2"),
    ({"num_key_value_heads": 3}, "num_key_value_heads is 3"),
    ({"sparse_mode": 5}, "sparse_mode is 5"),
    ({"sparse_mode": 9}, "sparse_mode is 9"),
    ({"sparse_mode": 2}, "atten_mask is missing"),
    ({"sparse_mode": 3, "atten_mask": MASK[:8, :8]}, "triu"),
    ({"atten_mask": MASK[:2, :20]}, "atten_mask has shape"),
    ({"atten_mask": MASK.float()}, "atten_mask is torch.float32"),
    ({"actual_seq_lengths_kv": [1, 2, 3][:0]}, "has 0 entries for 2"),
    ({"actual_seq_lengths_kv": [21]}, "length of 21; 0 to 20"),
    ({"actual_seq_lengths": [-1, 3]}, "length of -1; 0 to 3"),
    ({"block_table": TABLE, "block_size": 16}, "actual_seq_lengths_kv is mis"),
    (
        {"pse_shift": torch.ones(1, 4, 3, 5, device=DEVICE)},
        "pse_shift has shape",
    ),
    ({"inner_precise": 4}, "inner_precise is 4"),
    ({"query_rope": ROPE}, "key_rope is missing"),
    ({"key_shared_prefix": ROPE[:1, :2, :, :16]}, "value_shared_prefix is"),
    ({"kv_padding_size": SCALE.long()}, "actual_seq_lengths_kv is mis"),
    ({"key_antiquant_scale": SCALE}, "value_antiquant_scale is miss"),
    ({"antiquant_offset": PAIR}, "antiquant_scale is missing"),
    ({"key_antiquant_mode": 6}, "key_antiquant_mode is 6"),
    ({"dequant_scale1": SCALE}, "dequant_scale1 is for an int8 query"),
    ({"quant_offset2": SCALE}, "quant_scale2 is missing"),
    ({"quant_scale2": SEVEN}, "quant_scale2 has shape"),
)


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_refusals_name_the_argument(change, text):
    q, k, v, kw = dense()
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind, match=text):
            npu.npu_fused_infer_attention_score(q, k, v, **{**kw, **change})


def test_another_device_is_refused_by_name():
    """compute() is what eager calls come to."""
    q, k, v, kw = dense()
    with pytest.raises(ValueError, match="key is on meta, query on c.* move"):
        run.compute(1, (q, k.to("meta"), v), kw)


def test_refusals_of_rows_that_follow_each_other():
    q, k = torch.randn(5, 4, 16), torch.randn(9, 4, 16)
    kw = {"num_query_heads": 4, "input_layout": "TND"}
    for ends, text in (
        (None, "actual_seq_qlen is missing"),
        ([2, 4], "the last end must be 5"),
        ([3, 2, 5], "must not decrease"),
        ([5], "actual_seq_kvlen has 2 entries for 1"),
    ):
        with pytest.raises(ValueError, match=text):
            npu.npu_fused_infer_attention_score_v2(
                q, k, k, actual_seq_qlen=ends, actual_seq_kvlen=[4, 9], **kw
            )
    with pytest.raises(ValueError, match="dequant_scale_key is missing"):
        npu.npu_fused_infer_attention_score_v2(
            q,
            k.to(torch.int8),
            k.to(torch.int8),
            actual_seq_qlen=[5],
            actual_seq_kvlen=[9],
            **kw,
        )


def test_every_argument_is_described():
    """docs/attention.md; the dtypes that v2 reserves are not."""
    reserved = {r.name for r in arguments.ROWS if r.type == arguments.DTYPE}
    known = {r.name for r in arguments.ROWS} - reserved
    assert set(arguments.MEANING) == known | {"out_dtype"}
    for version, count in ((1, 40), (2, 45)):
        public = [r.public(version) for r in arguments.rows(version)]
        assert len(public) == len(set(public)) == count


def test_calls_that_were_right_are_not_checked_again(monkeypatch):
    from torchair.attention import checks, run

    monkeypatch.setattr(run, "_known", {})
    plain, seen = checks.check, []
    monkeypatch.setattr(checks, "check", lambda c: seen.append(c) or plain(c))
    q = torch.randn(1, 2, 3, 16)
    score = torch.ops.air.npu_fused_infer_attention_score

    def call(q, heads=2, **more):
        return score(q, q, q, num_heads=heads, input_layout="BNSD", **more)[0]

    first = call(q)
    assert torch.equal(call(q.clone()), first) and len(seen) == 1
    assert not torch.equal(call(q + 1), first) and len(seen) == 1
    call(q, scale=0.5)
    call(torch.randn(2, 2, 3, 16))
    assert len(seen) == 3
    for _ in range(2):  # what is refused stays refused
        with pytest.raises(ValueError):
            call(q, heads=3)
    assert len(seen) == 5
