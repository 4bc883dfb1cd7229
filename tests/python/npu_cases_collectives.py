"""torch.distributed on tensors of device npu: two processes, by both names of
the backend, called eagerly and compiled."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from helpers import compiled
from torch import nn

import torch_npu
import torch_npu.distributed
import torchair


def _eager(x, rank):
    """name -> (what the call gave, what it had to)"""
    ones = torch.ones(4)
    y = x.clone()
    dist.all_reduce(y)
    yield "all_reduce", y, ones * 3
    y = x.clone()
    dist.all_reduce(y, op=dist.ReduceOp.MAX, async_op=True).wait()
    yield "all_reduce, async", y, ones * 2
    y = x.clone()
    dist.broadcast(y, 1)
    yield "broadcast", y, ones * 2
    several = [torch.empty(4, device="npu") for _ in range(2)]
    dist.all_gather(several, x)
    yield "all_gather", torch.cat(several), torch.cat([ones, ones * 2])
    y = torch.empty(8, device="npu")
    dist.all_gather_into_tensor(y, x)
    yield "all_gather_into_tensor", y, torch.cat([ones, ones * 2])
    y = torch.empty(2, device="npu")
    dist.reduce_scatter_tensor(y, x)
    yield "reduce_scatter_tensor", y, ones[:2] * 3
    y = torch.empty(4, device="npu")
    dist.all_to_all_single(y, x)
    yield "all_to_all_single", y, torch.tensor([1.0, 1.0, 2.0, 2.0])
    y = torch.empty(4, device="npu")
    dist.scatter(y, [x + 1, x + 2] if rank == 0 else None, src=0)
    yield "scatter", y, ones * (rank + 2)
    y = x[::2]  # a view of every other number
    dist.all_reduce(y.contiguous())
    if rank == 0:
        dist.send(x, 1)
    else:
        y = torch.empty(4, device="npu")
        dist.recv(y, 0)
        yield "recv", y, ones


def _compiled(x):
    def fn(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    run = torch.compile(fn, backend=torchair.get_npu_backend(), fullgraph=True)
    return run(x)


def _trained(rank):
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Linear(4, 2).npu())
    net(torch.full((3, 4), rank + 1.0).npu()).sum().backward()
    return net.module.weight.grad


def _rank(rank, path, name):
    dist.init_process_group(
        name, init_method=f"file://{path}", rank=rank, world_size=2
    )
    x = torch.full((4,), rank + 1.0, device="npu")
    for what, got, want in _eager(x, rank):
        assert got.device.type == "npu", what
        torch.testing.assert_close(got.cpu(), want, msg=what)
    got = _compiled(x)
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), torch.full((4,), 7.0))
    grad = _trained(rank)
    torch.testing.assert_close(grad.cpu(), torch.full((2, 4), 4.5))
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["gloo", "hccl"])
def test_two_processes(tmp_path, name):
    torch.multiprocessing.spawn(_rank, (str(tmp_path / "store"), name), 2)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "collective",
    ["all_gather_into_tensor_uneven", "reduce_scatter_tensor_uneven"],
)
def test_one_rank_of_uneven_sizes(collective, mode):
    call = getattr(torch_npu.distributed, collective)

    def fn(x):
        out = torch.empty_like(x)
        call(out, x * 2, [6])
        return out + 1

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        run = compiled(fn, mode, fullgraph=True)
        for i in range(2):
            x = torch.arange(6.0) + i
            assert torch.equal(run(x), x * 2 + 1)
    finally:
        dist.destroy_process_group()


AFTER = """
import torch, torchair
run = torch.compile(lambda x: x.relu() * 2, backend=torchair.get_npu_backend())
x = torch.tensor([-1.0, 3.0])
assert run(x).tolist() == [0, 6]
import torch_npu
assert run(x).tolist() == [0, 6]
assert run(x.npu()).tolist() == [0, 6] and run(x.npu()).device.type == "npu"
"""


def test_the_device_after_a_compilation():
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", AFTER], env=env, check=True)


OTHER = """
import torch.distributed as dist
dist.Backend.register_backend("hccl", print, devices=["hpu"])
import torch_npu
assert dist.Backend._plugins["HCCL"].creator_fn is print
assert dist.Backend.backend_capability["hccl"] == ["hpu"]
"""


def test_another_package_keeps_its_backend():
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", OTHER], env=env, check=True)
