"""docs/ops.md from the op table, through `air ops`.

gen_docs.py --build DIR [--check]      --check: fail when it is not current
"""

import argparse
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "ops.md"
HEAD = """\
# Operators

What runs inside the engine, from `src/ir/ops.def` by `tools/gen_docs.py`.
Every other operator runs as PyTorch's own, in order, with a reason
(`torchair.explain`).

* `pointwise`, `create` and `reduce` fuse with their neighbours;
* `view` moves nothing;
* `composite` is written in simpler operators by pass `expand`;
* `call` is one kernel of the device; `effect` stays where it is.

| class | ATen schema | Ascend IR |
|---|---|---|
"""


def rows(air):
    out = subprocess.run(
        [air, "ops"], capture_output=True, text=True, check=True
    ).stdout
    for line in sorted(out.splitlines(), key=lambda s: s.split(None, 2)[2]):
        kind, ge, schema = line.split(None, 2)
        schema = schema.replace("|", "\\|")
        yield f"| {kind} | `{schema}` | {'' if ge == '-' else ge} |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = HEAD + "".join(rows(Path(args.build) / "tools" / "air"))
    if not args.check:
        TARGET.write_text(text)
        return 0
    if TARGET.exists() and TARGET.read_text() == text:
        return 0
    print("docs/ops.md is not current: python tools/gen_docs.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
