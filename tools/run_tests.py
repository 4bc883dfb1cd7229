"""Runs the C test programs of a build directory and, if asked, pytest.

As many programs run side by side as there are cores; pytest is as many
processes, eight at most, and as many as there is memory for, which take the
files of tests one by one (tools/pytest_share.py).
What a program prints is shown when it ends, pytest's progress at once. One
that prints nothing for 40 minutes (pytest: no test ends) is killed and fails.

Every program ends with a line "N passed, N failed"; one that fails without
counting a failure (a crash, say) counts as one failed test. The last line of
this script is the sum.

    run_tests.py --build build [--only NAME] [--under CMD] [--nvrtc]
                 [--pytest DIR ...] [--jobs N] [--tally FILE]
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
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
SILENCE = 2400  # seconds; what prints nothing for longer hangs
PYTESTS = 8  # processes at most
PYTEST_BYTES = 2 << 30  # what one may take; 1.5 GB were seen
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


def family(pid):
    """A process and those that it started."""
    found = [pid]
    with contextlib.suppress(OSError):  # one that ends meanwhile
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in path.read_text().split():
                found += family(int(child))
    return found


def stop(pid):
    """Ends a process, which in Python says where it was, and its children."""
    for each in family(pid):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGABRT if each == pid else signal.SIGKILL)


def lines_of(process, silence):
    """What it prints. After so many seconds without anything it is ended, and
    the last line says so."""
    rest, fd, hung = b"", process.stdout.fileno(), False
    while True:
        if select.select([fd], [], [], 10 if hung else silence)[0]:
            data = os.read(fd, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if not data:
                break
        elif hung:  # who else has the pipe is no child of it
            process.kill()
            break
        else:
            hung = True
            stop(process.pid)
    if rest:
        yield rest.decode(errors="replace")
    if hung:
        yield f"killed: it printed nothing for {silence} s"


def output_of(process, silence):
    """What it prints, but for its progress, which is shown as it comes."""
    lines = []
    for line in lines_of(process, silence):
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


def run(name, command, cwd=None, silence=SILENCE):
    """Runs one program, then shows what it printed; (passed, failed)."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env={**ENV, **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = output_of(process, silence)
    passed, failed = tally(name, lines, process.wait())
    lines.append(f"   {name}: {time.monotonic() - start:.1f} s")
    say("\n".join([f"── {name}", *lines]))
    return passed, failed


def run_all(programs, jobs):
    """`jobs` of them at a time, in their order; (passed, failed)."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        counts = list(pool.map(lambda program: run(*program), programs))
    return sum(good for good, _ in counts), sum(bad for _, bad in counts)


def c_tests(build, only, under=""):
    """(name, command, folder) of the tests meson knows; what runs them."""
    text = (Path(build) / "meson-info" / "intro-tests.json").read_text()
    for test in json.loads(text):
        name = test["name"]
        if not only or name in only:
            command = [*shlex.split(under), *test["cmd"]]
            yield name, command, build  # meson's paths may be relative


def free_memory():
    """Bytes that can be had, of the machine and of a container."""
    text = Path("/proc/meminfo").read_text()
    found = [int(re.search(r"MemAvailable: *(\d+) kB", text)[1]) << 10]
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max"
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(found)


def pytest_count(jobs, memory):
    """How many processes of pytest, of so many jobs, fit into the memory."""
    return max(1, min(jobs, PYTESTS, memory // PYTEST_BYTES))


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
        "--under", default="", help="an emulator's command, before each test's"
    )
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
    # Not for the programs: the tests of this script run it, too.
    file = args.tally or os.environ.pop("TEST_TALLY", "")
    programs = []
    compiler = nvrtc(sysconfig.get_path("platlib")) if args.nvrtc else ""
    if compiler:
        ENV["AIR_NVRTC"] = compiler
    if args.under:
        ENV["AIR_EMULATED"] = "1"
        emulator = shlex.split(args.under)[0]
        if not shutil.which(emulator):
            sys.exit(f"--under: there is no program {emulator}: install it")
    if args.build:
        build = Path(args.build).resolve()
        programs += c_tests(build, args.only, args.under)
    with tempfile.TemporaryDirectory() as share:
        if args.pytest:
            jobs = pytest_count(args.jobs, free_memory())
            if CORES > 2:  # else torch's own number is as good
                ENV["OMP_NUM_THREADS"] = str(max(2, CORES // jobs))
            programs += pytests(args.pytest, jobs, share)
        passed, failed = run_all(programs, args.jobs)
    if file:
        with open(file, "a") as tallies:
            tallies.write(f"{passed} {failed}\n")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
