"""A Llama block whose matrices are spread over processes.

    torchrun --nproc-per-node 2 examples/tensor_parallel.py
    python examples/tensor_parallel.py --ranks 2            # starts them itself
    python examples/tensor_parallel.py --device cuda        # a GPU each, NCCL

Each rank has some of the heads and some of the hidden channels: columns of the
first matrices, rows of the second, and a sum over the ranks behind each pair.
The compiled block is one graph with two collectives; it is checked against the
whole block on one process, and timed beside eager.
"""

import argparse
import os
import socket

import measure
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from tiny_llama import Block, Config, angles
from torch import nn

import torchair

COLUMNS = "query", "key", "value", "gate", "up"  # cut along outputs
ROWS = "out", "down"  # cut along inputs, summed over the ranks


class SummedLinear(nn.Module):
    """Rows of a matrix: every rank gets the product with the whole."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        y = nn.functional.linear(x, self.weight)
        dist.all_reduce(y)
        return y


def shard(block, rank, ranks):
    """This rank's part of a block, made of its layers in place."""
    for module in (block, block.attention):
        for name, layer in list(module.named_children()):
            if name in COLUMNS:
                part = layer.weight.detach().chunk(ranks, 0)[rank].clone()
                layer.weight = nn.Parameter(part)
            elif name in ROWS:
                part = layer.weight.detach().chunk(ranks, 1)[rank].clone()
                setattr(module, name, SummedLinear(part))
    return block


def make_block(config):
    torch.manual_seed(0)
    block = Block(config)
    for weight in block.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return block


def seconds(call, args):
    """Of `calls` calls, with what they give to a GPU; each."""

    def calls():
        for _ in range(args.calls):
            call()
        if args.device == "cuda":
            torch.cuda.synchronize()

    return measure.timed_call(calls)[1] / args.calls


@torch.no_grad()
def run(args, device):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dtype = getattr(torch, args.dtype)
    config = Config(
        width=args.width,
        heads=args.heads,
        kv_heads=args.heads // 2,
        hidden=3 * args.width,
        longest=args.length,
    )
    torch.manual_seed(1)
    with torch.device(device):
        inputs = torch.randn(1, args.length, args.width), *angles(config)
        whole = make_block(config).to(dtype)
    inputs = [x.to(device, dtype) for x in inputs]
    want = whole(*inputs)
    part = shard(whole, rank, ranks)
    options = torchair.CompilerConfig()
    options.mode = args.mode
    compiled = torch.compile(
        part,
        backend=torchair.get_npu_backend(compiler_config=options),
        fullgraph=True,
    )
    error = measure.error(compiled(*inputs), want)
    limit = 1e-5 if (device, dtype) == ("cpu", torch.float32) else 2e-2
    assert error < limit, f"rank {rank}: error {error}"
    found = torchair.explain(part, *inputs, compiler_config=options)
    (graph,) = found.graphs
    times = [[], []]
    for _ in range(args.turns):  # the ranks must agree how often
        for column, block in zip(times, (part, compiled), strict=True):
            column.append(seconds(lambda b=block: b(*inputs), args))
    eager, ours = (min(column) * 1e3 for column in times)
    if rank == 0:
        print(f"{ranks} ranks, {len(graph.collectives)} collectives:")
        for text in graph.collectives:
            print(f"  {text}")
        print(f"equal to the whole block: largest error {error:.1e}")
        print(
            f"eager {eager:.2f} ms, {args.mode} {ours:.2f} ms: "
            f"{eager / ours:.2f} x"
        )


def start(rank, args, port):
    """One process: as torchrun started it, or as main did."""
    if port:
        os.environ.update(
            RANK=str(rank),
            WORLD_SIZE=str(args.ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
    torch.set_num_threads(args.threads)
    device = args.device
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', rank)}"
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    run(args, device)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=measure.MODES, default="max-autotune")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", default="float32")
    for name, value in (
        ("ranks", 2),
        ("threads", 1),
        ("width", 256),
        ("length", 128),
        ("heads", 8),
        ("turns", 20),
        ("calls", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    if "RANK" in os.environ:
        start(None, args, 0)
        return
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    multiprocessing.spawn(start, (args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
