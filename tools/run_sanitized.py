"""Runs Python tests with an extension built under ASan and UBSan, or TSan.

    run_sanitized.py --build build-tsan-python [pytest arguments]

Python and torch are not instrumented, so the sanitizer is loaded before them.
What they do wrong on their own is left out: races by SUPPRESSED, leaks unless
the memory was taken by a frame of the extension. Without arguments the tests
are those where threads, captures and kept results meet. OpenMP has one thread
under TSan, which cannot see how libgomp's threads wait for each other, and the
test that asks for more is left out: the threads of Python run the engine side
by side, `make tsan` has those of its own.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("test_capture.py", "test_threads.py")
MORE_THREADS = "tests/python/test_threads.py::test_number_of_threads"
EXTENSION = "_native.abi3.so"
WRONG = re.compile(r"(ERROR|WARNING|FATAL): (Address|Thread)|CHECK failed")
SUPPRESSED = """\
# oneDNN's cache of primitives, a read-write lock made by another thread
race:dnnl::impl::
# glibc frees the thread-local storage of a thread that has ended
race:_dl_deallocate_tls
race:__GI__dl_deallocate_tls
"""


def sanitizer(build):
    """Of a build directory: "address" or "thread"."""
    path = build / "meson-info" / "intro-buildoptions.json"
    rows = {r["name"]: r["value"] for r in json.loads(path.read_text())}
    for name in ("address", "thread"):
        if name in rows["b_sanitize"]:
            return name
    raise SystemExit(f"{build} has b_sanitize={rows['b_sanitize']}")


def package(build, folder):
    """python/ as tests import it, with the extension of this build."""
    for source in (ROOT / "python").iterdir():
        if source.is_dir() and source.name != "native":
            ignored = shutil.ignore_patterns("__pycache__", "_native*.so")
            shutil.copytree(source, folder / source.name, ignore=ignored)
    made = build.resolve() / "python" / EXTENSION
    (folder / "torchair" / EXTENSION).symlink_to(made)


def runtime(name):
    """The sanitizer's library, of the compiler that the build used; with that
    of C++, for torch's exceptions, which it wants to see when it is loaded."""
    library = "libasan.so" if name == "address" else "libtsan.so"
    return f"{_library(library)} {_library('libstdc++.so.6')}"


def _library(name):
    command = [os.environ.get("CC", "gcc"), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def environment(name, folder):
    log, races = f"log_path={folder / 'log'}", folder / "suppressed"
    races.write_text(SUPPRESSED)
    threads = {"OMP_NUM_THREADS": "1"} if name == "thread" else {}
    return {
        **os.environ,
        **threads,
        "LD_PRELOAD": runtime(name),
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc" if name == "address" else "default",
        "ASAN_OPTIONS": f"detect_leaks=1:{log}",
        "LSAN_OPTIONS": "exitcode=0:report_objects=0",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{log}",
        "TSAN_OPTIONS": f"suppressions={races}:exitcode=0:{log}",
    }


def is_ours(leak):
    """Was it the extension that asked for the memory? The first frame is the
    sanitizer's own."""
    frames = re.findall(r"^ +#\d+ .*$", leak, re.MULTILINE)
    return len(frames) > 1 and EXTENSION in frames[1]


def reports(folder):
    """What the sanitizer found that is not left out."""
    for path in sorted(folder.glob("log*")):
        text = path.read_text(errors="replace")
        yield from re.findall(r"^.*runtime error:.*$", text, re.MULTILINE)
        for part in re.split(r"\n(?==+\n|Direct leak|Indirect leak)", text):
            leak = re.match(r"(Direct|Indirect) leak", part)
            if WRONG.search(part) or (leak and is_ours(part)):
                yield part


def main():
    options = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--build", type=Path, required=True)
    args, tests = options.parse_known_args()
    name = sanitizer(args.build)
    with tempfile.TemporaryDirectory(prefix="sanitized") as temporary:
        folder = Path(temporary)
        package(args.build, folder)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        if name == "thread":
            command.append(f"--deselect={MORE_THREADS}")
        ran = subprocess.run(
            [*command, *(tests or TESTS)],
            cwd=ROOT / "tests" / "python",
            env=environment(name, folder),
        )
        found = list(reports(folder))
    print(*found, sep="\n")
    print(f"{name}: exit status {ran.returncode}, {len(found)} reports")
    return ran.returncode != 0 or len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
