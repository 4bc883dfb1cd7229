"""Processes that fork after a graph was compiled: workers of a DataLoader,
servers that load a model first."""

import subprocess
import sys

# One parallel region at least runs in the parent; the child's alarm ends it
# where it waits for threads that it does not have.
PARENT = """
import os, signal
import torch, torchair
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(2)
torch.set_grad_enabled(False)


def compiled(fn, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    entry = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=entry)


net = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 256))
x = torch.randn(2048, 256)
want = net(x)
run = compiled(net, "reduce-overhead")
torch.testing.assert_close(run(x), want)


def child():
    torch.testing.assert_close(run(x), want)  # what the parent compiled
    torch.testing.assert_close(run(x[:3].clone()), want[:3])  # another size
    torch.testing.assert_close(net(x), want)  # eager
    new = compiled(lambda x: (x * 2).tanh().sum(-1), "max-autotune")
    torch.testing.assert_close(new(x), (x * 2).tanh().sum(-1))
    torch.set_num_threads(2)  # operators of torch hang now, run() does not
    got = run(x)
    torch.set_num_threads(1)
    torch.testing.assert_close(got, want)


for _ in range(2):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            child()
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
    torch.testing.assert_close(run(x), want)
assert torch.get_num_threads() == 2
"""


def test_a_child_computes_what_its_parent_does():
    ran = subprocess.run(
        [sys.executable, "-c", PARENT],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
