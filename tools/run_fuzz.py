"""Runs every fuzz target of a build directory with many mutations.

run_fuzz.py --build build-asan [--mutations N] [--seed N] [--only NAME]
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from run_tests import ENV

# What a second on one core of a small machine buys under ASan.
MUTATIONS = {"fuzz_parse": 40000, "fuzz_graph": 1500, "fuzz_npy": 200000}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--mutations", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only")
    args = parser.parse_args()
    info = Path(args.build).resolve() / "meson-info" / "intro-tests.json"
    bad = 0
    for test in json.loads(info.read_text()):
        name = test["name"]
        if "fuzz" not in " ".join(test["suite"]) or args.only not in (
            None,
            name,
        ):
            continue
        count = args.mutations or MUTATIONS.get(name, 1000)
        print(f"── {name}: {count} mutations, seed {args.seed}", flush=True)
        command = [*test["cmd"][:2], str(count), args.seed]
        bad += (
            subprocess.run(command, env={**ENV, **os.environ}).returncode != 0
        )
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
