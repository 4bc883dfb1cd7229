"""The `air` command line, as a user sees it.

AIR_CLI names the program; the default is the one `make build` makes.
"""

import itertools
import os
import subprocess
from pathlib import Path

import numpy
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
AIR = Path(os.environ.get("AIR_CLI", ROOT / "build" / "tools" / "air"))

GRAPH = """\
graph f(%x: f32[s0, 8], %w: f32[8, 4], %b: f32[4]) {
  %1: f32[s0, 4] = mm(%x, %w)
  %2: f32[s0, 4] = add.Tensor(%1, %b)
  %3: f32[s0, 4] = gelu(%2)
  return %3
}
"""

TOO_LARGE = (
    "input x, f32[9000000000000000, 8], cannot be made: it has 2.88e+08 GB"
)

NUMPY_DTYPES = {
    "f64": "f8",
    "f32": "f4",
    "f16": "f2",
    "i64": "i8",
    "i32": "i4",
    "i16": "i2",
    "i8": "i1",
    "u8": "u1",
    "bool": "b1",
}

pytestmark = pytest.mark.skipif(not AIR.exists(), reason="make build first")


def air(*args, text=None):
    return subprocess.run(
        [AIR, *args], input=text, capture_output=True, text=True, timeout=120
    )


def run(*args, text=GRAPH):
    done = air("run", "-", *args, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_prints_type_sum_and_values():
    out = run("--set", "s0=3")
    assert out.startswith("result 0: f32[3, 4]  sum ")
    assert out.rstrip().endswith("...")


def test_run_reads_a_file(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(GRAPH)
    done = air("run", path, "--set", "s0=3")
    assert done.stdout == run("--set", "s0=3")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--exact"],
        ["--no-emitter"],
        ["--isa", "scalar"],
        ["--threads", "1"],
        ["--verify"],
        ["--driver", "check:cpu"],
    ],
)
def test_run_agrees_with_ref(options):
    assert "largest difference from ref" in run("--compare", *options)


def test_inputs_depend_on_the_seed_only():
    assert run("--seed", "1") == run("--seed", "1")
    assert run("--seed", "1") != run("--seed", "2")


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "bf16", "f16", "i64", "i32", "i16", "i8", "u8"]
)
def test_every_dtype(dtype):
    text = (
        f"graph f(%x: {dtype}[5, 7], %y: {dtype}[7]) {{\n"
        f"  %1: {dtype}[5, 7] = add.Tensor(%x, %y)\n"
        "  return %1\n}\n"
    )
    out = run("--compare", text=text)
    assert out.startswith(f"result 0: {dtype}[5, 7]")


@pytest.mark.parametrize(
    "last",
    [
        "%3: f32[4, 5] = mul.Tensor(%x, %y)",
        "%3: f32[4, 5] = add.Tensor(%x, %2)",
        "%3: f32[20] = view(%x, [20])",
        "%3: f32[4] = sum.dim_IntList(%x, [1])",
    ],
)
def test_what_is_read_after_a_write_is_new(last):
    text = (
        "graph f(%x: f32[4, 5], %y: f32[4, 5]) {\n"
        "  %1: f32[4, 5] = add.Tensor(%x, %y)\n"
        "  %2: f32[4, 5] = copy_(%x, %1)\n"
        f"  {last}\n"
        "  return %3, %1\n}\n"
    )
    run("--compare", text=text)
    for order in ("dfs", "bfs"):
        run("--compare", "--order", order, text=text)


def test_cat_of_one_value_twice():
    text = (
        "graph f(%x: f32[40, 18]) {\n"
        "  %1: f32[80, 18] = cat([%x, %x])\n"
        "  return %1\n}\n"
    )
    run("--compare", text=text)
    steps = air("dump", "-", "--steps", text=text).stdout
    assert "slot 2 + 2880" in steps


def test_dump_shows_regions_and_steps():
    graph = air("dump", "-", text=GRAPH).stdout
    assert "graph f(" in graph and "@0" in graph
    steps = air("dump", "-", "--steps", text=GRAPH).stdout
    assert "call mm" in steps and "region" in steps
    assert air("dump", "-", "--explain", text=GRAPH).stdout


def test_dump_as_ascend_ir():
    for form, start in (("txt", "name: "), ("pbtxt", "node {"), ("py", "# -")):
        before = air("dump", "-", "--ge", form, "--as-read", text=GRAPH)
        after = air("dump", "-", "--ge", form, text=GRAPH)
        assert before.stdout.startswith(start)
        assert after.stdout.startswith(start)
        assert "NetOutput" in after.stdout
    done = air("dump", "-", "--ge", "json", text=GRAPH)
    assert done.returncode == 2
    assert "txt, pbtxt, py or onnx" in done.stderr


def test_passes_are_left_out_by_name():
    for name in ("canonicalise", "tidy", "cse", "dce", "group", "view"):
        run("--compare", "--without", name, text=GRAPH)
        counted = air("dump", "-", "--stat", "--without", name, text=GRAPH)
        rows = [line.split() for line in counted.stdout.splitlines()]
        assert name not in [row[0] for row in rows]
        assert len(rows) >= 8 and all(len(row) == 6 for row in rows)
    done = air("dump", "-", "--without", "expand", text=GRAPH)
    assert done.returncode == 2 and "lists the names" in done.stderr


def test_dump_prints_regions_as_cuda():
    text = air("dump", "-", "--cuda", text=GRAPH).stdout
    assert "// 1: add+gelu" in text
    assert 'extern "C" __global__ void' in text and "f32::NDTR(" in text


HALVES = """graph g(%x: bf16[64], %y: {}[64]) {{
  %1 = gelu(%x)
  %2 = add.Tensor(%1, %y)
  return %2
}}
"""


def test_regions_that_leave_bf16_have_a_shorter_gelu():
    def regions(dtype, *options):
        text = HALVES.format(dtype)
        return air("dump", "-", "--steps", *options, text=text).stdout

    assert "f32 NDTRH " in regions("bf16")
    assert "f32 NDTR " in regions("bf16", "--exact")
    assert "f32 NDTR " in regions("f32")  # which is what they leave


REDUCE = """graph g(%x: f32[128, 256]) {{
  %1: f32[256, 128] = permute(%x, [1, 0])
  {}
}}
"""


def test_reductions_follow_the_layout_of_what_they_read():
    def steps(*lines):
        text = REDUCE.format("\n  ".join(lines))
        return air("dump", "-", "--steps", text=text).stdout

    rows = steps("%2: f32[256] = sum.dim_IntList(%1, [1])", "return %2")
    assert "outer [128, 256]" in rows and "inner" not in rows
    columns = steps("%2: f32[128] = amax(%1, [0])", "return %2")
    assert "inner [128, 256]" in columns and "outer" not in columns
    # Two reductions of a row cannot go the other way: the operand is copied.
    twice = steps("%2: f32[256, 128] = _softmax(%1, 1, false)", "return %2")
    assert "inner [256, 128]" in twice and "[1, 256]" in twice
    loads = twice[twice.index("inner") :]
    assert "[1, 256]" not in loads


def test_orders_of_steps():
    for order in ("written", "bfs", "dfs", "rdfs"):
        run("--compare", "--order", order, text=GRAPH)
    done = air("run", "-", "--order", "xfs", text=GRAPH)
    assert done.returncode == 2 and "bfs, dfs or rdfs" in done.stderr


def test_dump_after_every_pass():
    rows, _, _ = air("passes").stdout.partition("\n\n")
    names = [line.split()[1] for line in rows.splitlines()]
    assert "canonicalise" in names and "group" in names
    for name in names:
        done = air("dump", "-", "--after", name, text=GRAPH)
        assert done.returncode == 0, done.stderr
        assert "graph f(" in done.stdout


def test_dump_after_unknown_pass():
    done = air("dump", "-", "--after", "nope", text=GRAPH)
    assert done.returncode == 1
    assert "there is no pass: nope" in done.stderr


def test_bench_prints_times():
    out = air("bench", "-", "--seconds", "0.05", text=GRAPH).stdout
    assert "step by step" in out and "GB/s read, the best 16 MB" in out
    assert " of memory" in out or " of flops" in out
    slow = ("bench", "-", "--seconds", "0.05", "--driver", "ref")
    plain = air(*slow, text=GRAPH).stdout
    assert "step by step" in plain and "limits" not in plain
    assert "median" in out and "compile" in out and "regions" in out


def test_ops():
    lines = air("ops").stdout.splitlines()
    assert len(lines) >= 200
    assert "add.Tensor(Tensor a" in air("ops", "add.Tensor").stdout
    assert air("ops", "nope").returncode == 1


@pytest.mark.parametrize(
    ("args", "text", "code", "message"),
    [
        (["run", "/no/such/file"], "", 1, "No such file"),
        (["run", "-"], "graph", 1, "syntax error"),
        (["run", "-"], GRAPH.replace("gelu", "nope"), 1, "nope"),
        (["run", "-"], GRAPH.replace("[8, 4]", "[9, 4]"), 1, "shape error"),
        (["run", "-"], GRAPH.replace("(%2)", "(%4)"), 1, "unknown value '4'"),
        (["run", "-"], GRAPH.replace("%3: f32", "%3: i64"), 1, "text says i64"),
        (["run", "-"], "\x01\xffjunk", 1, "1:1: expected 'graph' or 'sym'"),
        (["run", "-", "--set", "s9=1"], GRAPH, 1, "no symbol s9"),
        (["run", "-", "--set", "s0"], GRAPH, 2, "write it as s0=3"),
        (["run", "-", "--set", "s0=-1"], GRAPH, 1, "is not in"),
        (["run", "-", "--set", "s0=9000000000000000"], GRAPH, 1, TOO_LARGE),
        (["run", "-", "--input", "x"], GRAPH, 1, "write it as x=FILE.npy"),
        (["run", "-", "--input", "x=/no"], GRAPH, 1, "No such file"),
        (["run", "-", "--input", "x=/"], GRAPH, 1, "Is a directory"),
        (["run", "-", "--driver", "nope"], GRAPH, 1, "nope"),
        (["run", "-", "--isa", "nope"], GRAPH, 1, "nope"),
        (["run", "-", "--threads", "x"], GRAPH, 2, "a number"),
        (["run", "-", "--nope", "1"], GRAPH, 2, "unknown option: --nope"),
        (["run", "-", "--seed"], GRAPH, 2, "--seed: a value is needed"),
        (["run", "-", "--nope"], GRAPH, 2, "unknown option: --nope"),
        (["run"], "", 2, "a file is needed"),
        (["run", "a", "b"], "", 2, "one file at a time"),
        (["nope"], "", 2, "unknown command: nope"),
        ([], "", 2, "a command is needed"),
    ],
)
def test_errors(args, text, code, message):
    done = air(*args, text=text)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "args",
    [["help"], ["--help"], ["-h"], ["run", "--help"], ["nope", "-", "--help"]],
)
def test_help(args):
    done = air(*args)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("usage: air COMMAND [FILE]")


@pytest.mark.parametrize("args", [["ops"], ["version"], ["dump", "-"]])
def test_output_that_cannot_be_written_is_an_error(args):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [AIR, *args],
            input=GRAPH,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 1
    assert "standard output: No space left on device" in done.stderr


def test_version():
    for word in ("version", "--version"):
        assert air(word).stdout == "air 0.1.0\n"


# ---- arrays of the user ----

WEIGHTS = {
    "x": torch.linspace(-1, 1, 24).reshape(3, 8),
    "w": torch.linspace(-2, 1, 32).reshape(8, 4),
    "b": torch.arange(4.0),
}


def arrays(folder, **given):
    """--input options for tensors saved by numpy.save."""
    options = []
    for name, tensor in {**WEIGHTS, **given}.items():
        path = folder / f"{name}.npy"
        numpy.save(path, tensor)
        options += ["--input", f"{name}={path}"]
    return options


def test_run_takes_and_gives_arrays(tmp_path):
    run(*arrays(tmp_path), "--output", str(tmp_path / "out"))
    got = numpy.load(tmp_path / "out" / "result0.npy")
    x, w, b = WEIGHTS.values()
    want = torch.nn.functional.gelu(x @ w + b)
    assert got.dtype == numpy.float32
    assert torch.allclose(torch.from_numpy(got), want, atol=1e-6)


def test_arrays_in_column_major_order(tmp_path):
    column = numpy.asfortranarray(WEIGHTS["w"].numpy())
    assert run(*arrays(tmp_path, w=column)) == run(*arrays(tmp_path))


@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES, "bf16"])
def test_arrays_of_every_dtype(tmp_path, dtype):
    text = f"graph f(%x: {dtype}[s0, 3]) {{\n  return %x\n}}\n"
    raw = "V2" if dtype == "bf16" else NUMPY_DTYPES[dtype]
    given = numpy.arange(6, dtype="u2").view("V2") if raw == "V2" else None
    given = numpy.arange(6).astype(raw) if given is None else given
    numpy.save(tmp_path / "x.npy", given.reshape(2, 3))
    run(
        *("--input", f"x={tmp_path / 'x.npy'}"),
        *("--output", str(tmp_path)),
        text=text,
    )
    got = numpy.load(tmp_path / "result0.npy")
    assert got.dtype == given.dtype
    assert got.tobytes() == given.tobytes()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("x", numpy.zeros((3, 8)), "the array is f64, the input f32"),
        (
            "w",
            numpy.zeros((8, 5), "f4"),
            "1 of the array is 5, of the input 4",
        ),
        ("w", numpy.zeros(8, "f4"), "has 1 dimensions, the input 2"),
        ("y", numpy.zeros(8, "f4"), "no such input; it has x"),
        ("b", numpy.zeros(4, ">f4"), "little-endian"),
        ("b", numpy.zeros(4, "c8"), "is not one of f8"),
        ("b", numpy.zeros(4, [("a", "f4")]), "array of records"),
    ],
)
def test_wrong_arrays(tmp_path, name, array, message):
    done = air("run", "-", *arrays(tmp_path, **{name: array}), text=GRAPH)
    assert done.returncode == 1
    assert f"--input {name}=" in done.stderr and message in done.stderr


def test_truncated_arrays(tmp_path):
    options = arrays(tmp_path)
    whole = (tmp_path / "b.npy").read_bytes()
    for end in range(0, len(whole), 7):
        (tmp_path / "b.npy").write_bytes(whole[:end])
        done = air("run", "-", *options, text=GRAPH)
        assert done.returncode == 1
        assert done.stderr.startswith(f"air: --input b={tmp_path}")


def test_results_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    done = air(
        "run", "-", "--output", str(tmp_path / "file" / "out"), text=GRAPH
    )
    assert done.returncode == 1
    assert "Not a directory" in done.stderr


def test_help_names_every_command():
    out = air("help").stdout
    assert out == air("--help").stdout
    for command in ("run", "dump", "bench", "passes", "ops"):
        assert f"  {command} " in out


def test_truncated_text_never_crashes():
    for end in range(0, len(GRAPH) - 2, 3):
        done = air("run", "-", text=GRAPH[:end])
        assert done.returncode == 1
        assert done.stderr.startswith("air: -: ")


RANDOM = """\
graph f() {
  %1: f32[2, 700] = randn([2, 700])
  %2: f32[2, 700] = rand([2, 700])
  %3: f32[2, 700] = air::uniform([2, 700], -1.0, 1.0, f32, 5)
  %4: f32[2, 700] = add.Tensor(%1, %2)
  return %4, %3
}
"""


def test_random_operators_follow_the_seed():
    first, again = run(text=RANDOM), run(text=RANDOM)
    other = run("--seed", "1", text=RANDOM)
    assert first == again
    lines, changed = first.splitlines(), other.splitlines()
    assert lines[0] != changed[0]
    assert lines[1] == changed[1]  # a seed of its own
    assert run("--driver", "ref", text=RANDOM) == first


def test_random_operators_compare_with_the_reference():
    done = air("run", "-", "--compare", "--seed", "4", text=RANDOM)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("air::bernoulli([3], 1.5, f32)", "p is 1.5, not a probability"),
        ("air::normal([3], 0.0, -1.0, f32)", "std is -1"),
        ("air::uniform([3], 2.0, 1.0, f32)", "from is 2, which is above to"),
        ("air::randint([3], 4, 4, i64)", "no integer between"),
        ("air::randint([3], 0, 300, u8)", "does not have all integers"),
        ("rand([3], dtype=i64)", "draws floats only"),
        ("randperm(-1)", "must not be negative"),
    ],
)
def test_parameters_that_cannot_be_drawn_from(node, why):
    dtype = "i64" if "i64" in node else "u8" if "u8" in node else "f32"
    text = f"graph f() {{\n  %1: {dtype}[3] = {node}\n  return %1\n}}\n"
    done = air("run", "-", text=text)
    assert done.returncode != 0
    assert why in done.stderr


def exported(weights, text, data=b""):
    lines = "".join(f"weight {w}\n" for w in weights)
    return f"air 1\n{lines}graph {len(text)}\n{text}".encode() + data


WEIGHTED = """\
graph f(%x: f32[2], %w: f32[2]) {
  %1: f32[2] = mul.Tensor(%x, %w)
  return %1
}
"""


def test_weights_of_an_exported_program(tmp_path):
    path = tmp_path / "f.air"
    data = numpy.array([3, 5], "f4").tobytes()
    numpy.save(tmp_path / "x.npy", numpy.array([1, 2], "f4"))
    given = "--input", f"x={tmp_path / 'x.npy'}"
    path.write_bytes(exported(["w 0 8"], WEIGHTED, data))
    done = air("run", path, *given, "--compare")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("result 0: f32[2]  sum 13  3 10")
    (tmp_path / "apart").write_bytes(b"....." + data)
    path.write_bytes(exported(["w 5 8 apart"], WEIGHTED))
    assert air("run", path, *given).stdout.startswith(
        "result 0: f32[2]  sum 13"
    )
    dumped = air("dump", path)
    assert dumped.returncode == 0 and "mul.Tensor" in dumped.stdout


OUTSIDE = "weight w: its file is outside of the program's folder"


@pytest.mark.parametrize(
    "weight, said",
    [
        ("y 0 8", "weight y: the graph has no tensor input of that name"),
        ("w 0 4", "weight w: it has another size than the graph's input"),
        ("w 8 8", "a weight lies behind the end of the file"),
        ("w 0 8 none", "weight w: No such file"),
        ("w 0", "a weight has no offset and size"),
        ("w 0 8 ../secret", OUTSIDE),
        ("w 0 8 {root}/secret", OUTSIDE),
        ("w 0 8 linked", OUTSIDE),
        ("w 0 8 sub/../../secret", OUTSIDE),
        ("w 0 8 beyond/secret", OUTSIDE),
    ],
)
def test_weights_that_are_wrong(tmp_path, weight, said):
    path = tmp_path / "f" / "f.air"
    (tmp_path / "f" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(8))
    (tmp_path / "f" / "linked").symlink_to("../secret")
    (tmp_path / "f" / "beyond").symlink_to(tmp_path)
    weight = weight.format(root=tmp_path)
    path.write_bytes(exported([weight], WEIGHTED, bytes(8)))
    done = air("run", path)
    assert done.returncode == 1
    assert said in done.stderr
    allowed = air("run", path, "--weights-anywhere").returncode == 0
    assert allowed == (said == OUTSIDE)


def test_weights_inside_by_another_way(tmp_path):
    path = tmp_path / "real" / "f.air"
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "data").write_bytes(bytes(8))
    (tmp_path / "real" / "inner").symlink_to("data")
    for name in "data", "inner", "sub/../data", tmp_path / "real" / "data":
        path.write_bytes(exported([f"w 0 8 {name}"], WEIGHTED))
        for program in path, tmp_path / "link" / "f.air":
            done = air("run", program)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", ["2", "10", "x"])
def test_a_version_that_is_not_known(tmp_path, version):
    path = tmp_path / "f.air"
    content = exported([], WEIGHTED)
    path.write_bytes(content.replace(b"air 1", f"air {version}".encode()))
    done = air("run", path)
    assert done.returncode == 1
    assert f'version "{version}" of the format is not known' in done.stderr
    assert 'only "1" is' in done.stderr


def test_sizes_that_contradict_an_array(tmp_path):
    for rows in 3, 5:
        array = numpy.ones((rows, 8), "f4")
        numpy.save(tmp_path / f"{rows}.npy", array)
    given = f"x={tmp_path / '3.npy'}"
    run("--input", given, "--set", "s0=3")
    done = air("run", "-", "--input", given, "--set", "s0=7", text=GRAPH)
    assert done.returncode == 1
    assert f"--input {given}: dimension 0 of the array is 3" in done.stderr
    assert "s0 is 7 by --set s0=7" in done.stderr
    two = GRAPH.replace("%b: f32[4]", "%b: f32[4], %y: f32[s0, 8]")
    other = f"y={tmp_path / '5.npy'}"
    done = air("run", "-", "--input", given, "--input", other, text=two)
    assert done.returncode == 1
    assert f"--input {other}: dimension 0 of the array is 5" in done.stderr
    assert f"s0 is 3 by --input {given}" in done.stderr


def test_sizes_of_very_many_symbols(tmp_path):
    """256 that options have said, and one more."""
    known = [f"n{i}" for i in range(16)]
    rows = [[f"a{8 * i + k}" for k in range(8)] for i in range(30)]
    types = [f"%x{i}: f32[{', '.join(row)}]" for i, row in enumerate(rows)]
    types += ["%y: f32[z]", "%w: f32[z]", *(f"{n}: int" for n in known)]
    every = [*known, *itertools.chain(*rows), "z"]
    text = "".join(f"sym {s} = [1, 9] hint 4\n" for s in every)
    text += f"graph f({', '.join(types)}) {{\n  %1: f32[z] = neg(%y)\n"
    text += "  return %1\n}\n"
    given = [a for n in known for a in ("--set", f"{n}=2")]
    for name, shape in (("x", [1] * 8), ("y", [2]), ("w", [3])):
        numpy.save(tmp_path / f"{name}.npy", numpy.ones(shape, "f4"))
    for i in range(30):
        given += ["--input", f"x{i}={tmp_path / 'x.npy'}"]
    first, second = (f"{n}={tmp_path / n}.npy" for n in "yw")
    given += ["--input", first]
    done = air("run", "-", *given, text=text)
    assert done.returncode == 0, done.stderr
    done = air("run", "-", *given, "--input", second, text=text)
    assert done.returncode == 1
    assert f"z is 2 by --input {first}" in done.stderr


# ---- a GPU ----

# NVIDIA's functions over memory of the host: kernels compute nothing.
FAKE = AIR.parents[1] / "tests" / "fake"
fake = pytest.mark.skipif(
    not (FAKE / "libcuda.so.1").exists(), reason="tests/fake is not built"
)


def on_fake(*args, folder=FAKE):
    return subprocess.run(
        [AIR, *args],
        input=GRAPH,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TORCHAIR_CUDA_PATH": str(folder)},
    )


@fake
@pytest.mark.parametrize("driver", ["cuda", "check:cuda", "trace:cuda"])
def test_inputs_go_to_a_gpu_and_results_come_from_it(driver, tmp_path):
    folder = tmp_path / "out"
    done = on_fake(
        *("run", "-", "--driver", driver, "--set", "s0=3"),
        *("--output", folder, "--verbose"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("result 0: f32[3, 4]  sum ")
    assert "error:" not in done.stderr
    assert numpy.load(folder / "result0.npy").shape == (3, 4)
    if driver == "trace:cuda":
        copies = [x for x in done.stderr.splitlines() if "copy" in x]
        sizes = [int(x.split()[-1]) for x in copies]
        assert sizes == [3 * 8 * 4, 8 * 4 * 4, 4 * 4, 3 * 4 * 4]


@fake
def test_results_of_a_gpu_are_compared_with_ref():
    done = on_fake("run", "-", "--driver", "cuda", "--compare")
    assert done.returncode == 1  # nothing was computed
    assert "result 0, element 0" in done.stderr


@fake
def test_a_gpu_is_timed():
    done = on_fake("bench", "-", "--driver", "cuda", "--seconds", "0.05")
    assert done.returncode == 0, done.stderr
    assert "median" in done.stdout and "step by step" not in done.stdout


@fake
def test_a_gpu_that_is_not_there():
    done = on_fake("run", "-", "--driver", "cuda", "--gpu", "3")
    assert done.returncode == 1
    assert "no GPU 3: this machine has 1" in done.stderr
    done = on_fake("run", "-", "--driver", "cuda", "--gpu", "x")
    assert done.returncode == 2
    done = on_fake("run", "-", "--driver", "cuda", folder="/nonexistent")
    assert done.returncode in (0, 1)  # this machine may have one
    assert "Traceback" not in done.stderr
