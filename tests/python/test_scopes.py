"""torchair.scope: what each scope does, nested ones, and what is refused."""

import contextlib
import logging
import os
import re
import subprocess
import sys

import pytest
import torch
from helpers import assert_same

import torchair
from torchair import backend, config, logger, ops, scope

SIZE = 96


def compiled(fn, **config):
    made = torchair.CompilerConfig()
    for key, value in config.items():
        setattr(made, key, value)
    return torch.compile(
        fn,
        backend=torchair.get_npu_backend(compiler_config=made),
        fullgraph=True,
    )


def run(fn, *args, **config):
    """(the program, its results)"""
    programs = []
    torch._dynamo.reset()
    with backend.collect([], programs):
        got = compiled(fn, **config)(*args)
    return programs[-1], got


@contextlib.contextmanager
def logged(level):
    """Lines of the logger, whatever it does with them."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def square():
    return torch.randn(SIZE, SIZE)


# ---- lanes ----


def test_lanes_run_side_by_side():
    """Nothing orders them: the steps of one do not wait for the other's."""

    def fn(x, y):
        with scope.npu_stream_switch("left"):
            a = torch.softmax(x @ y, -1)
        with scope.npu_stream_switch("right"):
            b = torch.softmax(y @ x, -1)
        return a + b

    x, y = square(), square()
    program, got = run(fn, x, y)
    assert_same(got, fn(x, y))
    text = program.text(2)
    assert text.count("lane: 1, after nothing") == 1
    assert text.count("lane: 2, after nothing") == 1
    assert " lane 1" in program.text(0)


def test_an_event_is_a_dependency_of_steps():
    def fn(x, y):
        with scope.npu_stream_switch("left"):
            a = x @ y
            mark = ops.record()
        with scope.npu_stream_switch("right"):
            ops.wait([mark])
            b = y @ x
        return a, b

    program, _ = run(fn, square(), square())
    assert "lane: 2, after 0\n" in program.text(2)


def test_many_lanes_of_one_graph():
    def fn(x):
        parts = []
        for i in range(12):
            with scope.npu_stream_switch(f"lane{i % 5}"):
                y = torch.tanh(x @ x * (0.01 * (i + 1)))
                parts.append(y.cumsum(0) if i % 3 == 0 else y * y)
        return torch.cat(parts, 1), sum(parts)

    x = torch.rand(64, 64)
    run_it = compiled(fn)
    want = fn(x)
    first = run_it(x)
    torch.testing.assert_close(first, want)
    for _ in range(20):  # side by side or not, the same bits
        for a, b in zip(run_it(x), first, strict=True):
            assert torch.equal(a, b)


def test_scopes_are_in_the_dumps(tmp_path):
    """As attributes of the nodes, before and after the passes; what is waited
    for is a control edge."""

    def fn(x, y):
        with scope.npu_stream_switch("left", 0, False):
            a = x @ y
        with scope.super_kernel("sk", "stream-fusion=1"):
            b = torch.softmax(x, -1)
        with scope.limit_core_num(4, 5), scope.op_never_timeout(True):
            c = scope.npu_wait_tensor(b, a).sin()
        with scope.data_dump(), scope.op_never_timeout(False):
            return a, c.cos()

    attributes = {
        "_user_stream_label": ("left", "MatMul"),
        "_user_stream_priority": ("0", "MatMul"),
        "_enable_inner_parallel": ("False", "MatMul"),
        "_super_kernel_scope": ("sk", "SoftmaxV2"),
        "_super_kernel_options": ("stream-fusion=1", "SoftmaxV2"),
        "_op_aicore_num": ("4", "Sin"),
        "_op_vectorcore_num": ("5", "Sin"),
        "torchair_enable_data_dump": ("True", "Cos"),
    }
    for kind in ("pbtxt", "txt", "py"):
        torch._dynamo.reset()
        made = torchair.CompilerConfig()
        made.debug.graph_dump.type = kind
        made.debug.graph_dump.path = str(tmp_path)
        run = torch.compile(
            fn, backend=torchair.get_npu_backend(compiler_config=made)
        )
        run(square(), square())
    (original,) = tmp_path.glob("dynamo_original*.pbtxt")
    nodes = list(_nodes(original.read_text()))
    for key, (value, type_) in attributes.items():
        found = {n["op"]: n[key] for n in nodes if key in n}
        found.pop("Identity", "")  # the wait is in a scope as well
        assert found == {type_: value}
    timed = {n["op"]: n.get("_op_exec_never_timeout") for n in nodes}
    assert timed["Sin"] == "True" and timed["Cos"] == "False"
    (waits,) = [n for n in nodes if n["op"] == "Identity"]
    assert waits["input"] == ["SoftmaxV2:0", "^MatMul"]
    (optimized,) = tmp_path.glob("dynamo_optimized*.pbtxt")
    parts = _nodes(optimized.read_text())  # of softmax, in its scope
    assert len([n for n in parts if n.get("_super_kernel_scope")]) > 3
    (text,) = tmp_path.glob("dynamo_original*.txt")
    assert 'key: "_enable_inner_parallel"\n    value { b: false }' in (
        text.read_text()
    )
    (calls,) = tmp_path.glob("dynamo_original*.py")
    assert re.search(
        r"ge\.Sin\(Identity_0, .*_op_aicore_num=\"4\", .*"
        r"_op_exec_never_timeout=True",
        calls.read_text(),
    )
    assert re.search(
        r"ge\.Identity\(SoftmaxV2_0, .*dependencies=\[MatMul_0\]",
        calls.read_text(),
    )


def _nodes(pbtxt):
    """A dict of each node's attributes, op, and list of inputs."""
    for text in pbtxt.split("node {\n")[1:]:
        pairs = re.findall(r'key: "(.*)"\n +value { s: "(.*)" }', text)
        inputs = re.findall(r'^  input: "(.*)"', text, re.M)
        op = re.search(r'^  op: "(.*)"', text, re.M)[1]
        yield {**dict(pairs), "op": op, "input": inputs}


# ---- npu_wait_tensor ----


@pytest.mark.parametrize("keeps_result", [True, False])
def test_wait_tensor_orders_later_readers(keeps_result):
    def fn(x, y):
        a = x.sin()
        early = a * 3
        with scope.npu_stream_switch("side"):
            b = y @ y
        if keeps_result:
            c = scope.npu_wait_tensor(a, b)
        else:
            scope.npu_wait_tensor(a, b)
            c = a
        return early, b, c @ c

    x, y = square(), square()
    program, got = run(fn, x, y)
    assert_same(got, fn_without_waits(x, y))
    text = program.text(0)
    (line,) = [s for s in text.splitlines() if "air::after" in s]
    waits = line.strip().split(":")[0]
    assert f"mm({waits}, " in text
    assert f"mul.Tensor({waits}, " not in text


def fn_without_waits(x, y):
    a = x.sin()
    return a * 3, y @ y, a @ a


def test_wait_tensor_outside_of_max_autotune():
    x = torch.ones(2)
    with pytest.raises(NotImplementedError, match="npu_wait_tensor"):
        scope.npu_wait_tensor(x, x)

    def fn(x):
        return scope.npu_wait_tensor(x + 1, x) * 2

    with pytest.raises(Exception, match="max-autotune") as caught:
        run(fn, x, mode="reduce-overhead")
    assert "NotImplementedError" in repr(caught.value) + str(caught.value)


# ---- super_kernel ----


@pytest.mark.host("a super kernel is a parallel region of threads")
def test_a_super_kernel_is_in_the_graph():
    def fn(x):
        with scope.super_kernel("all", "stream-fusion=1"):
            y = torch.softmax(x @ x, -1)
            with scope.super_kernel(None):
                z = y.sin()
            return z @ y

    x = square()
    program, got = run(fn, x)
    assert_same(got, fn(x))
    lines = program.text(0).splitlines()
    assert all(("joined" in s) == ("sin" not in s) for s in lines[1:-2])


def unfusable(x, options):
    with scope.super_kernel("k", options):
        return torch.linalg.inv(x + 4 * torch.eye(4, device=x.device))


def test_a_super_kernel_may_refuse_what_torch_computes():
    x = torch.rand(4, 4)
    with pytest.raises(Exception, match="super kernel 'k'"):
        run(lambda x: unfusable(x, "strict-scope-check=abort"), x)
    with logged(logging.WARNING) as lines:
        run(lambda x: unfusable(x, ""), x)
        assert not any("super kernel" in line for line in lines)
        run(lambda x: unfusable(x, "strict-scope-check=bypass"), x)
    assert any("torch computes" in line for line in lines)


def test_deterministic_says_so(graphs):
    from torchair.npugraph_ex.scope import deterministic

    def fn(x):
        with deterministic(2):
            y = x.sum()
        return y + 1

    x = torch.randn(1000)
    found = compiled(fn)(x)
    assert all(torch.equal(compiled(fn)(x), found) for _ in range(5))
    levels = [
        scope.of(n).get("_deterministic_level")
        for n in graphs[0].graph.nodes
        if n.op == "call_function"
    ]
    assert levels == ["2", None]
    for wrong in (3, -1, True, "1"):
        with pytest.raises(ValueError, match="is not 0, 1 or 2"):
            deterministic(wrong)


# ---- time ----


def test_never_timeout_is_nested():
    def fn(x):
        with scope.op_never_timeout():
            y = x @ x
            with scope.op_never_timeout(enable=False):
                z = y @ x
        return z @ y

    with logged(logging.DEBUG) as lines:
        program, _ = run(fn, square())
    marks = ["untimed" in s for s in program.text(0).splitlines()[1:4]]
    assert marks == [True, False, False]
    assert "Set attribute _op_exec_never_timeout: True on op: mm" in lines


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("stream-fuson=1", "there is no option 'stream-fuson'"),
        ("strict-scope-check=maybe", "bypass|abort"),
        ("feed-sync-all=2:stream-fusion=1", "feed-sync-all='2' is not"),
    ],
)
def test_options_of_a_super_kernel_that_mean_nothing(
    options, said, monkeypatch
):
    def fn(x):
        with torchair.scope.super_kernel("k", options):
            return torch.relu(x) * 2

    monkeypatch.setattr(config, "_warned", set())
    with pytest.warns(UserWarning) as caught:
        torch.compile(fn, backend="torchair")(torch.ones(2))
    texts = [str(w.message) for w in caught if "'k'" in str(w.message)]
    assert len(texts) == 1 and said in texts[0]


def test_limits_and_options_are_logged(caplog):
    """What was asked for and what is used; options that mean something to
    kernels of other devices only."""

    def fn(x):
        with torchair.scope.limit_core_num(1, 4096):
            y = torch.relu(x) * 2
        with torchair.scope.super_kernel("k", "debug-aic-num=1"):
            return y.exp()

    with caplog.at_level("INFO", "torchair"):
        torch.compile(fn, backend="torchair")(torch.ones(2))
    said = "\n".join(r.getMessage() for r in caplog.records)
    most = torch.get_num_threads()
    assert (
        said.count(f"limit_core_num: 1|4096 were asked for, 1|{most} are used")
        == 1
    )
    assert "super_kernel 'k': debug-aic-num has no effect" in said


@pytest.mark.parametrize("enable", [1, "True", None])
def test_never_timeout_takes_a_bool(enable):
    with pytest.raises(TypeError, match="enable must be a bool"):
        scope.op_never_timeout(enable)


_SLOW = """
import logging, torch, torchair
from torchair import scope
logging.basicConfig()
def fn(x):
    with scope.op_never_timeout():
        y = x @ x
    return y, torch.softmax(x, -1)
torch.compile(fn, backend=torchair.get_npu_backend())(torch.rand(256, 256))
"""


def child(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_limit_of_time_is_reported():
    """Everything takes longer than a nanosecond; the scope lifts it."""
    got = child(_SLOW, TORCHAIR_OP_TIMEOUT="1e-9")
    assert got.returncode == 0, got.stderr
    assert "step amax" in got.stderr
    assert "limit of time" in got.stderr
    assert "step mm" not in got.stderr
    assert "limit of time" not in child(_SLOW).stderr


def test_a_limit_of_time_is_a_number():
    got = child(_SLOW, TORCHAIR_OP_TIMEOUT="soon")
    assert "TORCHAIR_OP_TIMEOUT is 'soon'" in got.stderr


# ---- marks ----


def test_attributes_stay_on_the_nodes(graphs):
    def fn(x):
        with scope.npu_stream_switch("s", 2, False), scope.data_dump():
            y = x + 1
        with scope.limit_core_num(3, 5):
            return y.sin() * x

    compiled(fn)(torch.ones(3))
    nodes = {n.name: n for n in graphs[0].graph.nodes}
    assert scope.of(nodes["add"]) == {
        "_user_stream_label": "s",
        "_user_stream_priority": "2",
        "_enable_inner_parallel": "False",
        "torchair_enable_data_dump": "True",
    }
    assert nodes["add"].meta["torchair_scope_data_dump"] is True
    assert scope.of(nodes["sin"]) == {
        "_op_aicore_num": "3",
        "_op_vectorcore_num": "5",
    }


def test_a_limit_above_the_machine_is_its_limit():
    def fn(x):
        with scope.limit_core_num(10**6, 10**6):
            return x @ x

    x = square()
    assert_same(run(fn, x)[1], fn(x))


def test_a_scope_that_is_not_left():
    def fn(x):
        torch.ops.air.scope_enter([scope.SUPER_KERNEL], ["k"])
        return x + 1

    with pytest.raises(RuntimeError, match="a scope that no scope_exit leaves"):
        run(fn, torch.ones(2))


def test_a_scope_that_was_not_entered():
    def fn(x):
        torch.ops.air.scope_exit()
        return x + 1

    with pytest.raises(RuntimeError, match="a scope that no scope_enter began"):
        run(fn, torch.ones(2))


def test_scopes_are_the_first_thing_that_is_used():
    code = (
        "import torchair\nwith torchair.scope.limit_core_num(1, 1):\n    pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- limits that no scope gives ----


def limits_of(program):
    return [
        s.strip()
        for s in program.text(2).splitlines()
        if s.startswith("  threads:")
    ]


def product(x):
    return torch.softmax(x @ x, -1)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_a_stream_limit_limits_threads(mode):
    """What is run under it; the program without it is as it was."""
    from torchair import npu

    x = square()
    programs = []
    torch._dynamo.reset()
    stream = npu.current_stream()
    with backend.collect([], programs):
        run_it = compiled(product, mode=mode)
        want = run_it(x).clone()
        (program,) = programs
        assert limits_of(program) == []
        try:
            npu.set_stream_limit(stream, 1, 2)
            assert torch.equal(run_it(x), want)
            found = limits_of(program)
            assert found == ["threads: at most 1", "threads: at most 2"]
        finally:
            npu.reset_stream_limit(stream)
        assert torch.equal(run_it(x), want)


def test_a_device_limit_limits_threads():
    from torchair import npu

    x = square()
    before = npu.get_device_limit(0)
    try:
        npu.set_device_limit(0, 2, 1)
        program, _ = run(product, x)
    finally:
        npu.set_device_limit(
            0, before["cube_core_num"], before["vector_core_num"]
        )
    assert limits_of(program) == ["threads: at most 2", "threads: at most 1"]


def test_a_scope_wins_over_the_limit_of_a_stream():
    from torchair import npu

    def fn(x):
        with scope.limit_core_num(3, 3):
            y = x @ x
        return y @ x

    stream = npu.current_stream()
    try:
        npu.set_stream_limit(stream, 1, 1)
        program, _ = run(fn, square())
    finally:
        npu.reset_stream_limit(stream)
    assert limits_of(program) == ["threads: at most 3", "threads: at most 1"]
