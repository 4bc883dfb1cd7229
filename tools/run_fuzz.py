"""Runs every fuzz target of a build directory with many mutations.

run_fuzz.py --build build-asan [--mutations N] [--seed N] [--only NAME]
            [--jobs N]
"""

import argparse
import json
import sys
from pathlib import Path

from run_tests import CORES, run_all

# What some seconds on one core of a small machine buy under ASan.
MUTATIONS = {"fuzz_parse": 40000, "fuzz_graph": 1500, "fuzz_npy": 200000}


def targets(build, only):
    """(name, command without the count) of the fuzz targets meson knows."""
    info = Path(build).resolve() / "meson-info" / "intro-tests.json"
    for test in json.loads(info.read_text()):
        name = test["name"]
        fuzzes = any(suite.endswith("fuzz") for suite in test["suite"])
        if fuzzes and only in (None, name):
            yield name, test["cmd"][:2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--mutations", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=CORES)
    args = parser.parse_args()
    programs = []
    for name, command in targets(args.build, args.only):
        count = str(args.mutations or MUTATIONS.get(name, 1000))
        title = f"{name}: {count} mutations, seed {args.seed}"
        programs.append((title, [*command, count, args.seed]))
    passed, failed = run_all(programs, args.jobs)
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main())
