"""Ranks that go wrong, for test_distributed.py: `python comm_faults.py CASE`
with RANK, WORLD_SIZE and OUT, a folder; prints what a rank sees."""

import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from helpers import compiled


def total(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def attempt(run, *args):
    try:
        print("result", run(*args).tolist())
    except Exception as error:
        print(type(error).__name__, str(error)[:400])


def case_other_sizes(rank, run):
    """Found with TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    attempt(run, torch.ones(3 + 40 * rank))


def case_one_leaves(rank, run):
    attempt(run, torch.ones(3))
    if rank == 1:
        os._exit(0)
    attempt(run, torch.ones(3))
    attempt(run, torch.ones(3))


def case_one_is_late(rank, run):
    """Rank 1 never comes, but lives as long as rank 0."""
    done = Path(os.environ["OUT"]) / "done"
    attempt(run, torch.ones(3))
    if rank == 0:
        attempt(run, torch.ones(3))
        done.touch()
        return
    for _ in range(1200):  # a minute
        if done.exists():
            return
        time.sleep(0.05)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    store = dist.FileStore(os.environ["OUT"] + "/store", world)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=float(os.environ["SECONDS_LEFT"])),
    )
    run = compiled(total, os.environ["MODE"], fullgraph=True)
    globals()[sys.argv[1]](rank, run)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
