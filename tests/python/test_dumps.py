"""Graph dumps, data dumps of the engine, the table of operators, logs."""

import csv
import json
import logging
import os
import re
import subprocess
import sys

import numpy
import pytest
import torch

import torchair
from torchair import fx_summary
from torchair.core.utils import EVENT_LEVEL


def compile_with(fn, **options):
    config = torchair.CompilerConfig()
    for path, value in options.items():
        at = config
        *sections, name = path.split("__")
        for section in sections:
            at = getattr(at, section)
        setattr(at, name, value)
    return torch.compile(
        fn, backend=torchair.get_npu_backend(compiler_config=config)
    )


def fused(x, w):
    y = torch.relu(x @ w)
    return torch.softmax(y * 2 + 1, -1)


X, W = torch.randn(4, 8), torch.randn(8, 16)


# ---- graphs ----


@pytest.mark.parametrize("kind", ["txt", "pbtxt", "py"])
def test_graph_dump_files(kind, tmp_path):
    folder = tmp_path / "made" / "here"
    run = compile_with(
        fused,
        debug__graph_dump__type=kind,
        debug__graph_dump__path=str(folder),
    )
    run(X, W)
    names = sorted(os.listdir(folder))
    pattern = r"dynamo_(\w+)_graph_(\d+)_rank_0_pid_(\d+)_ts_\d{20}\." + kind
    found = [re.fullmatch(pattern, n) for n in names]
    assert [m[1] for m in found] == ["optimized", "original"]
    assert found[0][2] == found[1][2] and int(found[0][3]) == os.getpid()
    assert os.stat(folder).st_mode & 0o777 == 0o750 & ~_umask()
    assert os.stat(folder / names[0]).st_mode & 0o777 == 0o640 & ~_umask()
    text = (folder / names[1]).read_text()
    assert "MatMul" in text and "softmax" in text.lower()


def test_values_have_one_name_in_all_dumps(tmp_path):
    """By which tools compare them: _fx_tensor_name of the graph is the stem of
    the files that eager dumps."""

    def fn(x, w):
        values, places = torch.max(torch.relu(x @ w), -1)
        return values * 2, places

    for chosen in ("debug__graph_dump", "debug__data_dump"):
        torch._dynamo.reset()
        kind = "txt" if chosen == "debug__graph_dump" else "npy"
        options = {f"{chosen}__type": kind, f"{chosen}__path": str(tmp_path)}
        compile_with(fn, **options)(X, W)
    (text,) = tmp_path.glob("dynamo_original*.txt")
    found = re.findall(
        r'"_fx_tensor_name"\s+value { s: "(.*)" }', text.read_text()
    )
    files = tmp_path.rglob("*.OUTPUT.*.npy")
    saved = {f.name.rsplit(".", 2)[0] for f in files}
    saved -= {s for s in saved if s.startswith("getitem")}
    assert len(found) == 5 and set(found) == saved


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_graph_dump_as_builder_calls(tmp_path):
    run = compile_with(
        fused,
        debug__graph_dump__type="py",
        debug__graph_dump__path=str(tmp_path),
    )
    run(X, W)
    (path,) = tmp_path.glob("dynamo_original*.py")
    text = path.read_text()
    compile(text, "dump", "exec")
    assert text.startswith("# -*- coding")
    assert text.count("## FX Code: ") == 7  # two inputs, five operators
    assert "y = torch.relu(x @ w)" in text
    under = text.split("## FX Code: ")
    assert [t.partition(":")[0] for t in under[1:3]] == ["arg0_1", "arg1_1"]
    assert re.search(r"^x_0 = ge\.Data\(index=0, ", under[1], re.M)
    mm = next(t for t in under if t.startswith("mm:"))
    assert re.search(r"^MatMul\w*_0 = ge\.MatMul\w*\(x_0, w_0, ", mm, re.M)
    # arguments are the type's own: their order, their names
    softmax = next(t for t in under if t.startswith("_softmax:"))
    assert re.search(r"ge\.SoftmaxV2\(\w+_0, axes=\[-1\], ", softmax)
    assert text.rstrip().splitlines()[-1].startswith("_ = ge.NetOutput([")


def test_builder_calls_after_the_passes(tmp_path):
    """The optimized graph is the one that runs, under the nodes that it is
    for; constants of a call and what waits for what are in it."""

    def fn(x, b):
        y = torch.softmax(torch.addmm(b, x, x.t()), -1)
        torchair.ops.npu_print(y)
        return torch.special.bessel_j0(y)

    run = compile_with(
        fn,
        debug__graph_dump__type="py",
        debug__graph_dump__path=str(tmp_path),
    )
    run(torch.eye(3), torch.ones(3))
    (path,) = tmp_path.glob("dynamo_optimized*.py")
    text = path.read_text()
    compile(text, "dump", "exec")
    under = {t.partition(":")[0]: t for t in text.split("## FX Code: ")}
    assert re.search(r"ge\.MatMulV2\(x_0, \w+_0, b_0, ", under["addmm"])
    types = re.findall(r"ge\.(\w+)\(", under["_softmax"])
    assert types[0] == "Const" and {"ReduceMax", "Exp"} <= set(types)
    assert "ge.Const([1], dtype=9, " in under["_softmax"]
    host = under["special_bessel_j0"]
    assert re.search(r"dependencies=\[Print\w*_0\], node_name=", host)


def test_inputs_that_are_updated_are_ref_data(tmp_path):
    """Before and after the passes, which write where copy_ wrote to."""

    def fn(cache, x):
        cache[1:2] = x
        return cache.sum()

    run = compile_with(
        fn,
        debug__graph_dump__type="pbtxt",
        debug__graph_dump__path=str(tmp_path),
    )
    run(torch.zeros(3, 4), torch.ones(1, 4))
    for path in tmp_path.glob("dynamo_*.pbtxt"):
        found = re.findall(
            r'name: "(cache|x)"\n  op: "(\w+)"', path.read_text()
        )
        assert dict(found) == {"cache": "RefData", "x": "Data"}, path.name


def test_graph_dump_refuses_links(tmp_path, monkeypatch):
    monkeypatch.setattr(torchair.files, "now", lambda: "0")
    monkeypatch.setattr("torchair.graph_dump._count", iter([77]))
    name = f"dynamo_original_graph_77_rank_0_pid_{os.getpid()}_ts_0.txt"
    (tmp_path / "target").write_text("mine")
    os.symlink(tmp_path / "target", tmp_path / name)
    run = compile_with(
        fused,
        debug__graph_dump__type="txt",
        debug__graph_dump__path=str(tmp_path),
    )
    with pytest.raises(Exception, match="symbolic link"):
        run(X, W)
    assert (tmp_path / "target").read_text() == "mine"


def test_captures_dump_python_only(tmp_path):
    run = compile_with(
        fused,
        mode="reduce-overhead",
        debug__graph_dump__type="pbtxt",
        debug__graph_dump__path=str(tmp_path),
    )
    with pytest.raises(Exception, match="only support 'py' type"):
        run(X, W)


# ---- values ----


def dumped(root):
    """stem without its time -> file"""
    (run,) = (root / "worldsize1_global_rank0").iterdir()
    assert re.fullmatch(r"\d{14}", run.name)
    (model,) = (run / "0").iterdir()
    return {
        f"{p.parent.name}/{p.name.rsplit('.', 2)[0]}": p
        for p in model.rglob("*.npy")
    }


def test_engine_dump(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
    )
    got = run(X, W)
    torch.testing.assert_close(got, fused(X, W))
    run(X + 1, W)
    found = dumped(tmp_path)
    mm = numpy.load(found["0/mm-aten.mm.default.OUTPUT.0"])
    torch.testing.assert_close(torch.from_numpy(mm), X @ W)
    out = numpy.load(found["1/_softmax-aten._softmax.default.OUTPUT.0"])
    assert (out == run(X + 1, W).numpy()).all()
    x = numpy.load(found["0/mm-aten.mm.default.INPUT.0"])
    assert (x == X.numpy()).all()
    assert not any("relu" in name for name in found)  # in registers


def test_engine_dump_of_registers(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
        dump_config__quant_dumpable=True,
        dump_config__dump_mode="output",
    )
    run(X, W)
    found = dumped(tmp_path)
    relu = numpy.load(found["0/relu-aten.relu.default.OUTPUT.0"])
    torch.testing.assert_close(torch.from_numpy(relu), torch.relu(X @ W))
    assert not any("INPUT" in name for name in found)


def test_engine_dump_of_layers_and_steps(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
        dump_config__dump_layer="relu",
        dump_config__dump_step="1|3-4",
        dump_config__dump_mode="output",
    )
    for _ in range(6):
        run(X, W)
    assert sorted(dumped(tmp_path)) == [
        f"{i}/relu-aten.relu.default.OUTPUT.0" for i in (1, 3, 4)
    ]


def test_a_dump_of_nodes_that_are_not_there_says_so(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
        dump_config__dump_layer="relu_7",
    )
    with pytest.warns(UserWarning, match="no node relu_7.* it has relu$"):
        run(X, W)
    assert not list(tmp_path.rglob("*.npy"))


def test_engine_dump_of_statistics(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
        dump_config__dump_data="stats",
    )
    run(X, W)
    (path,) = tmp_path.rglob("stats.csv")
    rows = {r["name"]: r for r in csv.DictReader(path.open())}
    row = rows["mm-aten.mm.default.OUTPUT.0"]
    assert row["shape"] == "[4, 16]" and row["dtype"] == "float32"
    assert abs(float(row["max"]) - (X @ W).max().item()) < 1e-5
    assert row["nan"] == "0"


def json_config(tmp_path, **dump):
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"dump": dump}))
    return str(path)


def test_dump_as_a_file_says(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    path = json_config(
        tmp_path,
        dump_path=str(out),
        dump_list=[{"layer": ["mm"]}],
        dump_mode="output",
    )
    compile_with(fused, dump_config__dump_config_path=path)(X, W)
    assert sorted(dumped(out)) == ["0/mm-aten.mm.default.OUTPUT.0"]


def test_dump_of_overflows(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    path = json_config(tmp_path, dump_path=str(out), dump_debug="on")
    run = compile_with(
        lambda x: torch.log((x.flip(0) + 1).sum(0)).flip(0),
        dump_config__dump_config_path=path,
    )
    run(torch.ones(3, 4))
    assert not list(out.rglob("*.npy"))
    run(-torch.ones(3, 4))
    outputs = [n for n in dumped(out) if "OUTPUT" in n]
    assert outputs == ["1/log-aten.log.default.OUTPUT.0"]


def test_watched_nodes(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    path = json_config(
        tmp_path,
        dump_path=str(out),
        dump_mode="output",
        dump_scene="watcher",
        dump_list=[{"layer": ["_softmax"], "watcher_nodes": ["mm"]}],
    )
    compile_with(fused, dump_config__dump_config_path=path)(X, W)
    (name,) = dumped(out)
    assert re.fullmatch(r"0/after_\d+.mm-aten.mm.default.OUTPUT.0", name)


@pytest.mark.parametrize(
    "dump, said",
    [
        (
            {"dump_path": ".", "dump_debug": "on", "dump_op_switch": "on"},
            "exclude each other",
        ),
        (
            {"dump_path": ".", "dump_scene": "watcher", "dump_mode": "all"},
            "needs dump_mode",
        ),
        ({}, "dump_path is None"),
        ({"dump_path": ".", "dump_mode": "both"}, "'both'; give input"),
        ({"dump_path": ".", "dump_lits": []}, "unknown dump_lits"),
    ],
)
def test_files_that_cannot_be(tmp_path, dump, said):
    run = compile_with(
        fused, dump_config__dump_config_path=json_config(tmp_path, **dump)
    )
    with pytest.raises(Exception, match=said):
        run(X, W)


def test_training_is_dumped_by_graph(tmp_path):
    run = compile_with(
        fused,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
    )
    w = W.clone().requires_grad_()
    run(X, w).square().sum().backward()
    names = {p.name for p in tmp_path.glob("worldsize1*/*/0/*")}
    assert {n.split("_")[0] for n in names} == {"forward", "backward"}


# ---- the table of operators ----


def test_summary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fn(x):
        return torch.sin(torch.sin(x)), torch.special.bessel_j0(x)

    compile_with(fn, debug__fx_summary__type="csv")(torch.ones(3))
    (path,) = tmp_path.iterdir()
    assert re.fullmatch(r"summary_rank_0_pid_\d+_ts_\d{20}.csv", path.name)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    rows = list(csv.reader(path.open(encoding="utf-8-sig")))
    assert tuple(rows[0]) == fx_summary.COLUMNS
    found = {r[0]: r for r in rows[1:]}
    sin = found["aten.sin.default"]
    assert sin[1:4] == ["aten", fx_summary.SUPPORTED, "2"]
    assert sin[4:] == ["float32(3): 2", "float32(3): 2"]
    assert found["aten.special_bessel_j0.default"][2] == fx_summary.UNREGISTERED


@pytest.mark.parametrize("skip", [True, False])
def test_summary_compiles_or_not(tmp_path, monkeypatch, skip):
    from helpers import recorded

    monkeypatch.chdir(tmp_path)
    run = compile_with(
        fused,
        debug__fx_summary__type="csv",
        debug__fx_summary__skip_compile=skip,
    )
    with recorded() as found:
        torch.testing.assert_close(run(X, W), fused(X, W))
    assert bool(found[0].fallback) == skip
    assert len(list(tmp_path.iterdir())) == 1


# ---- logs ----


def test_logger_lines(capsys):
    log = torchair.logger
    assert log.name == "torchair" and log is logging.getLogger("torchair")
    assert log.level == logging.ERROR and EVENT_LEVEL == 35
    log.event("not shown")
    log.setLevel(EVENT_LEVEL)
    try:
        log.event("shown %d", 1)
        log.warning("below")
        log.error("above")
    finally:
        log.setLevel(logging.ERROR)
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\[EVENT\] TORCHAIR\(\d+,python[\d.]*\):\d{4}-\d\d-\d\d "
        r"\d\d:\d\d:\d\d\.\d{3}\.\d{3} \[test_dumps.py:\d+\]\d+ shown 1",
        first,
    )
    assert second.startswith("[ERROR]")
    assert logging.getLoggerClass() is logging.Logger


def test_warning_once(capsys):
    torchair.logger.setLevel(logging.WARNING)
    try:
        for _ in range(2):
            torchair.logger.warning_once("said once")
    finally:
        torchair.logger.setLevel(logging.ERROR)
    assert capsys.readouterr().out.count("said once") == 1


def test_times_of_key_steps(capsys):
    torchair.logger.setLevel(EVENT_LEVEL)
    try:
        run = compile_with(fused)
        for _ in range(3):
            torch.testing.assert_close(run(X, W), fused(X, W))
    finally:
        torchair.logger.setLevel(logging.ERROR)
    said = capsys.readouterr().out
    assert re.search(r"graph inference_\d+: 5 nodes .* in \d+ us", said)
    runs = r"\[EVENT\].* run of 2 inputs started at [\d.]+, took \d+ us"
    assert len(re.findall(runs, said)) == 3


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_lower_levels_have_events_too(capsys, level):
    torchair.logger.setLevel(level)
    try:
        compile_with(fused)(X, W)
    finally:
        torchair.logger.setLevel(logging.ERROR)
    said = capsys.readouterr().out
    assert re.search(r"\[EVENT\].* run of 2 inputs started at", said)


def test_nodes_and_their_values_are_logged(caplog):
    """At DEBUG: the FX graph, and of each node its target, operands and
    results, with the values of the engine's graph."""
    with caplog.at_level("DEBUG", "torchair"):
        compile_with(fused)(X, W)
    said = [r.getMessage() for r in caplog.records]
    assert any(
        re.match(r"FX graph inference_\d+: graph\(\):\n", t) for t in said
    )
    assert any(
        re.fullmatch(
            r"mm, target: aten.mm.default, at test_dumps.py:\d+\n"
            r"  input: arg0_1: float32\[\d+, \d+\], value 0\n"
            r"  input: arg1_1: float32\[\d+, \d+\], value 1\n"
            r"  output: mm: float32\[\d+, \d+\], value 2",
            t,
        )
        for t in said
    ), said


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_became_of_sizes_is_logged(caplog, dynamic):
    """As tools read it; inputs that are updated are RefData."""

    def fn(x, n):
        return x.add_(n)

    config = torchair.CompilerConfig()
    config.experimental_config.enable_ref_data = True
    run = torch.compile(
        fn,
        backend=torchair.get_npu_backend(compiler_config=config),
        dynamic=dynamic,
    )
    with caplog.at_level("INFO", "torchair"):
        run(torch.ones(3, 5), 7)
    kind = "Dynamic FX graph compiled to dynamic"
    if not dynamic:
        kind = "Static FX graph compiled to static"
    said = [r.getMessage() for r in caplog.records]
    assert any(
        re.match(rf"{kind} Ascend GE graph, graph id: \d+$", t) for t in said
    )
    assert any(re.match(r"Replace RefData_\d+ with \w+:Data$", t) for t in said)


def test_debug_level_of_the_environment():
    code = (
        "import torchair; print(torchair.logger.level); "
        "from torchair.core.utils import EVENT_LEVEL; print(EVENT_LEVEL)"
    )
    for value, level in (("1", "10"), ("True", "40")):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TORCH_COMPILE_DEBUG": value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.split() == [level, "35"]


@pytest.mark.parametrize(
    "level, event, info, debug, warned",
    [
        ("0", True, True, True, False),
        ("4", True, False, False, False),
        ("7", False, False, False, True),
        (None, False, False, False, False),
    ],
)
def test_engine_log_of_the_environment(level, event, info, debug, warned):
    code = (
        "import torch\n"
        "from torchair.backend import torchair as B\n"
        "def fn(x):\n"
        "    return torch.special.bessel_j0(x + 1)\n"
        "torch.compile(fn, backend=B)(torch.ones(3))\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "TNG_LOG_LEVEL"}
    if level is not None:
        env["TNG_LOG_LEVEL"] = level
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("compiled in" in out.stderr) == event
    assert ("HOST special_bessel_j0" in out.stderr) == info
    assert ("after the passes:" in out.stderr) == debug
    assert ("TNG_LOG_LEVEL='7' is none of" in out.stderr) == warned
    assert "torchair" not in out.stdout.lower()


def test_a_scope_chooses_what_is_dumped(tmp_path):
    def fn(x, w):
        with torchair.scope.data_dump():
            y = torch.relu(x @ w)
        return torch.softmax(y * 2, -1)

    run = compile_with(
        fn,
        dump_config__enable_dump=True,
        dump_config__dump_path=str(tmp_path),
        dump_config__dump_mode="output",
    )
    run(X, W)
    assert sorted(dumped(tmp_path)) == [
        "0/mm-aten.mm.default.OUTPUT.0",
        "0/relu-aten.relu.default.OUTPUT.0",
    ]


# ---- what the environment asks for ----


def written_twice(tmp_path, monkeypatch, level):
    """The ONNX texts (as it came, as it runs), names of files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUMP_GE_GRAPH", level)
    compile_with(lambda x: torch.relu(x.sum(1) * 2.5 - x[:, 0]))(X)
    monkeypatch.delenv("DUMP_GE_GRAPH")
    names = sorted(os.listdir(tmp_path))
    onnx = [n for n in names if n.startswith("ge_onnx_")]
    return [(tmp_path / n).read_text() for n in onnx], names


@pytest.mark.parametrize(
    "level, values, attributes",
    [("1", True, True), ("2", False, True), ("3", False, False)],
)
def test_graphs_for_netron(tmp_path, monkeypatch, level, values, attributes):
    texts, names = written_twice(tmp_path, monkeypatch, level)
    pattern = r"ge_(onnx|proto)_(\d{8})_graph_(\d+)_(\w+)\.(pbtxt|txt)"
    found = [re.fullmatch(pattern, n) for n in names]
    assert [(m[1], m[4], m[5]) for m in found] == [
        ("onnx", "PreRunBegin", "pbtxt"),
        ("onnx", "Build", "pbtxt"),
        ("proto", "PreRunBegin", "txt"),
        ("proto", "Build", "txt"),
    ]
    assert len({m[3] for m in found}) == 1
    assert [int(m[2]) - int(found[0][2]) for m in found] == [0, 1, 0, 1]
    for text in texts:
        assert text.startswith("ir_version: 8\n")
        assert text.count("{") == text.count("}")
        assert 'output: "ReduceSum:0"' in text and 'input: "x:0"' in text
        assert ('name: "value" ints: 1 type: INTS' in text) == values
        assert ('name: "keep_dims"' in text) == attributes
        assert ("elem_type: 1" in text) == attributes
    proto = (tmp_path / names[3]).read_text()
    assert 'type: "Relu"' in proto and "_aten" in proto


def test_no_graphs_for_netron(tmp_path, monkeypatch, capsys):
    for level in ("", "0", "yes"):
        assert written_twice(tmp_path, monkeypatch, level) == ([], [])
    assert "DUMP_GE_GRAPH='yes' is none of 1, 2 and 3" in capsys.readouterr()[1]


def bundle(folder, fn, *args, **options):
    """What compiling with TORCH_COMPILE_DEBUG=1 writes: name -> text."""
    compile_with(fn, **options)(*args)
    (made,) = folder.glob("run_*/torchair/model__*/forward")
    names = sorted(n for n in os.listdir(made) if n[0].isdigit())
    return {n: (made / n).read_text() for n in names}


@pytest.mark.parametrize("kind", [None, "txt", "py"])
def test_the_bundle_has_the_graph_after_each_pass(debug_folder, kind):
    def double(gm, _inputs, _config):
        for node in gm.graph.nodes:
            if node.target is torch.ops.aten.neg.default:
                node.target = torch.ops.aten.exp.default
        gm.recompile()

    found = bundle(
        debug_folder,
        lambda x: torch.relu(-x) + torch.relu(-x),
        X,
        debug__graph_dump__type=kind,
        debug__graph_dump__path=str(debug_folder),
        post_grad_custom_pre_pass=double,
    )
    kind = kind or "pbtxt"
    names = list(found)
    assert [n.partition("_")[0] for n in names] == [
        f"{i:03}" for i in range(len(names))
    ]
    said = [n.partition("_")[2] for n in names]
    assert said[:3] == [
        "aot_forward_graph.txt",
        "aot_forward_graph_after_pre_pass.txt",
        f"aot_forward_original_ge_graph.{kind}",
    ]
    assert f"aot_forward_graph_after_cse.{kind}" in said
    assert said[-2:] == [
        f"aot_forward_graph_after_group.{kind}",
        f"aot_forward_optimized_ge_graph.{kind}",
    ]
    assert "Exp" in found[names[2]] and "Neg" not in found[names[2]]
    cse = found[names[said.index(f"aot_forward_graph_after_cse.{kind}")]]
    word = {"txt": 'type: "Relu"', "pbtxt": 'op: "Relu"', "py": "ge.Relu("}
    assert found[names[2]].count(word[kind]) == 2
    assert cse.count(word[kind]) == 1


@pytest.mark.parametrize("removed", [True, False])
def test_the_graph_without_noops_is_logged(caplog, removed):
    with caplog.at_level(logging.DEBUG, "torchair"):
        compile_with(
            lambda x: x.repeat(1, 1).exp(),
            experimental_config__remove_noop_ops=removed,
        )(X)
    said = [r.getMessage() for r in caplog.records]
    found = [t for t in said if t.startswith("After removing noop ops")]
    assert len(found) == removed
    assert all("exp(" in t and "repeat" not in t for t in found)
