"""Runs the C test programs of a build directory and, if asked, pytest.

As many programs run side by side as there are cores; pytest is as many
processes, which take the files of tests one by one (tools/pytest_share.py).
What a program prints is shown when it ends, pytest's progress at once.

Every program ends with a line "N passed, N failed"; one that fails without
counting a failure (a crash, say) counts as one failed test. The last line of
this script is the sum.

    run_tests.py --build build [--only NAME] [--nvrtc] [--pytest DIR ...]
                 [--jobs N] [--tally FILE]
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))
ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
PROGRESS = re.compile(r"\[ *\d+%\]$")
# Of a C test program; of pytest: "=== 1 failed, 3 passed in 0.90s ===".
SUMMARY = re.compile(r"\d+ passed, \d+ failed$|=+ .* in \d+\.\d+s")
shown = threading.Lock()


def count(text, word):
    """The number before `word` in the last line that has one."""
    found = re.findall(rf"(\d+) {word}", text)
    return int(found[-1]) if found else 0


def nvrtc(folder):
    """The compiler of CUDA C below site-packages: a path, "" where there is
    none. It needs no GPU, so that every kernel that is printed is compiled."""
    found = sorted(
        Path(folder).glob("nvidia/*/lib/libnvrtc.so.*"), key=lambda p: p.name
    )
    return str(found[-1]) if found else ""


def say(text):
    with shown:
        print(text, flush=True)


def output_of(process):
    """What it prints, but for its progress, which is shown as it comes."""
    lines = []
    for line in process.stdout:
        line = line.rstrip("\n")
        if PROGRESS.search(line):
            say(line)
        else:
            lines.append(line)
    return lines


def tally(name, lines, code):
    """(passed, failed) by the last line that counts and the exit status."""
    last = next((line for line in reversed(lines) if SUMMARY.match(line)), "")
    passed = count(last, "passed")
    failed = count(last, "failed") + count(last, r"errors?\b")
    if code != 0 and failed == 0:
        lines.append(f"{name}: exit status {code}")
        failed = 1
    elif not last:
        passed += code == 0
    return passed, failed


def run(name, command, cwd=None):
    """Runs one program, then shows what it printed; (passed, failed)."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**ENV, **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = output_of(process)
    passed, failed = tally(name, lines, process.wait())
    lines.append(f"   {name}: {time.monotonic() - start:.1f} s")
    say("\n".join([f"── {name}", *lines]))
    return passed, failed


def run_all(programs, jobs):
    """`jobs` of them at a time, in their order; (passed, failed)."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        counts = list(pool.map(lambda program: run(*program), programs))
    return sum(good for good, _ in counts), sum(bad for _, bad in counts)


def c_tests(build, only):
    """(name, command, folder) of the tests meson knows."""
    text = (Path(build) / "meson-info" / "intro-tests.json").read_text()
    for test in json.loads(text):
        name = test["name"]
        if not only or name in only:
            yield name, test["cmd"], build  # meson's paths may be relative


def pytests(folders, jobs, share):
    """(name, command, folder) of the processes that share the files."""
    # -P: modules of tools/ are none that a test can import.
    command = [sys.executable, "-P", TOOLS / "pytest_share.py", share, *folders]
    for i in range(jobs):
        yield f"pytest {i + 1} of {jobs}", command, None


def parse_args(args):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", help="a meson build directory")
    parser.add_argument("--only", action="append", help="these C tests only")
    parser.add_argument(
        "--nvrtc", action="store_true", help="kernels of GPUs are compiled too"
    )
    parser.add_argument("--pytest", nargs="+", help="folders of Python tests")
    parser.add_argument(
        "--jobs",
        type=int,
        default=CORES,
        help="programs at a time: as many as cores",
    )
    parser.add_argument("--tally", help="append the counts to this file")
    return parser.parse_args(args)


def main(args=None):
    args = parse_args(args)
    programs = []
    compiler = nvrtc(sysconfig.get_path("platlib")) if args.nvrtc else ""
    if compiler:
        ENV["AIR_NVRTC"] = compiler
    if args.build:
        programs += c_tests(Path(args.build).resolve(), args.only)
    with tempfile.TemporaryDirectory() as share:
        if args.pytest:
            programs += pytests(args.pytest, args.jobs, share)
        passed, failed = run_all(programs, args.jobs)
    file = args.tally or os.environ.get("TEST_TALLY")
    if file:
        with open(file, "a") as tallies:
            tallies.write(f"{passed} {failed}\n")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
