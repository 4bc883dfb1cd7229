"""The Python suites on a GPU, in processes side by side.

    python tools/device_tests.py [-j 12] [--limit 600] [--out FOLDER] [FILE...]

Files are of tests/python; without any, all that are not about another device.
Tests are shared out among the processes; one whose GPU has failed under a
test begins again behind it. At the end: what failed, by file and message,
what was skipped, by reason, and how many passed. FOLDER (default
device_tests) gets failures.txt and a line of JSON for each test. Exit status
1 where one failed, 2 where the limit came first.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from device_plugin import FAULT

TOOLS = pathlib.Path(__file__).resolve().parent
TESTS = TOOLS.parent / "tests" / "python"
# About npu tensors, other processes, documents or names, not about a device.
APART = (
    "test_npu_",
    "test_torch_npu",
    "test_distributed",
    "test_documents",
    "test_examples",
    "test_fork",
    "test_gegraph",
    "test_llm_data",
    "test_names",
    "test_option_table",
    "test_page",
    "test_public_names",
)
AGAIN = 20  # times at most that a process begins again
NO_TESTS = 5  # pytest's exit status
SHOWN = 4  # tests that fail alike, by name
SKIPPED = re.compile(r"Skipped: (.*?)['\"]\)?$", re.S)
NUMBER = re.compile(r"\d+")
LATE = 2  # exit status; pytest's own 2 (interrupted) is a failure here


def chosen(asked, refuse):
    """Paths from TESTS; refuse(message) does not return."""
    names = sorted(p.name for p in TESTS.glob("test_*.py"))
    if not asked:
        return [n for n in names if not n.startswith(APART)]
    for path in asked:
        if pathlib.Path(path).name not in names:
            refuse(f"{path}: no such file of tests in {TESTS}")
    return [pathlib.Path(path).name for path in asked]


def run_share(share, of, files, out, end):
    """One process after the other; the status of the last."""
    lines = out / f"results_{share}.jsonl"
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
        *("-p", "device_plugin", "--device=cuda", f"--share={share}/{of}"),
        "--continue-on-collection-errors",
        *(f"--results={lines}", *files),
    ]
    paths = [str(TOOLS), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": ":".join(filter(None, paths))}
    status = FAULT
    with open(out / f"log_{share}.txt", "w") as log:
        for _ in range(AGAIN):
            left = end - time.monotonic()
            if left <= 0:
                return LATE
            try:
                status = subprocess.run(
                    command,
                    cwd=TESTS,
                    env=env,
                    stdout=log,
                    stderr=log,
                    timeout=left,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return LATE
            if status != FAULT and status >= 0:
                break
    return int(status not in (0, NO_TESTS))


def found(out):
    for path in sorted(out.glob("results_*.jsonl")):
        with open(path) as lines:
            yield from map(json.loads, lines)


def reason(text):
    """Of a test that was skipped."""
    found = SKIPPED.search(text)
    return found[1] if found else text


def print_failed(failed):
    """By file, with the tests that fail alike on one line."""
    for name, nodes in sorted(failed.items()):
        print(f"{name}: {len(nodes)} failed")
        alike = collections.defaultdict(list)
        for node, _, text in nodes:
            first = text.splitlines()[0] if text else ""
            alike[NUMBER.sub("#", first)[:140]].append(node)
        for first, same in alike.items():
            tests = [n.partition("::")[2] for n in same[:SHOWN]]
            more = f" and {len(same) - SHOWN} more" if same[SHOWN:] else ""
            print(f"    {first}\n        {', '.join(tests)}{more}")


def summary(out):
    counts, skipped = collections.Counter(), collections.Counter()
    failed = collections.defaultdict(list)
    for node, outcome, _, text in found(out):
        counts[outcome] += 1
        if outcome in ("failed", "fault"):
            failed[node.partition("::")[0]].append((node, outcome, text))
        elif outcome == "skipped":
            skipped[reason(text)] += 1
    with open(out / "failures.txt", "w") as to:
        for node, outcome, text in sum(failed.values(), []):
            to.write(f"==== {outcome} {node}\n{text}\n")
    print_failed(failed)
    for why, n in skipped.most_common():
        print(f"{n} skipped: {why[:100]}")
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return bool(failed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*")
    parser.add_argument("-j", type=int, default=max(1, os.cpu_count() - 2))
    parser.add_argument("--limit", type=float, default=1200, help="seconds")
    parser.add_argument("--out", default="device_tests", type=pathlib.Path)
    asked = parser.parse_args()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + asked.limit
    files = chosen(asked.files, parser.error)
    with concurrent.futures.ThreadPoolExecutor(asked.j) as pool:
        statuses = list(
            pool.map(
                lambda i: run_share(i, asked.j, files, out, end),
                range(asked.j),
            )
        )
    failed = summary(out)
    late = LATE in statuses
    if late:
        print("the limit came before the end")
    sys.exit(LATE if late else int(failed or any(statuses)))


if __name__ == "__main__":
    main()
