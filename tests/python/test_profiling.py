"""Ranges in the traces of torch.profiler."""

import os
import subprocess
import sys

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import torchair
from torchair import backend, profiling


def fn(x, y):
    return torch.special.bessel_j0(x @ y) + 1


def traced(call):
    with profile(activities=[ProfilerActivity.CPU]) as found:
        call()
    return list(found.events())


@pytest.mark.host("a HOST node of a GPU is part of a CUDA graph")
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_the_engines_part_lies_in_the_call(mode):
    x = torch.randn(4, 4)
    run = torch.compile(fn, backend=backend.torchair, mode=mode)
    run(x, x)
    events = traced(lambda: [run(x, x), run(x, x)])
    names = [e.name for e in events]
    assert names.count("npu_fx_compiler inference") == 2
    assert names.count("ExecuteGraph") == 2
    for e in events:
        if e.name == "ExecuteGraph":
            assert e.cpu_parent.name == "npu_fx_compiler inference"
            assert "aten::special_bessel_j0" in [c.name for c in e.cpu_children]


def test_a_run_that_fails_ends_its_ranges():
    class Wrong(Exception):
        pass

    def kernel(x):
        raise Wrong

    with torch.library._scoped_library("profiled", "FRAGMENT") as lib:
        lib.define("wrong(Tensor x) -> Tensor")
        lib.impl("wrong", kernel, "CompositeExplicitAutograd")
        lib.impl("wrong", torch.empty_like, "Meta")
        run = torch.compile(
            lambda x: torch.ops.profiled.wrong(x) + 1, backend=backend.torchair
        )

        def call():
            with pytest.raises(Wrong):
                run(torch.ones(3))
            with torch.profiler.record_function("after"):
                pass

        events = traced(call)
    (after,) = [e for e in events if e.name == "after"]
    assert after.cpu_parent is None
    assert "ExecuteGraph" in [e.name for e in events]


def test_nothing_while_nobody_profiles(monkeypatch):
    made = []
    native = torchair._native
    run = torch.compile(lambda x: x + 1, backend=backend.torchair)
    run(torch.ones(3))
    told = []
    monkeypatch.setattr(native, "profile_ranges", told.append)
    traced(lambda: made.append(run(torch.ones(3))))
    assert [t is None for t in told] == [False, True]


def test_a_profiler_that_is_on_before_the_import():
    code = (
        "import torch\n"
        "from torch.profiler import profile, ProfilerActivity\n"
        "with profile(activities=[ProfilerActivity.CPU]) as p:\n"
        "    from torchair.backend import torchair\n"
        "    torch.compile(lambda x: x + 1, backend=torchair)(torch.ones(3))\n"
        "print('ExecuteGraph' in [e.name for e in p.events()])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert out.stdout.split()[-1] == "True"


def test_the_name_of_the_hooks_is_torchs():
    """Where torch calls them otherwise, ranges would be missing silently."""
    for name in ("_run_on_profiler_start", "_run_on_profiler_stop"):
        assert getattr(torch.autograd.profiler, name).__wrapped__ is not None
    assert profiling.install is not None
