"""Runs the C test programs of a build directory and, if asked, pytest.

Every program ends with a line "N passed, N failed"; one that does not (or that
fails without counting a failure) counts as one failed test. The last line of
this script is the sum.

    run_tests.py --build build [--only NAME] [--nvrtc] [--pytest DIR ...]
                 [--tally FILE]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ENV = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


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


def run(name, command, cwd=None):
    """Runs one program with its output shown; returns (passed, failed)."""
    print(f"── {name}", flush=True)
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
    last = ""
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        if re.search(r"\d+ (passed|failed|error)", line):
            last = line
    code = process.wait()
    passed = count(last, "passed")
    failed = count(last, "failed") + count(last, r"errors?\b")
    if code != 0 and failed == 0:
        print(f"{name}: exit status {code}")
        failed = 1
    elif not last:
        passed += code == 0
    print(f"   {name}: {time.monotonic() - start:.1f} s", flush=True)
    return passed, failed


def c_tests(build, only):
    """(name, command, folder) of the tests meson knows."""
    text = (Path(build) / "meson-info" / "intro-tests.json").read_text()
    for test in json.loads(text):
        name = test["name"]
        if not only or name in only:
            yield name, test["cmd"], build  # meson's paths may be relative


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", help="a meson build directory")
    parser.add_argument("--only", action="append", help="these C tests only")
    parser.add_argument(
        "--nvrtc", action="store_true", help="kernels of GPUs are compiled too"
    )
    parser.add_argument("--pytest", nargs="+", help="folders of Python tests")
    parser.add_argument("--tally", help="append the counts to this file")
    return parser.parse_args()


def main():
    args = parse_args()
    passed = failed = 0
    jobs = []
    compiler = nvrtc(sysconfig.get_path("platlib")) if args.nvrtc else ""
    if compiler:
        ENV["AIR_NVRTC"] = compiler
    if args.build:
        root = Path(args.build).resolve()
        jobs += list(c_tests(root, args.only))
    if args.pytest:
        command = [sys.executable, "-m", "pytest", "-q", *args.pytest]
        jobs.append(("pytest", command, None))
    for name, command, folder in jobs:
        good, bad = run(name, command, folder)
        passed, failed = passed + good, failed + bad
    tally = args.tally or os.environ.get("TEST_TALLY")
    if tally:
        with open(tally, "a") as file:
            file.write(f"{passed} {failed}\n")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
