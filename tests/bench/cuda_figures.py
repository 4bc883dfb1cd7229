"""Every figure of a GPU in README.md and docs/cuda-figures.md, by one command:

    python tests/bench/cuda_figures.py                 # about half an hour
    python tests/bench/cuda_figures.py --only decode   # parts of names
    python tests/bench/cuda_figures.py --small         # tries the scripts
    python tests/bench/cuda_figures.py --tables FILE   # prints them again

Measurements are processes of their own, in the order of what they are worth; a
process that fails or is late loses its own figures only. FOLDER (--out, default
cuda_figures) gets figures.jsonl, a line for each figure as soon as it is there,
log.txt with what the scripts print, and tables.md. With --resume what has
figures already is not measured again. Exit status 1 where a part gave none.

Without a GPU the CPU stands in: figures say so and mean nothing.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import time

import gpu

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parents[1]
LIMIT = 540  # seconds of a process


class Part:
    """One process. small: arguments in place of these, for a try."""

    def __init__(self, name, script, *arguments, env=None, small=None):
        self.name, self.script = name, script
        self.arguments, self.env = arguments, env or {}
        self.small = arguments if small is None else small

    def command(self, small):
        chosen = self.small if small else self.arguments
        return [sys.executable, str(BENCH / self.script), *chosen]


def decode(size, ways, note="", env=None, batch=1):
    note += f" x {batch}" if batch > 1 else ""
    fixed = (f"--batch={batch}", f"--note={note}")
    return Part(
        f"decode {size}{note}",
        "bench_cuda_decode.py",
        *(f"--size={size}", f"--ways={ways}", *fixed),
        env=env,
        small=("--size=small", "--ways=eager,max-autotune", *fixed),
    )


def model(name, batch, inductor="default,reduce-overhead,max-autotune"):
    return Part(
        f"models {name} x {batch}",
        "bench_cuda_models.py",
        *(name, f"--batch={batch}", f"--inductor={inductor}"),
        small=(name, "--batch=1", "--inductor="),
    )


def other(names):
    """Of bench_cuda_zoo.py; MobileNet's need torchvision."""
    return Part(
        f"zoo {names}",
        "bench_cuda_zoo.py",
        *(names, "--inductor=reduce-overhead"),
        small=("DLRM", "--inductor="),
    )


ALL_WAYS = (
    "eager,cudagraphs,max-autotune,reduce-overhead,inductor-reduce-overhead"
)
OURS = "max-autotune,reduce-overhead"
PARTS = [
    Part("host", "bench_cuda.py"),
    decode("1b", ALL_WAYS),
    decode("1b", OURS, " full edges", {"TORCHAIR_CUDA_OVERLAP": "0"}),
    decode("1b", OURS, " launches", {"TORCHAIR_CUDA_PERSISTENT": "0"}),
    decode("8b", OURS),
    *(decode("1b-half", ALL_WAYS, batch=n) for n in (4, 16)),
    *(model("MiniLM", n) for n in (1, 64)),
    *(model("BERT", n) for n in (1, 32)),
    *(model("ResNet-50", n) for n in (1, 64)),
    *(model("ViT", n) for n in (1, 32)),
    *map(other, ("Llama", "GPT", "encoder", "U-Net", "ConvNeXt", "DLRM")),
    other("MobileNet"),
    Part("attention", "bench_cuda_attention.py"),
    decode("1b", "inductor-max-autotune", " Inductor max-autotune"),
    decode("8b", "eager,inductor-reduce-overhead", " others"),
]


# ---- running ----


def regions(out, log):
    """bench_cuda: fused regions beside a copy. Needs a build folder."""
    program = ROOT / "build" / "tests" / "unit" / "bench_cuda"
    if not gpu.FOUND or not program.exists():
        return "no GPU, or no `ninja -C build tests/unit/bench_cuda`"
    run = subprocess.run(
        [program], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    log.write(run.stdout + run.stderr)
    with open(out, "a") as lines:
        for row in parse_regions(run.stdout):
            lines.write(json.dumps({**row, **gpu.about()}) + "\n")
    return "" if run.returncode == 0 else f"status {run.returncode}"


def parse_regions(text):
    """Lines as "softmax 128   12.3 us   3915.0 GB/s ..."."""
    for line in text.splitlines():
        words = line.split()
        if "GB/s" not in words:
            continue
        us, rate = words.index("us"), words.index("GB/s")
        yield {
            "bench": "regions",
            "name": " ".join(words[: us - 1]),
            "way": "region",
            "gb_s": float(words[rate - 1]),
        }


def run_part(part, out, log, small):
    """What went wrong; "": nothing."""
    env = {**os.environ, **part.env, gpu.FIGURES: str(out)}
    if small:
        env["TORCHAIR_BENCH_ROUNDS"] = "1"
    log.write(f"==== {part.name}\n")
    log.flush()
    try:
        run = subprocess.run(
            part.command(small),
            env=env,
            stdout=log,
            stderr=log,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not over after {LIMIT} s"
    return "" if run.returncode == 0 else f"status {run.returncode}, see log"


def measure(parts, folder, small, done):
    """Names of the parts that gave nothing, and why."""
    out, failed = folder / "figures.jsonl", {}
    with open(folder / "log.txt", "a") as log:
        for part in [p for p in parts if p.name not in done]:
            begin, before = time.monotonic(), len(read(out))
            why = run_part(part, out, log, small)
            if not why and len(read(out)) == before:
                why = "it wrote no figure"
            if why:
                failed[part.name] = why
            else:
                with open(folder / "done.txt", "a") as names:
                    names.write(part.name + "\n")
            spent = time.monotonic() - begin
            print(f"{part.name}: {why or 'done'}, {spent:.0f} s", flush=True)
    return failed


# ---- tables ----


def read(path):
    """Rows by bench, name and way; of two the later one."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            rows[row["bench"], row["name"], row["way"]] = row
    return list(rows.values())


def of(rows, bench):
    found = collections.defaultdict(dict)
    for row in rows:
        if row["bench"] == bench:
            found[row["name"]][row["way"]] = row
    return found


def cell(row, key="ms", digits=3):
    return f"{row[key]:.{digits}f}" if row and key in row else "–"


def best(ways, prefix):
    """The fastest of the ways whose names begin so."""
    found = [r for w, r in ways.items() if w.lower().startswith(prefix)]
    return min(found, key=lambda row: row["ms"], default=None)


def table(head, rows):
    rows = list(rows)
    if not rows:
        return
    yield "| " + " | ".join(head) + " |"
    yield "|---|" + "--:|" * (len(head) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def readme_rows(rows):
    for bench in ("models", "decode"):
        for name, ways in of(rows, bench).items():
            yield (
                name,
                cell(ways.get("eager")),
                cell(best(ways, "inductor")),
                cell(ways.get("reduce-overhead")),
                cell(ways.get("max-autotune")),
            )


def all_rows(rows):
    for bench in ("models", "decode", "zoo"):
        for name, ways in of(rows, bench).items():
            for way, row in ways.items():
                limit = row.get("limit_ms")
                share = f"{100 * limit / row['ms']:.0f} %" if limit else "–"
                error = f"{row['error']:.1e}"
                first = cell(row, "first_s", 1)
                host = cell(row, "host_us", 1)
                yield name, way, cell(row, "ms", 4), error, share, host, first


def tables(rows):
    """README.md's table, then those of docs/cuda-figures.md."""
    devices = sorted({(r["gpu"], r["torch"]) for r in rows})
    for name, version in devices:
        yield f"{name}, torch {version}"
    yield ""
    head = ("ms", "eager", "Inductor", "reduce-overhead", "max-autotune")
    yield from table(head, readme_rows(rows))
    head = ("", "way", "ms", "error", "of the rate", "host µs", "first s")
    yield from table(head, all_rows(rows))
    yield from table(
        ("attention, ms", "eager", "max-autotune"),
        [
            (name, cell(ways.get("eager")), cell(ways.get("max-autotune")))
            for name, ways in of(rows, "attention").items()
        ],
    )
    host = of(rows, "host").get("three pointwise", {})
    yield from table(
        ("host cost", "µs"),
        [(way, cell(row, "host_us", 1)) for way, row in host.items()],
    )
    found = {n: w["region"] for n, w in of(rows, "regions").items()}
    copy = found.get("copy f32", {}).get("gb_s")
    yield from table(
        ("region", "GB/s", "of a copy"),
        [
            (n, cell(r, "gb_s", 0), f"{r['gb_s'] / copy:.2f}" if copy else "–")
            for n, r in found.items()
        ],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="cuda_figures", type=pathlib.Path)
    parser.add_argument("--only", default="", help="parts of names, by commas")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tables", type=pathlib.Path)
    asked = parser.parse_args()
    if asked.tables:
        print("\n".join(tables(read(asked.tables))))
        return
    folder = asked.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    out, done = folder / "figures.jsonl", folder / "done.txt"
    if not asked.resume:
        for path in (out, done, folder / "log.txt"):
            path.unlink(missing_ok=True)
    names = asked.only.split(",")
    parts = [p for p in PARTS if any(n in p.name for n in names)]
    known = set(done.read_text().splitlines()) if done.exists() else set()
    failed = measure(parts, folder, asked.small, known)
    if any(n in "regions" for n in names):
        with open(folder / "log.txt", "a") as log:
            print("regions:", regions(out, log) or "done")
    text = "\n".join(tables(read(out)))
    (folder / "tables.md").write_text(text + "\n")
    print(text)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
