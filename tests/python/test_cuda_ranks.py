"""A GPU for each of several processes, with NCCL (cuda_comm_cases.py)."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchair

HERE = Path(__file__).parent
PACKAGES = Path(torchair.__file__).resolve().parent.parent
SCRIPT = HERE / "cuda_comm_cases.py"
EXAMPLE = HERE.parents[1] / "examples" / "tensor_parallel.py"
CASES = re.findall(r"^def (case_\w+)", SCRIPT.read_text(), re.M)
WORLD = 2
SECONDS = 240
pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < WORLD, reason="needs two GPUs"
)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_ranks(folder, cases):
    """What each rank printed."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGES, HERE))),
        "WORLD_SIZE": str(WORLD),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OUT": str(folder),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *cases],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(WORLD)
    ]
    try:
        return [r.communicate(timeout=SECONDS)[0] for r in ranks]
    finally:
        for r in ranks:
            r.kill()


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """By rank: case -> "" or what it failed with. Behind one that failed the
    others go on in new processes."""
    found = [{} for _ in range(WORLD)]
    left = list(CASES)
    while left:
        folder = tmp_path_factory.mktemp("ranks")
        printed = run_ranks(folder, left)
        done = set()
        for rank in range(WORLD):
            report = folder / f"{rank}.json"
            known = json.loads(report.read_text()) if report.exists() else {}
            found[rank] |= known
            done |= set(known)
        if not done or not any(known for known in found):
            done.add(left[0])
        begun = [c for c in left if any(c in text for text in printed)]
        for case in begun:
            for rank, text in enumerate(printed):
                found[rank].setdefault(case, f"ended in it:\n{text[-3000:]}")
        done |= set(begun)
        left = [case for case in left if case not in done]
    return found


@pytest.mark.parametrize("case", CASES)
def test_ranks(case, results):
    for rank, found in enumerate(results):
        assert found.get(case, "not run") == "", f"rank {rank}"


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_the_example(mode):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--device", "cuda", "--mode", mode],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 ranks, 2 collectives:" in done.stdout
    assert "equal to the whole block" in done.stdout
