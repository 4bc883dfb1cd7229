"""What each process of test_distributed.py does: `python comm_cases.py`, with
RANK, WORLD_SIZE and OUT, a folder. Every function case_* is a test;
OUT/<rank>.json takes what they failed with. After a failure the ranks are out
of step, so the rest is not run."""

import datetime
import json
import os
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from helpers import BEFORE_213, compiled
from torch import nn

import torchair
from torchair import backend

MODES = ("max-autotune", "reduce-overhead")


def calls(rank, world):
    """name -> (function of a tensor [12, 2], collectives it has)."""
    group = dist.group.WORLD
    import torch_npu.distributed as npu

    # rows by rank, 12 in all
    rows = [12 - 5 * (world - 1)] if world < 3 else [12 - 2 * (world - 1)]
    rows += [5 if world < 3 else 2] * (world - 1)

    def all_gather(x):
        out = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(out, x * 2)
        return torch.cat(out) + 1

    def all_gather_scalar(x):
        out = [torch.zeros(()) for _ in range(world)]
        dist.all_gather(out, x.sum())
        return torch.stack(out)

    def all_gather_into_tensor(x):
        out = torch.empty(world * 12, 2)
        dist.all_gather_into_tensor(out, x * 2)
        return out + 1

    def all_reduce(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    def all_reduce_max(x):
        y = x.t() * 2
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        return y.t() + 1

    def all_reduce_input(x):
        dist.all_reduce(x)
        return x + 1

    def all_to_all(x):
        parts = list((x * 2).chunk(world))
        out = [torch.empty_like(p) for p in parts]
        dist.all_to_all(out, parts)
        return torch.cat(out) + 1

    def all_to_all_single(x):
        out = torch.empty(12, 2)
        dist.all_to_all_single(out, x * 2)
        return out + 1

    def all_to_all_uneven(x):
        out = torch.empty(world * rows[rank], 2)
        dist.all_to_all_single(out, x * 2, [rows[rank]] * world, rows)
        return out + 1

    def broadcast(x):
        y = x * 2
        dist.broadcast(y, world - 1)
        return y + 1

    def reduce_scatter_tensor(x):
        out = torch.empty(12 // world, 2)
        dist.reduce_scatter_tensor(out, x * 2)
        return out + 1

    def reduce_scatter(x):
        out = torch.empty(12 // world, 2)
        dist.reduce_scatter(out, list((x * 2).chunk(world)), dist.ReduceOp.MIN)
        return out + 1

    def send_recv(x):
        y = x * 2
        out = torch.zeros_like(y)
        if rank % 2 == 0:
            dist.send(y, rank + 1)
            dist.recv(out, rank + 1)
        else:
            dist.recv(out, rank - 1)
            dist.send(y + out, rank - 1)
        return out + 1

    def gather_uneven(x):
        out = torch.empty(12, 2)
        npu.all_gather_into_tensor_uneven(out, (x * 2)[: rows[rank]], rows)
        return out + 1

    def scatter_uneven(x):
        out = torch.empty(rows[rank], 2)
        npu.reduce_scatter_tensor_uneven(out, x * 2, rows)
        return out + 1

    def functional_forms(x):
        a = functional.all_reduce(x * 2, "sum", group)
        b = functional.all_gather_tensor(x, 0, group)
        c = functional.reduce_scatter_tensor(x, "sum", 0, group)
        d = functional.broadcast(x + 1, 0, group)
        return a + 1, b + 1, c + 1, d + 1

    def coalesced(x):
        a, b = functional.all_reduce_coalesced([x, x.sum(0)], "sum", group)
        (c,) = functional.all_gather_into_tensor_coalesced([x], group)
        return a * 2, b * 2, c * 2

    found = {f.__name__: (f, 1) for f in list(locals().values()) if callable(f)}
    for name, count in (("send_recv", 2), ("functional_forms", 4)):
        found[name] = (found[name][0], count)
    found["coalesced"] = (found["coalesced"][0], 2)
    if not _has_all_to_all(world):
        del found["all_to_all"]
    if BEFORE_213:  # Dynamo traces no send and recv
        del found["send_recv"]
    return found


def _has_all_to_all(world):
    """gloo has the form with lists since torch 2.12."""
    try:
        parts = list(torch.zeros(world, 1))
        dist.all_to_all([torch.empty(1) for _ in parts], parts)
    except RuntimeError as why:
        if "does not support" not in str(why):
            raise
        return False
    return True


def check(name, fn, count, mode, rank):
    torch._dynamo.reset()
    backend.records.clear()
    run = compiled(fn, mode, fullgraph=True)
    for i in range(3):
        x = torch.arange(24.0).view(12, 2) * (rank + 1) + i
        mine, theirs = x.clone(), x.clone()
        got, want = run(mine), fn(theirs)
        torch.testing.assert_close(got, want, rtol=0, atol=0, msg=name)
        assert torch.equal(mine, theirs), name
    (record,) = backend.records
    assert not record.fallback and not record.hosts, (name, record)
    assert len(record.comms) == count, (name, record.comms)


def case_calls_max_autotune(rank, world):
    for name, (fn, count) in calls(rank, world).items():
        check(name, fn, count, MODES[0], rank)


def case_calls_reduce_overhead(rank, world):
    for name, (fn, count) in calls(rank, world).items():
        if world == 2:
            check(name, fn, count, MODES[1], rank)


REDUCTIONS = {
    torch.float64: ("SUM", "AVG", "PRODUCT"),
    torch.float16: ("SUM", "MIN"),
    torch.bfloat16: ("SUM", "MAX"),
    torch.int8: ("SUM", "BAND"),
    torch.uint8: ("PRODUCT", "BOR"),
    torch.int32: ("MIN", "BXOR"),
    torch.int64: ("SUM", "MAX"),
}


def case_dtypes_and_reductions(rank, world):
    if world > 2:
        return

    def reduced(x, op):
        y = x + 0
        dist.all_reduce(y, op=getattr(dist.ReduceOp, op))
        return y

    def fn(xs):
        return [
            reduced(x, op)
            for x, ops in zip(xs, REDUCTIONS.values(), strict=True)
            for op in ops
        ]

    xs = [(torch.arange(6) % 4 + rank + 1).to(t) for t in REDUCTIONS]
    want = fn(xs)
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        for _ in range(2):
            for got, right in zip(run(xs), want, strict=True):
                assert got.dtype is right.dtype and torch.equal(got, right)


def check_modes(fn, x, want, **options):
    """In both modes, several times, for other values too."""
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, **options)
        for i in range(3):
            assert torch.equal(run(x + i), want(x + i)), (fn, mode)


def case_work_that_is_waited_for(rank, world):
    """async_op=True is left to eager code, and right."""
    if world > 2:
        return

    def fn(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 5
        work.wait()
        return y + z

    check_modes(fn, torch.arange(4.0) + rank, fn)


def case_peers_in_one_graph(rank, world):
    """isend, irecv and lists of them, where Dynamo is told to trace them: what
    came is in the tensor that was given."""
    from torch._dynamo import config

    if not hasattr(config, "enable_p2p_compilation"):
        return
    peer = rank ^ 1

    def pair(x):
        out = torch.zeros_like(x)
        works = [dist.irecv(out, peer, tag=3), dist.isend(x * 2, peer, tag=3)]
        for work in works:
            work.wait()
        return out + 1

    def batch(x):
        out, y = torch.zeros_like(x), x * 2
        works = [
            dist.P2POp(dist.isend, y, peer),
            dist.P2POp(dist.irecv, out, peer),
        ]
        for work in dist.batch_isend_irecv(works):
            work.wait()
        return out + 1

    x = torch.arange(4.0) + rank
    for fn in (pair, batch):
        backend.records.clear()
        with config.patch(enable_p2p_compilation=True):
            check_modes(fn, x, fn, fullgraph=True)
        for record in backend.records:
            assert len(record.comms) == 2 and not record.hosts
        check_modes(fn, x, fn)  # breaks the graph


def case_sizes_from_data(rank, world):
    """Experts: how much is exchanged is exchanged first."""

    def fn(x, counts):
        other = torch.empty_like(counts)
        dist.all_to_all_single(other, counts)
        mine, theirs = counts.tolist(), other.tolist()
        out = torch.empty(sum(theirs), 2)
        dist.all_to_all_single(out, x * 2, theirs, mine)
        return out + 1

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = compiled(fn, fullgraph=True)
        for k in (1, 4, 0):
            counts = torch.tensor([k + rank + 2 * i for i in range(world)])
            x = torch.arange(2.0 * int(counts.sum())).view(-1, 2) + rank
            assert torch.equal(run(x, counts), fn(x, counts))


def case_placed_tensors(rank, world):
    """DTensor: torch's own tensor parallel layers, and their gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    whole, x = make(), torch.randn(6, 16)
    want = whole(x)
    want.square().sum().backward()
    part = parallel.parallelize_module(
        make(),
        init_device_mesh("cpu", (world,)),
        {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()},
    )
    for mode in MODES:
        torch._dynamo.reset()
        part.zero_grad()
        got = compiled(part, mode, fullgraph=True)(x)
        torch.testing.assert_close(got, want)
        got.square().sum().backward()
        grad = part[0].weight.grad.full_tensor()
        torch.testing.assert_close(grad, whole[0].weight.grad)


def tell(key):
    dist.distributed_c10d._get_default_store().set(key, "1")


def until(key):
    store = dist.distributed_c10d._get_default_store()
    store.wait([key], datetime.timedelta(seconds=60))


@torch.library.custom_op("comm_cases::told", mutates_args=())
def told(x: torch.Tensor, key: str) -> torch.Tensor:
    tell(key)
    return x.clone()


@told.register_fake
def _(x, key):
    return torch.empty_like(x)


def case_computing_while_a_sum_is_on_its_way(rank, world):
    """The other ranks join when rank 0 has computed its product: it would
    wait for them for ever if it did that after the sum."""

    def fn(x, w, key):
        y = x * 2
        dist.all_reduce(y)
        return y, told(w @ w, key)

    x, w = torch.ones(3) + rank, torch.randn(8, 8)
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        for i in range(2):
            key = f"product {mode} {i}"
            if rank == 0:
                got, product = run(x, w, key)
                torch.testing.assert_close(product, w @ w)
            else:
                until(key)
                got = x * 2
                dist.all_reduce(got)
            want = 2.0 * (world + sum(range(world)))
            assert torch.equal(got, torch.full((3,), want))


def case_halves_are_on_their_way_together(rank, world):
    """cc_parallel: the others join when rank 0 has begun the second half."""
    from torchair import comm

    config = torchair.CompilerConfig()
    config.experimental_config.cc_parallel_enable = True
    config.mode = MODES[0]
    plain, begun = comm.starting, []

    def starting(*args):
        call = plain(*args)

        def start(*given):
            found = call(*given)
            begun.append(1)
            tell(f"half {len(begun)}")
            return found

        return start

    def fn(x, w):
        return functional.all_reduce(x @ w, "sum", dist.group.WORLD)

    torch.manual_seed(0)
    x, w = torch.randn(32, 8), torch.randn(8, 8)
    if rank == 0:
        comm.starting = starting
        try:
            used = torchair.get_npu_backend(compiler_config=config)
            got = torch.compile(fn, backend=used, fullgraph=True)(x, w)
        finally:
            comm.starting = plain
        assert len(begun) == 2
    else:
        until("half 2")
        got = torch.cat([fn(half, w) for half in x.chunk(2)])
    torch.testing.assert_close(got, world * (x @ w))


def case_an_operator_fails_under_way(rank, world):
    """The error comes through, the next runs are right."""

    @torch.library.custom_op("comm_cases::picky", mutates_args=())
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x[0] == 7:
            raise ValueError("seven")
        return x.clone()

    @picky.register_fake
    def _(x):
        return torch.empty_like(x)

    def fn(x, w):
        y = x * 2
        dist.all_reduce(y)
        return y + picky(w)

    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        for v in (1.0, 7.0, 2.0, 7.0, 3.0):
            x, w = torch.full((3,), v) + rank, torch.full((3,), v)
            try:
                got = run(x, w)
            except ValueError as error:
                assert v == 7 and "seven" in str(error)
            else:
                want = 2 * (v * world + sum(range(world))) + v
                assert v != 7 and torch.equal(got, torch.full((3,), want))


def case_stacked_gather(rank, world):
    """gloo's eager call refuses this form."""

    def fn(x):
        out = torch.empty(world, *x.shape)
        dist.all_gather_into_tensor(out, x)
        return out

    x = torch.arange(6.0).view(2, 3) + rank
    got = compiled(fn, fullgraph=True)(x)
    want = torch.stack([x - rank + r for r in range(world)])
    assert torch.equal(got, want)


def case_dynamic_sizes(rank, world):
    def fn(x):
        y = x * 2
        dist.all_reduce(y)
        out = torch.empty(world * y.shape[0], 2)
        dist.all_gather_into_tensor(out, y)
        return out + 1

    backend.records.clear()
    run = compiled(fn, fullgraph=True, dynamic=True)
    for n in (3, 5, 7, 4):
        x = torch.arange(2.0 * n).view(n, 2) + rank
        assert torch.equal(run(x), fn(x))
    assert len(backend.records) == 1


def case_recompile_on_one_rank(rank, world):
    """What only one rank compiles again does not change what it exchanges."""

    def fn(x, y):
        a = x.sum(0)
        dist.all_reduce(a)
        b = (y * 3).sum(0)
        dist.all_reduce(b, op=dist.ReduceOp.MAX)
        return a + b

    run = compiled(fn, fullgraph=True)
    for i in range(5):
        n = 4 + i if rank == 0 else 4
        x, y = torch.arange(2.0 * n).view(n, 2) + i, torch.ones(3, 2) * rank
        assert torch.equal(run(x, y), fn(x, y))


def case_issue_order_and_overlap(rank, world):
    """Ranks trace different computing around the same collectives: all begin
    them in the same order. What needs none runs before the waits."""

    def fn(x, w):
        a = x * 2
        dist.all_reduce(a)
        a = a + 1
        b = x @ w
        for _ in range(rank):
            b = torch.relu(b @ w)
        c = b.sum(0)
        dist.all_reduce(c, op=dist.ReduceOp.MAX)
        d = w.t() @ w
        e = torch.empty(world * 4, 4)
        dist.all_gather_into_tensor(e, d)
        return a, b, c, d, e

    backend.records.clear()
    run = compiled(fn, fullgraph=True)
    x, w = torch.randn(8, 4), torch.randn(4, 4)
    torch.testing.assert_close(run(x, w), fn(x, w))
    lines = backend.records[0].program().text(1).splitlines()
    steps = [line.split(": ")[1] for line in lines if line[:1].isdigit()]
    starts = [s.split()[1] for s in steps if s.startswith("start")]
    found = [None] * world
    dist.all_gather_object(found, starts)
    assert all(other == starts for other in found) and len(starts) == 3
    first_wait = next(i for i, s in enumerate(steps) if s.startswith("wait"))
    before = [s for s in steps[:first_wait] if s.startswith("call mm")]
    assert len(before) == 2 + rank, steps


def case_all_reduce_in_pieces(rank, world):
    """cc_parallel: the second half of a product is computed while the sum of
    the first is on its way."""
    config = torchair.CompilerConfig()
    config.experimental_config.cc_parallel_enable = True
    parallel = torchair.get_npu_backend(compiler_config=config)
    plainly = torchair.get_npu_backend()
    row, plain = nn.Linear(8, 6), nn.Linear(8, 6, bias=False)

    def fn(x, small):
        y = functional.all_reduce(row(x), "sum", dist.group.WORLD)
        z = plain(x)
        dist.all_reduce(z, op=dist.ReduceOp.MAX)
        few = functional.all_reduce(plain(small), "sum", dist.group.WORLD)
        return y.relu(), z + 1, few

    def steps():
        lines = backend.records[0].program().text(1).splitlines()
        found = [line.split(": ")[1] for line in lines if line[:1].isdigit()]
        return [s.split()[0] for s in found if s.startswith(("start", "wait"))]

    for x in (torch.randn(33, 8), torch.randn(2, 9, 8)):
        small = torch.randn(3, 8)
        for used, count in ((parallel, 5), (plainly, 3)):
            torch._dynamo.reset()
            backend.records.clear()
            run = torch.compile(fn, backend=used, dynamic=False)
            with torch.no_grad():
                torch.testing.assert_close(run(x, small), fn(x, small))
            assert steps().count("start") == count, (used, steps())
        torch._dynamo.reset()
        backend.records.clear()
        with torch.no_grad():
            one = torch.compile(
                lambda x: functional.all_reduce(
                    plain(x), "sum", dist.group.WORLD
                ),
                backend=parallel,
            )
            one(x)
        lines = backend.records[0].program().text(1).splitlines()
        found = [line.split(": ")[1] for line in lines if line[:1].isdigit()]
        kinds = [s.split()[0] for s in found]
        first, second = (i for i, k in enumerate(kinds) if k == "start")
        assert "call" in kinds[first:second], found
        assert "wait" not in kinds[first:second], found


def case_subgroups(rank, world):
    pairs = [dist.new_group([r, r + 1]) for r in range(0, world, 2)]
    mine = pairs[rank // 2]
    first = rank - rank % 2

    def fn(x):
        a = x * 2
        dist.all_reduce(a, group=mine)
        b = x * 3
        dist.broadcast(b, first + 1, group=mine)
        if BEFORE_213:
            return a, b
        if rank == first:
            dist.send(x, first + 1, group=mine)
        else:
            dist.recv(b, first, group=mine)
        return a, b

    run = compiled(fn, fullgraph=True)
    x = torch.arange(4.0) + rank
    for got, want in zip(run(x), fn(x), strict=True):
        assert torch.equal(got, want)


def case_bad_group_is_named(rank, world):
    def fn(x):
        y = x * 2
        dist.all_to_all_single(torch.empty(5), y, [5], [4])
        return y

    try:
        compiled(fn, fullgraph=True)(torch.ones(4))
    except Exception as error:
        assert "split" in str(error).lower(), error
    else:
        raise AssertionError("wrong split sizes were taken")


class Enter(torch.autograd.Function):
    """Nothing; gradients are summed over the ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Leave(torch.autograd.Function):
    """The sum over the ranks; nothing to do for gradients."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelMLP(nn.Module):
    """Columns of the first layer and rows of the second, of this rank."""

    def __init__(self, whole, rank, world):
        super().__init__()
        up, down = whole[0].weight.detach(), whole[2].weight.detach()
        self.up = nn.Parameter(up.chunk(world, 0)[rank].clone())
        self.down = nn.Parameter(down.chunk(world, 1)[rank].clone())

    def forward(self, x):
        x = Enter.apply(x)
        h = torch.relu(nn.functional.linear(x, self.up))
        return Leave.apply(nn.functional.linear(h, self.down))


def case_tensor_parallel_mlp(rank, world):
    if BEFORE_213:  # AOTAutograd's own gradient is zero
        return
    torch.manual_seed(0)
    whole = nn.Sequential(
        nn.Linear(16, 32, False), nn.ReLU(), nn.Linear(32, 16, False)
    )
    x = torch.randn(6, 16, requires_grad=True)
    want = whole(x)
    (grad,) = torch.autograd.grad(want.square().sum(), x, retain_graph=True)
    (up,) = torch.autograd.grad(want.square().sum(), whole[0].weight)
    for mode in MODES:
        torch._dynamo.reset()
        part = ParallelMLP(whole, rank, world)
        run = compiled(part, mode, fullgraph=True)
        with torch.no_grad():
            torch.testing.assert_close(run(x), want)
        mine = x.detach().clone().requires_grad_()
        got = run(mine)
        got.square().sum().backward()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(mine.grad, grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            part.up.grad, up.chunk(world, 0)[rank], rtol=1e-4, atol=1e-4
        )


def case_gradients_in_a_compiled_function(rank, world):
    torch.manual_seed(0)
    weights = {"w": torch.randn(8, 4), "b": torch.randn(4)}

    def loss(weights, x):
        return torch.tanh(x @ weights["w"] + weights["b"]).square().mean()

    def step(weights, x):
        grads = torch.func.grad(loss)(weights, x)
        for g in grads.values():
            dist.all_reduce(g)
        return {k: w - 0.1 * grads[k] / world for k, w in weights.items()}

    whole = torch.randn(world * 6, 8)
    want = {
        k: weights[k] - 0.1 * g
        for k, g in torch.func.grad(loss)(weights, whole).items()
    }
    for mode in MODES:
        run = compiled(step, mode, fullgraph=True)
        got = run(weights, whole.chunk(world)[rank])
        torch.testing.assert_close(got, want)


class Layers(nn.Module):
    """Of 1 MB each; Dynamo would not compile a bare nn.Sequential in DDP."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(512, 512) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def gradients(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad for p in model.parameters()]


def case_data_parallel(rank, world):
    """DDP: its optimizer cuts the graph where buckets end."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    whole, x = Layers(), torch.randn(world * 4, 512)
    want = gradients(whole, x)
    run = compiled(DistributedDataParallel(whole, bucket_cap_mb=1))
    for _ in range(2):
        found = gradients(run, x.chunk(world)[rank])
    for part, g in zip(found, want, strict=True):
        torch.testing.assert_close(part, g)
    assert len(backend.records) >= 2


def case_fully_sharded(rank, world):
    """FSDP: parameters are gathered around each compiled layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model, x = Layers(), torch.randn(world * 4, 512)
    want = gradients(model, x)
    mesh = init_device_mesh("cpu", (world,))
    for i, layer in enumerate(model.layers):
        model.layers[i] = fully_shard(compiled(layer), mesh=mesh)
    fully_shard(model, mesh=mesh)
    for _ in range(2):
        found = gradients(model, x.chunk(world)[rank])
    for part, whole in zip(found, want, strict=True):
        torch.testing.assert_close(part.full_tensor(), whole)
    assert backend.records


def case_tensors_in_parts(rank, world):
    """DTensor: a layer by columns, the next one by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import parallel

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 16))
    x = torch.randn(8, 16)
    want = gradients(model, x)
    plan = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    mesh = init_device_mesh("cpu", (world,))
    run = compiled(parallel.parallelize_module(model, mesh, plan))
    for _ in range(2):
        found = gradients(run, x)
    for part, whole in zip(found, want, strict=True):
        torch.testing.assert_close(part.full_tensor(), whole)
    assert backend.records


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=240)
    # A file, not a port: a free one may be taken before it is used.
    store = dist.FileStore(os.environ["OUT"] + "/store", world)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world, timeout=limit
    )
    found = {}
    for name, case in list(globals().items()):
        if not name.startswith("case_"):
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        backend.records.clear()
        try:
            case(rank, world)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
            break
    path = Path(os.environ["OUT"]) / f"{rank}.json"
    path.write_text(json.dumps(found))
    if not any(found.values()):
        dist.destroy_process_group()
    os._exit(0)  # a rank out of step would wait for the others


if __name__ == "__main__":
    main()
