"""What each process of test_cuda_ranks.py does: `python cuda_comm_cases.py
[CASE]...`, with RANK, WORLD_SIZE, MASTER_PORT and OUT, a folder: a GPU and
NCCL; without GPUs the CPU and gloo, to try the script. Every function case_*
is a test; OUT/<rank>.json takes what they failed with. After a failure the
ranks are out of step, so the rest is not run."""

import copy
import datetime
import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from helpers import compiled, recorded
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import tensor_parallel  # noqa: E402
from tiny_llama import Config, angles  # noqa: E402

MODES = ("max-autotune", "reduce-overhead")
RANK, WORLD = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE"))
GPU = torch.cuda.device_count() >= WORLD
DEVICE = torch.device("cuda", RANK) if GPU else torch.device("cpu")
ROWS = 4096 if GPU else 64  # so that an exchange takes its time
CALLS = 6
SECONDS = 100  # of a case, at most


def check(fn, make, mode, calls=CALLS, tolerance=1e-4):
    """fn of make(i), eager and compiled, which the engine runs."""
    torch._dynamo.reset()
    with recorded() as records:
        run = compiled(fn, mode, fullgraph=True)
        for i in range(calls):
            args = make(i)
            want, got = fn(*args), run(*args)
            torch.testing.assert_close(
                got, want, rtol=tolerance, atol=tolerance
            )
    assert [r.fallback for r in records] == [""] * len(records)
    assert sum(len(r.comms) for r in records) >= 1


def both(fn, make, **more):
    for mode in MODES:
        check(fn, make, mode, **more)


def numbers(*sizes, more=0):
    made = torch.Generator(DEVICE).manual_seed(100 * RANK + more)
    return torch.randn(*sizes, generator=made, device=DEVICE)


# ---- collectives ----


def summed(x):
    dist.all_reduce(x)
    return x


def case_a_sum_between_products():
    def fn(x, w):
        y = summed((x @ w).relu())
        return (y @ w.t()).sum(-1), y * 2

    both(
        fn,
        lambda i: (numbers(ROWS, 256, more=i), numbers(256, 256) / 16),
        tolerance=1e-2,
    )


def case_each_collective():
    def gathered(x):
        out = torch.empty(WORLD * x.shape[0], x.shape[1], device=x.device)
        dist.all_gather_into_tensor(out, x * 2)
        return out + 1

    def listed(x):
        out = [torch.empty_like(x) for _ in range(WORLD)]
        dist.all_gather(out, x * 2)
        return torch.cat(out) + 1

    def scattered(x):
        out = torch.empty(x.shape[0] // WORLD, x.shape[1], device=x.device)
        dist.reduce_scatter_tensor(out, x * 2)
        return out + 1

    def from_last(x):
        y = x * 2
        dist.broadcast(y, WORLD - 1)
        return y + 1

    def exchanged(x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x * 2)
        return out + 1

    def largest(x):
        y = x * 2
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        return y + 1

    for fn in (gathered, listed, scattered, from_last, exchanged, largest):
        both(fn, lambda i: (numbers(ROWS, 128, more=i),), calls=4)


def case_work_beside_the_exchange():
    def fn(x, y, w):
        a, b = summed(x * 2), summed(y + 1)
        beside = (w @ w).softmax(-1)
        return a.cumsum(0), b.relu(), beside

    def make(i):
        return (
            numbers(ROWS, 64, more=i),
            numbers(64, 64, more=i),
            numbers(256, 256, more=i) / 16,
        )

    both(fn, make, tolerance=1e-2)


def case_many_at_once():
    def fn(x):
        return [summed(x * k) + k for k in range(20)]

    both(fn, lambda i: (numbers(ROWS, 16, more=i),))


def case_a_recorded_host_node_reads_it():
    """A convolution is torch's, and in the graph: what it reads is not what
    lay there before it came."""
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 4, 3, padding=1).to(DEVICE).requires_grad_(False)

    def fn(x):
        y = summed(x * 2)
        return conv(y).relu() + conv(summed(x + 1))

    side = ROWS // 16
    both(
        fn,
        lambda i: (numbers(2, 4, side, side, more=i),),
        calls=9,
        tolerance=1e-2,
    )


def case_begun_by_eager_code():
    """What eager code has begun is waited for in the graph."""
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 4, 3, padding=1).to(DEVICE).requires_grad_(False)

    def fn(y):
        return conv(y * 1).relu() + y

    side = ROWS // 16
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode)
        for i in range(8):
            x = numbers(2, 4, side, side, more=i)
            want = fn(functional.all_reduce(x, "sum", dist.group.WORLD) + 0)
            got = run(functional.all_reduce(x, "sum", dist.group.WORLD))
            torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


def case_ranks_with_other_sizes_between():
    """A rank that compiles again does so alone."""

    def fn(x, z):
        return summed(x * 2).relu(), z.softmax(-1)

    def make(i):
        n = 3 + i * (RANK + 1) if i else 3
        return numbers(ROWS, 32, more=i), numbers(n, 7, more=i)

    both(fn, make)


def case_a_group_of_its_own():
    group = dist.new_group(list(range(WORLD)))

    def fn(x):
        y, z = x * 2, x + 1
        dist.all_reduce(y, group=group)
        dist.all_reduce(z)
        return y - z

    both(fn, lambda i: (numbers(ROWS, 32, more=i),))


def case_on_a_side_stream():
    if not GPU:
        return

    def fn(x):
        return summed(x * 2).cumsum(0) + 1

    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        side = torch.cuda.Stream()
        for i in range(CALLS):
            x = numbers(ROWS, 64, more=i)
            want = fn(x)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                got = run(x)
            torch.cuda.current_stream().wait_stream(side)
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-2)


# ---- models ----


def case_a_data_parallel_model():
    """DistributedDataParallel of a compiled model, and compiled itself."""

    def make():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)
        ).to(DEVICE)

    batches = [
        torch.randn(
            8 * WORLD, 64, generator=torch.Generator("cpu").manual_seed(i)
        )
        for i in range(5)
    ]
    whole = make()
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        whole(batch.to(DEVICE)).square().mean().backward()
        optimizer.step()
    for mode in MODES:
        for inside in (True, False):
            torch._dynamo.reset()
            model = make()
            ids = [RANK] if GPU else None
            wrapped = nn.parallel.DistributedDataParallel(
                compiled(model, mode) if inside else model, device_ids=ids
            )
            call = wrapped if inside else compiled(wrapped, mode)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in batches:
                optimizer.zero_grad()
                part = batch.chunk(WORLD)[RANK].to(DEVICE)
                call(part).square().mean().backward()
                optimizer.step()
            for a, b in zip(
                whole.parameters(), model.parameters(), strict=True
            ):
                torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def case_a_tensor_parallel_block():
    width = 1024 if GPU else 64
    config = Config(width=width, heads=8, kv_heads=4, hidden=2 * width)
    whole = tensor_parallel.make_block(config).to(DEVICE)
    part = tensor_parallel.shard(copy.deepcopy(whole), RANK, WORLD)
    table = [t.to(DEVICE) for t in angles(config)]
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(part, mode, fullgraph=True)
        for length in (64, 1, 64, 1, 1):
            made = torch.Generator("cpu").manual_seed(length)
            x = torch.randn(1, length, width, generator=made).to(DEVICE)
            rows = [t[:length] for t in table]
            want, got = whole(x, *rows), run(x, *rows)
            torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-3)


def case_gradients_through_collectives():
    def fn(x, w):
        y = functional.all_reduce(x @ w, "sum", dist.group.WORLD)
        return functional.all_gather_tensor(y.tanh(), 0, dist.group.WORLD)

    # DTensor's way to a gradient: a functional collective has one in autograd
    # only where torch registers it
    from torch.distributed._functional_collectives import (
        all_gather_tensor_autograd,
    )

    def gathered(x, w):
        return all_gather_tensor_autograd(
            (x @ w).tanh(), 0, dist.group.WORLD
        ).sin()

    with torch.no_grad():
        both(fn, lambda i: (numbers(64, 32, more=i), numbers(32, 32)))
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(gathered, mode)
        for i in range(3):
            grads = []
            for call in (gathered, run):
                x = numbers(64, 32, more=i)
                w = numbers(32, 32).requires_grad_()
                call(x, w).square().sum().backward()
                grads.append(w.grad)
            torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)


def case_a_capture_of_the_application():
    """Its graph has the collectives in it."""
    if not GPU:
        return

    def fn(x, w):
        return summed((x @ w).relu()) @ w

    x, w = numbers(256, 256), numbers(256, 256) / 16
    for mode in MODES:
        torch._dynamo.reset()
        run = compiled(fn, mode, fullgraph=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                run(x, w)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = run(x, w)
        for i in range(4):
            x.copy_(numbers(256, 256, more=i))
            graph.replay()
            torch.testing.assert_close(y, fn(x, w), rtol=1e-2, atol=1e-2)


# ---- all of them ----


def main():
    wanted = sys.argv[1:] or [n for n in globals() if n.startswith("case_")]
    limit = datetime.timedelta(seconds=SECONDS)
    if GPU:
        torch.cuda.set_device(RANK)
        dist.init_process_group("nccl", timeout=limit, device_id=DEVICE)
    else:
        dist.init_process_group("gloo", timeout=limit)
    found = {}
    for name in wanted:
        print(name, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            globals()[name]()
            if GPU:
                torch.cuda.synchronize()
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
            print(found[name], flush=True)
        out = Path(os.environ["OUT"]) / f"{RANK}.json"
        out.write_text(json.dumps(found))
        # A rank that failed is out of step with the others.
        failed = [None] * WORLD
        dist.all_gather_object(failed, bool(found[name]))
        if any(failed):
            break
    faulthandler.cancel_dump_traceback_later()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
