"""NPUGraph: its life, its errors, its memory."""

import gc
import json
import threading

import pytest
import torch
from test_npu_record import capture

import torchair
from torchair import npu
from torchair.npu import pools


def pool_bytes(handle):
    gc.collect()
    return pools.statistics().get(handle, {"reserved_bytes": 0})[
        "reserved_bytes"
    ]


# ---- life ----


def test_capture_begin_and_end():
    x, g, s = torch.ones(3), npu.NPUGraph(), npu.Stream()
    with npu.stream(s):
        assert not npu.is_current_stream_capturing()
        g.capture_begin()
        assert npu.is_current_stream_capturing()
        assert npu.NPUGraph.get_currently_capturing_graph() is g
        y = x + 1
        g.capture_end()
        assert not npu.is_current_stream_capturing()
    g.replay()
    assert y.tolist() == [2.0] * 3


def test_replay_on_any_stream():
    x = torch.zeros(1)
    g, _ = capture(lambda: x.add_(1))
    g.replay()
    with npu.stream(npu.Stream()):
        g.replay()
    assert x.item() == 2


def test_reset_and_capture_again():
    x = torch.ones(2)
    g, y = capture(lambda: x + 1)
    g.reset()
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.replay()
    with npu.graph(g):
        z = x + 5
    g.replay()
    assert z.tolist() == [6.0] * 2


def test_an_empty_capture():
    g, _ = capture(lambda: None)
    g.replay()
    assert g.pool() in pools.statistics()


def test_results_have_fixed_addresses():
    x = torch.ones(4)
    g, y = capture(lambda: x * 3)
    address = y.data_ptr()
    for i in range(3):
        x.fill_(i)
        g.replay()
        assert y.data_ptr() == address and y.tolist() == [3.0 * i] * 4


def test_one_graph_after_the_other():
    x = torch.ones(3)
    first, y = capture(lambda: x + 1)
    second, z = capture(lambda: y * 2)
    for value in (1.0, 2.0):
        x.fill_(value)
        first.replay()
        second.replay()
        assert z.tolist() == [(value + 1) * 2] * 3


def test_methods_can_be_spied_on(monkeypatch):
    made, replayed = [], []
    init, replay = npu.NPUGraph.__init__, npu.NPUGraph.replay

    def spy_init(self):
        made.append(self)
        init(self)

    def spy_replay(self):
        replayed.append(self)
        replay(self)

    monkeypatch.setattr(npu.NPUGraph, "__init__", spy_init)
    monkeypatch.setattr(npu.NPUGraph, "replay", spy_replay)
    g, _ = capture(lambda: torch.ones(2) + 1)
    g.replay()
    g.replay()
    assert made == [g] and replayed == [g, g]


def test_the_default_capture_stream_is_shared():
    seen = []
    for _ in range(2):
        capture(lambda: seen.append(npu.current_stream()))
    assert seen == [npu.graph.default_capture_stream] * 2
    mine = npu.Stream()
    capture(lambda: seen.append(npu.current_stream()), stream=mine)
    assert seen[-1] is mine
    assert npu.current_stream() == npu.default_stream()


def test_two_threads_capture_at_once():
    barrier, errors = threading.Barrier(2), []

    def work(value):
        try:
            x = torch.full((3,), value)
            g = npu.NPUGraph()
            mode = "thread_local"
            with npu.graph(g, stream=npu.Stream(), capture_error_mode=mode):
                barrier.wait(30)
                y = x * 2
                barrier.wait(30)
            for _ in range(20):
                g.replay()
            assert y.tolist() == [2 * value] * 3
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(v,)) for v in (1.0, 4.0)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


# ---- errors ----


def on_a_stream(call):
    with npu.stream(npu.Stream()):
        return call()


def test_errors_of_the_default_stream():
    g = npu.NPUGraph()
    with pytest.raises(
        RuntimeError, match="must be captured on a non-default stream"
    ):
        g.capture_begin()
    with pytest.raises(RuntimeError, match="non-default"):
        capture(lambda: None, stream=npu.default_stream())


def test_errors_of_the_order_of_calls():
    g = npu.NPUGraph()
    with pytest.raises(
        RuntimeError, match=r"capture_end\(\) called before capture_begin\(\)"
    ):
        g.capture_end()
    for call in (g.replay, g.pool):
        with pytest.raises(
            RuntimeError, match="without a preceding successful capture"
        ):
            call()
    with pytest.raises(RuntimeError, match="outside of a capture"):
        npu.NPUGraph.get_currently_capturing_graph()
    with npu.graph(g):
        pass
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        on_a_stream(g.capture_begin)


def test_ending_on_another_stream():
    g = npu.NPUGraph()
    on_a_stream(g.capture_begin)
    with pytest.raises(
        RuntimeError, match="Capture must end on the same stream it began on"
    ):
        on_a_stream(g.capture_end)
    with npu.graph(g):  # nothing is left of it
        pass


def test_ending_in_another_thread():
    g, errors = npu.NPUGraph(), []

    def end():
        try:
            g.capture_end()
        except RuntimeError as error:
            errors.append(str(error))

    x, s = torch.ones(3), npu.Stream()
    with npu.stream(s):
        g.capture_begin()
        y = x + 1
        t = threading.Thread(target=end)
        t.start()
        t.join()
        g.capture_end()
    assert "thread it began in" in errors[0]
    g.replay()
    assert y.tolist() == [2.0] * 3


@pytest.mark.parametrize("mode", ["Global", "", None])
def test_unknown_modes(mode):
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        capture(lambda: None, capture_error_mode=mode)
    assert npu.current_stream() == npu.default_stream()


@pytest.mark.parametrize(
    "pool", [3, (1,), (1, 1), (0.5, 0), (True, 0), [0, 1], (-1, 0)]
)
def test_wrong_pools(pool):
    with pytest.raises(TypeError, match="Invalid graph pool handle type"):
        capture(lambda: None, pool=pool)


@pytest.mark.parametrize(
    "name, value",
    [
        ("TASK_QUEUE_ENABLE", "2"),
        ("ASCEND_LAUNCH_BLOCKING", "1"),
        (
            "PYTORCH_NPU_ALLOC_CONF",
            "max_split_size_mb:5,pin_memory_expandable_segments:True",
        ),
    ],
)
def test_refused_environments(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match="cannot capture with"):
        capture(lambda: None)
    monkeypatch.setenv(name, "0")
    capture(lambda: None)


def test_garbage_is_collected_where_asked(monkeypatch):
    calls = []
    monkeypatch.setattr("gc.collect", lambda: calls.append(1))
    capture(lambda: None)
    monkeypatch.setenv("TORCH_NPUGRAPH_GC", "1")
    before = len(calls)
    capture(lambda: None)
    assert (before, len(calls)) == (0, 1)


def test_external_streams_are_refused():
    with pytest.raises(RuntimeError, match="ExternalStream cannot be captured"):
        capture(lambda: None, stream=npu.ExternalStream(77))


def test_captures_do_not_nest_on_a_stream():
    with pytest.raises(RuntimeError, match="already capturing"):
        capture(lambda: npu.NPUGraph().capture_begin())


def test_work_that_waits_is_not_captured_behind():
    side, event = npu.Stream(), npu.ExternalEvent()
    event.wait(side)
    with npu.stream(side):
        with pytest.raises(RuntimeError, match="unfinished work"):
            npu.NPUGraph().capture_begin()
        event.record(npu.default_stream())
        g = npu.NPUGraph()
        g.capture_begin()
        g.capture_end()


def test_replaying_inside_a_capture():
    inner, _ = capture(lambda: torch.ones(2) + 1)
    with pytest.raises(RuntimeError, match="inside a capture"):
        capture(inner.replay)


# by the recorder; by torch.npu's own seeding where torch_npu is loaded
SEEDING = "seeded while capturing|seeding .* while capturing"


def test_seeding_inside_a_capture():
    with pytest.raises(RuntimeError, match=SEEDING):
        capture(lambda: torch.manual_seed(12345))
    torch.rand(3)
    with pytest.raises(RuntimeError, match=SEEDING):
        capture(lambda: torch.manual_seed(12345))


def test_exceptions_leave_nothing(monkeypatch):
    g, x = npu.NPUGraph(), torch.ones(3)
    with pytest.raises(KeyError), npu.graph(g):
        y = x + 1
        raise KeyError
    assert not npu.is_current_stream_capturing()
    assert npu.current_stream() == npu.default_stream()
    assert (x + 1).tolist() == [2.0] * 3  # computed again
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.pool()
    del y
    with npu.graph(g):
        z = x + 2
    g.replay()
    assert z.tolist() == [3.0] * 3


@pytest.mark.parametrize(
    "mode, mine, others",
    [
        ("global", True, True),
        ("thread_local", True, False),
        ("relaxed", False, False),
    ],
)
def test_error_modes(mode, mine, others):
    """Whom does a capture forbid to synchronize?"""

    def refused(call):
        try:
            call()
        except RuntimeError:
            return True
        return False

    def in_thread(call):
        found = []
        t = threading.Thread(target=lambda: found.append(refused(call)))
        t.start()
        t.join()
        return found[0]

    def body():
        assert in_thread(npu.synchronize) == others
        assert refused(npu.synchronize) == mine

    g = npu.NPUGraph()
    spoiled = refused(lambda: capture_into(g, body, mode))
    assert spoiled == (mine or others)


def capture_into(g, body, mode):
    with npu.graph(g, capture_error_mode=mode):
        body()


# ---- memory ----


def test_handles():
    a, b = npu.graph_pool_handle(), npu.graph_pool_handle()
    assert a != b and a[0] == 0 and a[1] > 0
    g, _ = capture(lambda: None)
    assert g.pool()[0] > 0 and g.pool()[1] == 0
    g, _ = capture(lambda: None, pool=a)
    assert g.pool() == a


def test_memory_returns_to_zero():
    handle = npu.graph_pool_handle()
    graphs = [
        capture(lambda: torch.ones(1000).sin() * 2, pool=handle)
        for _ in range(3)
    ]
    for g, _ in graphs:
        g.replay()
    assert pools.statistics()[handle]["graphs"] == 3
    assert pools.statistics()[handle]["active_bytes"] >= 3 * 4000
    outs = [out for _, out in graphs]
    for g, _ in graphs:
        g.reset()
    del g, graphs
    assert [o[0].item() for o in outs]  # still memory of their own
    del outs
    assert pool_bytes(handle) == 0 and handle not in pools.statistics()


def test_intermediates_are_shared():
    """Memory that dies in one capture serves the next."""
    handle = npu.graph_pool_handle()

    def body():
        x = torch.ones(1 << 16)
        for _ in range(10):
            x = x.sin()
        return x.sum()

    keep = [capture(body, pool=handle)]
    one = pool_bytes(handle)
    assert one <= 3 * 4 * (1 << 16)
    keep += [capture(body, pool=handle) for _ in range(5)]
    assert pool_bytes(handle) <= one + 5 * 64
    for g, total in keep:
        g.replay()
        assert total.item() == pytest.approx(body().item(), rel=1e-4)


def test_programs_run_in_memory_of_the_pool():
    handle = npu.graph_pool_handle()
    x = torch.randn(1 << 16)

    def body():  # nothing of it fits in one loop
        parts = [(x + i).cumsum(0) for i in range(3)]
        return torch.stack(parts).sum(0)

    keep, used = [], []
    for _ in range(4):
        g, y = capture(body, pool=handle)
        g.replay()
        keep.append((g, y))
        used.append(pools.statistics()[handle]["program_bytes"])
    assert used[0] > 0 and len(set(used)) == 1


def test_many_replays_allocate_nothing():
    from torchair import _native

    x = torch.randn(64)
    w = torch.randn(64, 64)
    g, y = capture(lambda: torch.relu(w @ x).softmax(0))
    g.replay()
    gc.collect()
    blocks, objects = _native.pool_stats(), len(gc.get_objects())
    pool = pools.statistics()
    for _ in range(1000):
        g.replay()
    assert _native.pool_stats() == blocks
    assert len(gc.get_objects()) <= objects + 10
    assert pools.statistics() == pool
    torch.testing.assert_close(y, torch.relu(w @ x).softmax(0))


def test_a_graph_dies_with_its_last_reference():
    g, y = capture(lambda: torch.ones(100) * 2)
    handle = g.pool()
    del g
    gc.collect()
    assert handle not in pools.statistics()
    y.fill_(1)  # the tensor's own memory


# ---- the rest ----


def test_debug_dump(tmp_path):
    g = npu.NPUGraph()
    g.enable_debug_mode()
    path = tmp_path / "graph.json"
    g.debug_dump(str(path))
    assert not path.exists()
    x = torch.ones(3)
    with npu.graph(g):
        y = x.add(1).mul_(2)
    g.debug_dump(str(path))
    names = [row["name"] for row in json.loads(path.read_text())]
    assert names == ["aten.add.Tensor", "aten.mul_.Tensor"]
    aligned = json.loads((tmp_path / "graph.aligned.json").read_text())
    assert "aten.mul.Tensor" in [row["target"] for row in aligned]
    assert y.shape == (3,)


OPTIONS = [
    ({"preload_code": 1, "opt_extend": "a"}, {"debug_sync_all": 0}, None),
    ({"aggressive_opt_strategies": {"task_breaker_bypass": 1}}, None, None),
    ({"dcci_disable_on_kernel": ["a"]}, None, None),
    ({"preload": 1}, None, "has no key 'preload'"),
    ({"preload_code": "1"}, None, "must be of type int"),
    ({"preload_code": True}, None, "must be of type int"),
    ({"opt_extend": 1}, None, "must be of type str"),
    ({"dcci_after_kernel_end": [1]}, None, "list of str"),
    ({"aggressive_opt_strategies": 1}, None, "must be a dict"),
    ({"aggressive_opt_strategies": {"x": 1}}, None, "has no key 'x'"),
    (None, {"debug_extend": 3}, "must be of type str"),
    (None, {"early_start": 1}, "has no key"),
    ([], None, "must be a dict"),
]


@pytest.mark.parametrize("optimize, debug, message", OPTIONS)
def test_super_kernel_options(optimize, debug, message):
    g, _ = capture(lambda: None)
    if message is None:
        g.super_kernel_optimize(optimize, debug)
        return
    with pytest.raises(RuntimeError, match=message):
        g.super_kernel_optimize(optimize, debug)


def test_super_kernel_scopes():
    npu.super_kernel_scope_begin("a")
    npu.super_kernel_scope_begin()
    with pytest.raises(RuntimeError, match="innermost"):
        npu.super_kernel_scope_end("a")
    npu.super_kernel_scope_end()
    npu.super_kernel_scope_end("a")
    with pytest.raises(RuntimeError, match="without"):
        npu.super_kernel_scope_end()


def test_super_kernel_scopes_as_operators():
    ops, x = torch.ops.npu, torch.ones(2)

    def body():
        ops.super_kernel_scope_begin("a")
        y = x + 1
        ops.super_kernel_scope_end("a")
        return y

    g, y = capture(body)
    g.replay()
    assert y.tolist() == [2.0] * 2 and len(g._work.log) == 1
    with pytest.raises(RuntimeError, match="without"):
        ops.super_kernel_scope_end()


def test_registering_generators_is_not_needed():
    g = npu.NPUGraph()
    g.register_generator_state(torch.default_generator)


def test_printing_at_replay(capfd):
    x = torch.ones(2)
    npu.print_npugraph_tensor(x, tensor_name="now")
    assert "now: tensor([1., 1.])" in capfd.readouterr().out

    def body():
        y = x * 2
        npu.print_npugraph_tensor(y, tensor_name="y")
        y.add_(1)
        npu.print_npugraph_tensor(y)

    g, _ = capture(body)
    assert capfd.readouterr().out == ""
    x.fill_(4)
    g.replay()
    assert capfd.readouterr().out.split("\n")[:2] == [
        "y: tensor([8., 8.])",
        "tensor([9., 9.])",
    ]


def test_saving_at_replay(tmp_path):
    x = torch.ones(2)

    def body():
        npu.save_npugraph_tensor(x * 2, save_path=str(tmp_path / "a.pt"))
        npu.save_npugraph_tensor(
            [x, x + 1], save_path=str(tmp_path / "b.pt"), overwrite=True
        )

    g, _ = capture(body)
    assert not list(tmp_path.iterdir())
    for value in (1.0, 3.0):
        x.fill_(value)
        g.replay()
        (a,) = tmp_path.glob("a_device_0_*.pt")
        assert torch.load(a).tolist() == [2 * value] * 2
        both = torch.load(tmp_path / "b.pt")
        assert [t.tolist() for t in both] == [[value] * 2, [value + 1] * 2]
    with pytest.raises(FileNotFoundError, match="no folder"):
        npu.save_npugraph_tensor(x, save_path=str(tmp_path / "no" / "a.pt"))


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("grad", [False, True])
def test_showing_in_compiled_functions(mode, grad, tmp_path, capfd):
    config = torchair.CompilerConfig()
    config.mode = mode
    backend = torchair.get_npu_backend(compiler_config=config)

    one, all_of = str(tmp_path / "y.pt"), str(tmp_path / "both.pt")

    def body(x):
        y = x * 2
        torch.ops.npu.print_npugraph_tensor(y, tensor_name="y")
        npu.save_npugraph_tensor(y, save_path=one)
        npu.save_npugraph_tensor([x, y], save_path=all_of, overwrite=True)
        return y.relu_() + 1

    fn = torch.compile(body, backend=backend, fullgraph=True)
    for value in (-1.0, 3.0):
        x = torch.full((2,), value, requires_grad=grad)
        assert fn(x).tolist() == [max(2 * value, 0) + 1] * 2
        (path,) = tmp_path.glob("y_device_0_*.pt")
        assert torch.load(path).tolist() == [2 * value] * 2
        both = torch.load(tmp_path / "both.pt")
        assert [t[0].item() for t in both] == [value, 2 * value]
    shown = capfd.readouterr().out
    assert shown == "y: tensor([-2., -2.])\ny: tensor([6., 6.])\n"


# ---- conditional nodes ----


def test_conditional_nodes():
    x, flag, kept = torch.ones(3), torch.tensor(True), torch.zeros(3)
    g = npu.NPUGraph()
    with npu.graph(g):
        y = x * 2
        g.begin_capture_to_if_node(flag)
        z = y + 1
        kept.copy_(z)
        y.mul_(10)
        g.end_capture_to_conditional_node()
        w = y + kept
    g.replay()
    assert (y.tolist(), kept.tolist()) == ([20.0] * 3, [3.0] * 3)
    assert z.tolist() == [3.0] * 3 and w.tolist() == [23.0] * 3
    flag.fill_(False)
    x.fill_(5)
    g.replay()
    assert (y.tolist(), kept.tolist()) == ([10.0] * 3, [3.0] * 3)
    assert w.tolist() == [13.0] * 3


def test_a_condition_computed_in_the_graph_and_nested():
    x, out = torch.zeros(1), torch.zeros(1)
    g = npu.NPUGraph()
    with npu.graph(g):
        out.zero_()
        g.begin_capture_to_if_node(x.sum() > 0)
        out.add_(1)
        g.begin_capture_to_if_node(x.sum() > 10)
        out.add_(1)
        g.end_capture_to_conditional_node()
        g.end_capture_to_conditional_node()
    for value, want in ((-1, 0), (1, 1), (11, 2), (-1, 0)):
        x.fill_(value)
        g.replay()
        assert out.item() == want


def test_torch_cond():
    x, kept = torch.zeros(3), torch.zeros(3)

    def more(x):
        return x * 2, x.clone()

    def less(x):
        return x - 1, x.exp()

    g = npu.NPUGraph()
    with npu.graph(g):
        y, z = torch.cond(x.sum() > 0, more, less, (x,))
        kept.add_(y)
    for value in (2.0, -1.0, 0.5):
        x.fill_(value)
        before = kept.clone()
        g.replay()
        want = more(x) if value > 0 else less(x)
        torch.testing.assert_close((y, z), want)
        torch.testing.assert_close(kept, before + want[0])
        assert x.tolist() == [value] * 3


def test_branches_that_differ():
    x = torch.zeros(3)
    for less in (lambda x: x[:2].clone(), lambda x: (x.sin(), x.cos())):
        with pytest.raises(RuntimeError, match="torch.cond"):
            capture(lambda f=less: torch.cond(x.sum() > 0, torch.sin, f, (x,)))


def test_errors_of_conditional_nodes():
    g = npu.NPUGraph()
    flag = torch.tensor(True)
    with pytest.raises(RuntimeError, match="outside of the graph's capture"):
        g.begin_capture_to_if_node(flag)
    with pytest.raises(RuntimeError, match="bool tensor"), npu.graph(g):
        g.begin_capture_to_if_node(torch.ones(2))
    with pytest.raises(RuntimeError, match="without"), npu.graph(g):
        g.end_capture_to_conditional_node()
    with pytest.raises(RuntimeError, match="not ended"), npu.graph(g):
        g.begin_capture_to_if_node(flag)
