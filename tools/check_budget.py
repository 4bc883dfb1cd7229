"""Line budgets: of layers, files and functions.

Lines are physical lines of .c, .h and .def files. Budgets are raised only by a
commit that says why. Functions and files of the list in budget.txt may be
longer (interpreter and encoder switches), each with its own limit.

    check_budget.py [-v]      -v: the figures of every layer
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LIMIT, FUNCTION_LIMIT = 800, 80
PYTHON_FILE_LIMIT = 500

# directory: (lines, which suffixes)
C = (".c", ".h", ".def")
LAYERS = {
    "src/base": (3750, C),
    # 370 operators instead of the 200 planned: rows, bodies, size rules;
    # special functions are series; a graph has five forms of text
    # numbers of eight bits: 110
    # as if quantised, the largest without places: 120
    # complex numbers: 140
    # slices from a number of any sign: 15
    # largest of windows with channels last: 40
    # integers that HOST nodes are told: 30
    # operands of what jumps: 5; numbers as halves, of lower and pass: 20
    "src/ir": (13570, C),
    # every composite operator with its backward is written out in expand_*
    # attention of operands cast from half precision: 100
    # nested writes of parts of one memory, and which parts lie apart: 200
    # attention with several masks: 100
    # what is made of frozen inputs: 350
    # elements of short axes: 190; numbers as if quantised: 140
    # complex numbers as two real ones: 480
    # casts behind concatenations: 65; elements that a loss reads: 55
    # elements of two values in turns, and their gradients: 560
    # folds of a few elements, written out: 135
    # pointwise nodes before what is broadcast: 90
    # sums of images in their order: 75; extremes without places: 35
    # tokens and lookups of images in their order: 90
    # facts of values that stand for others: 50
    # which axes a row folds; folds of a number: 20
    # casts on the right side of views and gathers: 80
    # gradients of rows added to what is there: 115
    "src/pass": (12120, C),
    "src/lower": (3750, C),
    # lanes of 64 bits: 350; all phases of a row in one loop: 250
    # pairs: 310; two parts of bf16 as one word: 100
    # moments of columns: 10; threads of a row by how many rows there are: 20
    # truth values as bytes with AVX2: 10; stores that are staged,
    # and of two bytes past the caches: 35
    # numbers that a launch gives by value: 25
    "src/codegen": (8580, C),
    # programs, captures with the memory they share, watched runs, waits, lanes
    # files cut where they held two things: 70; sizes that cannot be: 30
    # specialisations that are counted, dropped and found by a hash: 330
    # results on their way: 65
    # parts of pairs that are written where these lie: 100
    # the order of axes that HOST nodes read: 95
    # parts of a cat that is a part of another: 45
    # inputs of HOST nodes that stay where they are: 35
    # values in the order in which they are reshaped: 40
    # operands copied to spare plain kernels: 110
    # images whose channels are last, operands turned for columns: 75
    # small units that nothing waits for: 85; integers that are read: 250
    # results where the last call had them: 115; pairs put together: 35;
    # what of a region goes past the caches: 35
    # one arena of lent memory, large results given back: 20
    # what only results need runs where it frees memory: 215; ids: 15
    "src/exec": (9620, C),
    "src/api": (1250, C),
    # sampling at places of a grid and bags of embeddings are 800; products
    # chosen by measurement 800; few rows of bf16 500
    # functions as vector code of our own, where libm computes one at a time
    # rows that threads take as they get to them, fetches in waits: 300
    # columns of convolutions by masked loads, panels made in pieces: 350
    # convolutions of bf16 by pairs: 210
    # depthwise convolutions with channels as lanes: 220
    # what a machine could do with pairs: 60
    # fused attention of bf16 by pairs, edges of causal gradients: 250
    # convolutions of few channels by pairs, planes of two channels: 190
    # AMX panels from pairs of the image, dot products of near rows: 80
    # depth of AMX products in parts: 100
    # gradients of weights from padded planes, floats and AMX: 560
    # transposed convolution from padded planes, the same: 580
    # extremes of narrow integers, rows of all phases: 80
    # the instruction set asked for before a kernel is: 10
    # columns of f32 from padded planes: 390
    # erfc and pow of f64; what moves elements by instruction set: 190
    # few rows by bytes, with three digits each: 420
    # windows of 3 x 3 in fewer products: 1,110; panels of each thread: 70
    # products of groups of rows: 190; windows of one channel, by rows: 230;
    # phases of transposed convolutions side by side: 60;
    # short rows as one: 240; batches of small products: 180;
    # regions behind convolutions on the pixels of a tile: 180
    # blocks of rows along several axes: 120; small products, the largest: 80
    # columns of bf16 from planes of two channels: 100; pools by four blocks: 40
    # transposed convolution of bf16 by pairs: 90; halves of rows by masks: 20;
    # pairs of pixels that lie apart: 50
    # pairs taken apart and put together in one go: 160
    # numbers that rows of a few elements share: 45
    # rows that lie side by side in a turned block: 60
    # dot products of rows with rows, in attention's gradients: 70
    # lanes of products read in place, and the plan's own file: 30
    # attention's halves of panels at the diagonal: 75
    # lines of short rows that lie alike: 25
    # short rows as columns, is_plain: 85
    # images whose channels are last: 165; windows by steps from planes: 70;
    # rows of tiles at once: 85; few rows times rows read as runs: 140
    # pairs of any size, staged by what a cache holds: 25
    # caches that threads reach, stores past them: 50
    # long rows folded by chunks, extremes of integers in any order: 80;
    # the tree of a few columns in registers: 40; extremes of f64, i64: 35
    # pairs of bf16 where they are slower than floats: 80
    # choices that two processes measure: 20
    # 64-bit ARM: 25
    "src/driver/cpu": (29625, C),
    # 3,300 of them are the graph API for hand use, in npu/; 1,700 are options,
    # FX passes, streams and dumps of the capture mode; 1,000 are the rows of
    # the 76 options; 1,500 are dumps, comparisons and reports,
    # 300 the calls of torch.distributed, 1,600 fused attention;
    # torch_npu has attention of models that are trained, patterns of its
    # norms, and what other processes and libraries ask of its storages
    "python/torch_npu": (3850, (".py",)),
    # 2,400 converters and operators of the user;
    # 1,900 compiled functions and programs in files, what graphs print;
    # 300 ranges, graphs for other viewers and what passes log
    # 230 calls of training graphs without torch's wrappers, and saved
    # outputs that are written; 70 equal nodes of a joint graph
    # 120 dtypes that are moved and converted, not computed with
    # 230 numbers of the CPU among a GPU's tensors, how operands of HOST nodes
    # lie, factors with a sign
    # 120 corrections of optimizers in double
    # 100 where results that are views begin
    # 320 random numbers of a GPU
    # 130 lists of an optimizer's numbers, seeds of attention's gradients; 850
    # fused attention in operators of torch, for a GPU
    # 40 numbers that eager refuses in integer arithmetic
    # 100 seeds of attention read once, by a backward
    # 340 graphs of several GPUs; 80 graphs of a GPU in files; 110 experts
    # 60 operands of quantised weights, named where they are wrong
    # inputs that are lazily conjugated: 40; indices: 80
    # 30 equal layers, once each in a report
    # 170 times of a GPU's steps, images with groups, what a loss keeps
    # arithmetic of complex64: 260
    # images in training, and rows of attention where they lie: 160
    # sizes that are rounded floats: 100; places of extremes, kept: 10
    # windows of a GPU's images: 20; aot_compile: 100
    # layers of encoders, written out: 140; what torch runs faster: 75
    # checks, values and windows of torch.linalg and torch.signal: 55
    # operators that are written in others: 65
    # gradients of patches: 85; passes that are left out: 10
    # integers that HOST nodes are told: 25
    # sizes that torch knows to be 1: 25
    # tensors of the CPU that a graph of a GPU makes, moves or leaves there: 90
    # frames behind graph breaks that note no streams: 50; instructions of
    # Python 3.13: 15; what torch 2.15 traces otherwise: 55; None in 3.15: 5
    # super kernels of a GPU: 55; masks of attention there: 55
    "python/torchair": (31690, (".py",)),
}
GROUPS = {
    "null+ref+wrap": (
        # ref has a plain kernel for each CALL operator; cpu shares them, and
        # how a call of fused attention is read; dense triangles and the
        # edges of pads: 30; loops of scatters and searches for each dtype: 150;
        # runs of index tensors that are broadcast: 90; of a few bytes: 40
        # sums of halves in f32: 80; windows without a place: 30
        # places that are all in range: 25; pads where channels are last: 40
        # is_plain of wrappers: 30; results where they are made, windows with
        # channels last: 45; halves by vectors: 20
        ["src/driver/null", "src/driver/ref", "src/driver/wrap"],
        10625,
    ),
}
PUBLIC_FUNCTIONS = 90
NAME = re.compile(r"(\w+)\s*\(")
TEST = re.compile(r"TEST\((\w+)\)")


def lines(path):
    return path.read_text().count("\n")


def files(folder, suffixes):
    return [p for p in (ROOT / folder).rglob("*") if p.suffix in suffixes]


def layer_lines(folder, suffixes=C):
    return sum(lines(p) for p in files(folder, suffixes))


def exceptions():
    """budget.txt: "path[:function] limit  # why" a line."""
    allowed = {}
    for line in (ROOT / "tools" / "budget.txt").read_text().splitlines():
        fields = line.split("#")[0].split()
        if fields:
            allowed[fields[0]] = int(fields[1])
    return allowed


def functions(path):
    """(name, lines) of each function: the project's style puts the name in
    column 0, and "{" and "}" alone in column 0 around the body."""
    name, start = None, None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if start is None and re.match(r"^[A-Za-z_]", line):
            found = TEST.match(line) or NAME.search(line)
            name = found.group(1) if found else name
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            yield name, number - start - 1
            name, start = None, None


def check_sizes(allowed, used):
    roots = ["src", "include", "tools", "python", "tests", "examples"]
    for path in (p for r in roots for p in files(r, (".c", ".h"))):
        where = str(path.relative_to(ROOT))
        limit = allowed.get(where, FILE_LIMIT)
        used.add(where)
        if lines(path) > limit:
            yield f"{where}: {lines(path)} lines, at most {limit}"
        for name, length in functions(path):
            key = f"{where}:{name}"
            limit = allowed.get(key, FUNCTION_LIMIT)
            used.add(key)
            if length > limit:
                yield f"{key}: {length} lines, at most {limit}"
    for path in files("python/torchair", (".py",)):
        if lines(path) > PYTHON_FILE_LIMIT:
            yield f"{path.relative_to(ROOT)}: more than {PYTHON_FILE_LIMIT}"


def check_layers():
    for folder, (limit, suffixes) in LAYERS.items():
        have = layer_lines(folder, suffixes)
        if have > limit:
            yield f"{folder}: {have} lines, at most {limit}"
    for name, (folders, limit) in GROUPS.items():
        have = sum(layer_lines(f) for f in folders)
        if have > limit:
            yield f"{name}: {have} lines, at most {limit}"


def check_readmes():
    for path in (ROOT / "src").rglob("README.md"):
        if lines(path) > 30:
            yield f"{path.relative_to(ROOT)}: more than 30 lines"
    for folder in LAYERS:
        path = ROOT / folder / "README.md"
        has_code = folder.startswith("src") and files(folder, (".c",))
        if has_code and not path.exists():
            yield f"{folder}: no README.md"


def check_public():
    text = (ROOT / "include" / "air.h").read_text()
    count = len(re.findall(r"^AIR_API\b", text, re.M))
    if count > PUBLIC_FUNCTIONS:
        yield f"air.h: {count} functions, at most {PUBLIC_FUNCTIONS}"


def show():
    for folder, (limit, suffixes) in LAYERS.items():
        print(f"{folder:20}{layer_lines(folder, suffixes):7} of {limit}")
    for name, (folders, limit) in GROUPS.items():
        print(f"{name:20}{sum(map(layer_lines, folders)):7} of {limit}")
    source = layer_lines("src") + layer_lines("include")
    source += layer_lines("python", (".c", ".h", ".py"))
    tests = layer_lines("tests", (*C, ".py", ".txt"))
    print(f"{'tests / source':20}{tests:7} / {source} = {tests / source:.2f}")


def main():
    allowed, used = exceptions(), set()
    problems = [
        *check_sizes(allowed, used),
        *check_layers(),
        *check_readmes(),
        *check_public(),
    ]
    problems += [f"budget.txt: no {key}" for key in allowed if key not in used]
    if "-v" in sys.argv:
        show()
    print("\n".join(problems) or "budgets: fine")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
