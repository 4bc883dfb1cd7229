"""Several threads that call one model, and torch's number of threads."""

import threading

import pytest
import torch
from helpers import assert_same, compiled, in_threads, make_backend, seeded
from torch import nn


def test_one_model_many_threads():
    net = nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32), nn.Softmax(-1)
    ).eval()
    run = compiled(net, dynamic=True)
    with torch.no_grad():
        run(torch.randn(4, 64))

    def work(i):
        generator = seeded(i)
        with torch.no_grad():
            for n in range(2, 40):
                x = torch.randn(n * (i + 2), 64, generator=generator)
                assert_same(run(x), net(x))

    in_threads(range(4), work)


def test_calls_while_others_compile():
    """Threads call one model; others compile models of their own."""
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    run = compiled(net, dynamic=True)
    with torch.no_grad():
        run(torch.randn(4, 32))
    busy = threading.Event()
    calls = [0] * 4

    def work(i):
        generator = seeded(i)
        if i < 2:
            while not busy.is_set() or calls[i] < 20:
                x = torch.randn(2 + calls[i] % 30, 32, generator=generator)
                with torch.no_grad():
                    assert_same(run(x), net(x))
                calls[i] += 1
            return
        try:
            for n in range(3):
                mine = nn.Sequential(nn.Linear(8, 8 + i), nn.Tanh())
                x = torch.randn(3 + n, 8, generator=generator)
                y = torch.compile(mine, backend=make_backend())(x)
                assert_same(y.detach(), mine(x).detach())
                calls[i] += 1
        finally:
            if i == 3:
                busy.set()

    in_threads(range(4), work)
    assert calls[2] == calls[3] == 3


def test_host_nodes_in_threads():
    def fn(x):
        return torch.linalg.svdvals(x * 2) + 1

    run = compiled(fn)
    run(torch.randn(6, 6))

    def work(i):
        for _ in range(50):
            x = torch.randn(6, 6)
            assert_same(run(x), fn(x))

    in_threads(range(1), work)  # compiles: torch 2.11 refuses several at once
    in_threads(range(4), work)


def test_results_freed_in_another_thread():
    run = compiled(lambda x: x + 1)
    kept = [run(torch.randn(1000)) for _ in range(50)]
    in_threads(range(1), lambda i: kept.clear())
    assert_same(run(torch.zeros(4)), torch.ones(4))


def test_number_of_threads():
    net = nn.Linear(256, 256)
    run = compiled(net)
    x = torch.randn(64, 256)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            want = net(x)
            for threads in (1, 2, 1, 2):
                torch.set_num_threads(threads)
                assert_same(run(x), want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("turn", [0, 1])
def test_a_setting_that_threads_leave_ends_with_the_test(turn):
    """Dynamo's of dynamic sizes, which torch 2.11 shares among threads."""
    found = torch._dynamo.config
    assert found.assume_static_by_default
    assert found.automatic_dynamic_shapes
    found.assume_static_by_default = False
    found.automatic_dynamic_shapes = False
