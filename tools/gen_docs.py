"""docs/ops.md from the op table, docs/options.md from the tables of options
and passes, docs/names.md from public_names.txt, docs/attention.md from the
table of its arguments.

gen_docs.py --build DIR [--check]      --check: fail when one is not current
"""

import argparse
import subprocess
import sys
import textwrap
from importlib import util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPS_HEAD = """\
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


ATEN_HEAD = """
## The supported list of graph mode

The 151 rows of TorchAir's list of ATen operators, with the dtypes it names.
Each is compiled and compared with eager over them, with its overloads and
optional arguments, in both modes, with fixed and with changing sizes, by
`test_aten_list.py::test_row[NAME-DTYPE-MODE-SIZES]`. The last column has the
rows of the engine that its calls become (`test_who_runs_it[NAME]`), and which
calls run on PyTorch's kernels; of complex dtypes the engine computes with
complex64, and not every function.

torch.compile itself refuses, with every backend (2.13): `nll_loss` with a uint8
target, `_foreach_addcdiv` and `_foreach_addcmul` with a tensor of scalars. CPU
eager has no `_foreach_frac` of integers. `threshold` of uint8 with a negative
threshold, which eager wraps, compares as written.

| row | dtypes | computed by |
|---|---|---|
"""


def aten_rows():
    path = ROOT / "tests" / "python" / "aten_list.py"
    spec = util.spec_from_file_location("aten_list", path)
    found = util.module_from_spec(spec)
    spec.loader.exec_module(found)
    computed_by = found.computed_by()
    for name, dtypes, *_ in found.ROWS:
        rows = computed_by[name].split(", ")
        rows = [f"`{row}`" for row in rows if row != "-"]
        if name in found.HOST:
            rows.append(f"PyTorch: {found.HOST[name]}")
        yield f"| `{name}` | {', '.join(dtypes)} | {', '.join(rows)} |\n"


def ops(air):
    found = [*rows(air), ATEN_HEAD, *aten_rows()]
    return OPS_HEAD + "".join(found)


OPTIONS_HEAD = """\
# Options

From `python/torchair/options.py`, `python/torchair/passes.py` and
`src/pass/passes.def` by `tools/gen_docs.py`.

```python
config = torchair.CompilerConfig()              # by path
config.mode = "reduce-overhead"
config.debug.aclgraph.enable_output_clone = True
backend = torchair.get_npu_backend(compiler_config=config)
torch.compile(model, backend=backend)

torch.compile(model, backend="npugraph_ex",     # by key
              options={"clone_output": True})
torch.compile(model, backend="torchair",        # paths and keys
              options={"mode": "reduce-overhead", "clone_output": True})
```

A key with **not** in front says the opposite of the path: `inplace_pass=False`
is `disable_reinplace_inplaceable_ops_pass=True`. An option of another mode than
the configuration's is named in one warning.

Reading an option gives an object: its `value` is text where the value is plain
(`"1"` and `"0"` for bools), itself where it is a list, a dict or a function.
Wrong values raise `ValueError`, `TypeError` or `FileNotFoundError`, say what to
set and end with a line `[ERROR] <time> (PID, Device, RankID) ERR...`; from
`options=` they come inside torch's `BackendCompilerFailed`. What is set with
`options=` holds for that compilation only: neither the configuration of the
backend nor a later compilation sees it. All options belong to one graph, also
those that a graph engine takes for the process: two graphs may differ.

*told as* is the name in the dictionaries of `config.as_dict()`, (G) in that of
the process. There is no device Ascend yet: its column says what an option will
do there.
"""
SECTION_HEAD = """
## {name}

| path | key | values | default | modes | told as | on the CPU | CUDA | Ascend |
|---|---|---|---|---|---|---|---|---|
"""
PASSES_HEAD = """
## Passes

On the FX graph; `TORCH_COMPILE_DEBUG=1` shows it before and after each:

| pass | option | what it does |
|---|---|---|
"""
ENGINE_HEAD = """
On the engine's graph (`air passes`); `TORCH_COMPILE_DEBUG=1` writes it after
each:

| pass | what it does |
|---|---|
"""
SWITCHES_HEAD = """
`optimization_switch`, `fusion_switch_file` and `air dump --without` take these
names: parts, and passes but `expand` and `split_reduce`, which the engine
needs. Names of the graph engine stand for them:

| name | switches |
|---|---|
"""
OTHERS = """
{count} more of its names are known and switch nothing: there is no pass for
their operators, or one that does more than they say.

"""
PARTS_HEAD = """
Options leave parts of the engine out (`air dump --without NAME`):

| part | option | without it |
|---|---|---|
"""


def section(row):
    start = row.path.split(".")[0]
    return f"`{start}`" if "." in row.path else "Top level"


def ascend(row):
    if row.ascend:
        return row.ascend
    told = any(k.name.startswith("ge") for k in row.keys)
    return "told to the graph engine" if told else "same"


def option_row(row):
    key = f"`{row.key}`" if row.alias else ""
    if row.inverted:
        key = f"**not** {key}"
    effect = row.effect
    if row.inert:
        effect += f". No effect here, with a warning: {row.inert}"
    accepts = row.accepts.text.replace("|", "\\|")
    told = ", ".join(
        f"`{k.name}`" + (" (G)" if k.process else "") for k in row.keys
    )
    cells = [f"`{row.path}`", key, accepts, f"`{row.default!r}`", row.modes]
    cells += [told, effect.replace("|", "\\|"), row.cuda or "same", ascend(row)]
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def option_rows(options):
    sections = {}
    for row in options.OPTIONS:
        sections.setdefault(section(row), []).append(option_row(row))
    for name, rows in sections.items():
        yield SECTION_HEAD.format(name=name)
        yield from rows


def pass_rows(passes):
    for row in passes.PASSES:
        switch = f"`{row.switch}`" if row.switch else "always"
        note = "; where torch runs the graph" if row.eager else ""
        yield f"| {row.name} | {switch} | {row.help}{note} |\n"


def engine_rows(air, options):
    out = subprocess.run(
        [air, "passes"], capture_output=True, text=True, check=True
    ).stdout
    passes, _, parts = out.partition("left out by --without:")
    for line in passes.splitlines():
        if line.strip():
            _, name, text = line.split(None, 2)
            yield f"| {name} | {text} |\n"
    yield PARTS_HEAD
    keys = {name: f"`{key}=False`" for key, name in options.WITHOUT.items()}
    keys["view"] = "`enable_view_optimize=False`"
    keys["registers"] = "for watched runs"
    for line in parts.strip().splitlines():
        name, text = line.split(None, 1)
        if f" {name} " not in passes or name in keys:
            yield f"| {name} | {keys.get(name, '')} | {text} |\n"


def switch_rows(names):
    yield SWITCHES_HEAD
    for name, ours in names.COUNTERPARTS.items():
        yield f"| `{name}` | {ours} |\n"
    others = sorted(names.WITHOUT_COUNTERPART, key=str.lower)
    yield OTHERS.format(count=len(others))
    yield textwrap.fill(
        ", ".join(f"`{n}`" for n in others),
        80,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield "\n"


def options(air):
    # The tables import the extension: it is in the installed package, which
    # make keeps current, or was put among the sources by hand.
    if util.find_spec("torchair") is None:
        sys.path.insert(0, str(ROOT / "python"))
    from torchair import options, pass_names, passes

    return (
        OPTIONS_HEAD
        + "".join(option_rows(options))
        + PASSES_HEAD
        + "".join(pass_rows(passes))
        + ENGINE_HEAD
        + "".join(engine_rows(air, options))
        + "".join(switch_rows(pass_names))
    )


NAMES_HEAD = """\
# Public names

Every public name and option of the interface, where it lives below `python/`
and the test that would fail without it, from `tools/public_names.txt` by
`tools/gen_docs.py`. {there} have a test, {missing} are not here yet and say
why. Wrong values of options: `test_option_table.py::test_bad_values` by path,
`test_options.py::test_wrong_values` by key; of arguments:
`test_wrong_arguments.py`. The last table has what the original is known to do
wrong, and the test that this does not.
"""
NAMES_SECTION = """
## {name}

| name | where | test |
|---|---|---|
"""


def name_sections():
    """section: [(name, where, test)] of public_names.txt."""
    sections, rows = {}, []
    for line in (ROOT / "tools" / "public_names.txt").read_text().splitlines():
        if "|" in line:
            rows.append([cell.strip() for cell in line.split("|")])
        elif line.startswith("# "):
            rows = sections.setdefault(line[2:], [])
    return {name: rows for name, rows in sections.items() if rows}


def is_missing(row):
    return row[2].startswith("not here yet")


def names(_air):
    sections = name_sections()
    rows = [row for found in sections.values() for row in found]
    missing = sum(map(is_missing, rows))
    out = [NAMES_HEAD.format(there=len(rows) - missing, missing=missing)]
    for name, found in sections.items():
        out.append(NAMES_SECTION.format(name=name))
        for what, where, test in found:
            where = f"`{where}`" if where else ""
            test = test if test.startswith("not") else f"`{test}`"
            out.append(f"| `{what}` | {where} | {test} |\n")
    return "".join(out)


ATTENTION_HEAD = """\
# Attention for inference

`npu_fused_infer_attention_score` (v1) and `npu_fused_infer_attention_score_v2`
(v2), by `tools/gen_docs.py` from `python/torchair/attention/arguments.py`.

| where | lengths are |
|---|---|
| `torch.ops.npu.*`, `torch_npu.*` | lists of integers |
| `torchair.ops.*`, `torch.ops.air.*` | int64 tensors: data, no sizes |

Both compute in eager code, in compiled functions (one node of the engine,
`air::fused_attention`, without a HOST node) and in captures, where
`NPUGraph.update` replaces the lists. A new list in a compiled function makes a
new set of sizes; lengths that change at every call belong into tensors.

On a GPU the same calls are operators of torch around `air::dense_attention`,
an attention of dense caches: fused by the engine in compiled functions, its
core the engine's kernel or torch's. All tensors are on the query's device;
lengths in tensors are not read by the host. A list of lengths lets rows that
follow each other (T layouts) be put side by side to the length of the longest
batch, and unused blocks be left out; with a tensor every batch gets room for
all rows. Weights of float16 and bfloat16 are rounded to these. `NPUGraph` has
no captures there.

For query i and key j of a batch, with k = j's key of head h // group:

    score = scale * (q . k + q_rope . k_rope) + pse_shift
    out = sum of softmax(score) * value,  lse = log of the sum of e^score

Sums are in float32 and rounded once. Rows that see no key, and rows behind the
length of their batch, are 0 and their lse is +inf.

## Arguments

| v1 | v2 | default | |
|---|---|---|---|
"""
ATTENTION_TAIL = """
## Layouts

{layouts}. The first part is the query's (keys' and values', without
block_table), the second the result's. B batches, S rows, N heads, D width, H
all heads, T rows of all batches behind each other. NSD is one batch.

A cache of blocks is (blocks, tokens, heads * width), for BNSD and T layouts
also (blocks, heads, tokens, width), or (blocks, heads, width / 16, tokens, 16)
with 32 in place of 16 for int8.

## Masks

| sparse_mode | a query sees | atten_mask |
|---|---|---|
| 0 | all; with a mask, pre_tokens back, next_tokens ahead | any, or none |
| 1 | all | needed |
| 2 | keys up to its own number | the compressed one |
| 3 | the same with the last query at the last key | the compressed one |
| 4 | a band, pre_tokens and next_tokens from there | the compressed one |
| 9 (v2) | all but what the mask hides of the last keys | a tree's |

A tree's mask is (batches, rows, rows), with TND one dimension of all of them;
it needs rope or a cache of five dimensions.
The compressed mask is `triu(ones(2048, 2048), 1)`; its numbers are not read. A
single query (no T layout, no rope) has no mode: only a mask of its keys counts.
Row i of a mask is query i of the batch, column j its key j, prefix first.

## Scales of integer keys and values

| mode | shape | |
|---|---|---|
| 0 | (heads, 1, width), (heads, width), (heads * width) | a channel |
| 0 | (1) | all |
| 1 | (batches, keys) | a token |
| 2 | (heads) | a head |
| 3 | (batches, heads, keys) | a token of a head |
| 4 | (blocks, tokens) | a token of a block |
| 5 | (blocks, heads, tokens) | the same of a head |

Modes 0 and 1 may have another 1 in front.

## What is refused, and why

`FusedAttentionError`, a RuntimeError and a ValueError, names the argument.

* What has no meaning: shapes, dtypes and lengths that do not fit, a scale
  without integers, one of a pair, a mode without its mask.
* What the description excludes: block_table with prefix, padding or int8
  queries; rope with pse_shift, prefix, padding or quantised results; a prefix
  with padding; a sink with pse_shift or scales; scales per token with T
  layouts without blocks.
* Limits of the description: {limits}.
* Not refused, though the hardware does: float32; other widths than 64, 128 and
  192 in T layouts; groups of heads that its kernels lack; more than 16 rows
  over an int8 cache. `inner_precise` changes nothing.
* Not checked: lengths in tensors and numbers of blocks. They are cut to what
  memory holds.

Not certain from public descriptions, and taken as: 4-bit integers lie lowest
first; `dequant_scale_query` has the query's axes without the last; a mask
counts rows and keys of the batch, not of its padding.

## Training

`torch_npu.npu_fusion_attention` and `npu_rotary_mul` are torch's operators
underneath, with gradients. Refused: `pse` (where it is added is not certain),
`padding_mask`, `prefix`, modes 5 to 8, `rotary_mode="quarter"`. Dropout draws
from torch's generator, so seed and offset in the result are 0.
"""


def attention(_air):
    path = ROOT / "python" / "torchair" / "attention" / "arguments.py"
    spec = util.spec_from_file_location("attention_arguments", path)
    module = sys.modules[spec.name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    merged = {}
    for row in module.ROWS:
        public, default = merged.setdefault(row.name, ({}, row.default))
        for version in (1, 2):
            if row.public(version):
                public[version] = f"`{row.public(version)}`"
    out = [ATTENTION_HEAD]
    for name, (public, default) in merged.items():
        if name not in module.MEANING:
            continue  # dtypes of operands that the second version reserves
        text = module.MEANING[name]
        row = public.get(1, ""), public.get(2, ""), f"`{default}`", text
        out.append("| " + " | ".join(row) + " |\n")
    layouts = ", ".join(f"`{name}`" for name in module.LAYOUT_NAMES)
    tail = ATTENTION_TAIL.replace("{layouts}", layouts)
    return "".join(out) + tail.replace("{limits}", module.LIMITS)


PAGES = {
    "attention.md": attention,
    "names.md": names,
    "ops.md": ops,
    "options.md": options,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    stale = 0
    for name, make in PAGES.items():
        target = ROOT / "docs" / name
        text = make(Path(args.build) / "tools" / "air")
        if not args.check:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            print(f"docs/{name} is not current: python tools/gen_docs.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
