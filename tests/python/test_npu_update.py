"""Host values that change from replay to replay, and serving with them."""

import gc
import warnings

import pytest
import torch
from helpers import assert_same
from test_npu_record import capture

from torchair import npu
from torchair.npu import pools, update

NAMESPACE = "airtest"
library = torch.library.Library(NAMESPACE, "FRAGMENT")
library.define(
    "attend(Tensor q, Tensor kv, SymInt[] lengths, *, float scale=1.0) "
    "-> Tensor"
)
library.define(
    "attend.out(Tensor q, Tensor kv, *, SymInt[]? lengths=None, "
    "Tensor(a!) out) -> Tensor(a!)"
)
library.define("paged(Tensor q, Tensor context_lens) -> Tensor")


def attend(q, kv, lengths, *, scale=1.0):
    """Row i: q[i] * scale times the sum of the first lengths[i] rows of kv."""
    return torch.stack(
        [
            row * scale * kv[i, :n].sum(0)
            for i, (row, n) in enumerate(zip(q, lengths, strict=True))
        ]
    )


def attend_out(q, kv, *, lengths=None, out):
    return out.copy_(attend(q, kv, lengths))


def paged(q, context_lens):
    return q * context_lens.to(q.dtype)


library.impl("attend", attend, "CPU")
library.impl("attend.out", attend_out, "CPU")
library.impl("paged", paged, "CPU")
library.impl("attend", lambda q, kv, n, scale=1.0: q.clone(), "Meta")
library.impl("attend.out", lambda q, kv, lengths=None, out=None: out, "Meta")
library.impl("paged", lambda q, c: q.clone(), "Meta")
ops = torch.ops.airtest


@npu.register_npu_graph_handler(["attend.default", "attend.out"])
class Attend(npu.NpuGraphOpHandler):
    UPDATE_SPECS = {"lengths": 2}


@npu.register_npu_graph_handler("paged.default")
class Paged(npu.NpuGraphOpHandler):
    UPDATE_SPECS = {"context_lens": 1}


@pytest.fixture
def data():
    return torch.randn(2, 4), torch.randn(2, 6, 4)


def captured(fn):
    return capture(fn, auto_dispatch_capture=True)


# ---- NPUGraph.update ----


@pytest.mark.parametrize("first", ["update", "replay"])
def test_update_and_replay_in_either_order(data, first):
    q, kv = data
    lengths = [1, 1]
    g, y = captured(lambda: ops.attend(q, kv, lengths, scale=2.0) + 1)
    lengths[0] = 99  # the capture has its own
    for new in ([2, 3], [6, 1], [4, 4]):
        q.normal_()
        if first == "update":
            g.update([{"lengths": new}])
            g.replay()
        else:
            g.replay()
            assert not npu.default_stream().query()
            g.update([{"lengths": new}])
        assert npu.default_stream().query()
        assert_same(y, attend(q, kv, new, scale=2.0) + 1)


def test_replays_wait_their_turn(data):
    q, kv = data
    total = torch.zeros(2, 4)
    g, _ = captured(lambda: total.add_(ops.attend(q, kv, [0, 0])))
    g.replay()
    g.replay()
    want = torch.zeros(2, 4)
    for new in ([1, 2], [3, 4]):
        g.update([{"lengths": new}])
        want += attend(q, kv, new)
        assert_same(total, want)


def test_keyword_arguments(data):
    q, kv = data
    out = torch.empty(2, 4)
    g, _ = captured(lambda: ops.attend.out(q, kv, lengths=[1, 1], out=out))
    g.update([{"lengths": [5, 2]}])
    g.replay()
    assert_same(out, attend(q, kv, [5, 2]))


def test_lengths_in_host_tensors():
    q, lens = torch.randn(3), torch.tensor([1, 2, 3])
    g, y = captured(lambda: ops.paged(q, lens))
    lens.fill_(100)
    new = torch.tensor([4, 5, 6])
    g.update([{"context_lens": new}])
    new.fill_(100)
    g.replay()
    assert_same(y, q * torch.tensor([4.0, 5.0, 6.0]))


def test_one_dict_for_all_or_one_for_each(data):
    q, kv = data
    g, (a, b) = captured(
        lambda: (ops.attend(q, kv, [1, 1]), ops.attend(q, kv, [1, 1]))
    )
    g.update([{"lengths": [2, 2]}])
    g.replay()
    assert_same([a, b], [attend(q, kv, [2, 2])] * 2)
    g.update([{"lengths": [3, 1]}, {"lengths": [1, 3]}])
    g.replay()
    assert_same([a, b], [attend(q, kv, [3, 1]), attend(q, kv, [1, 3])])
    with pytest.raises(RuntimeError, match="2 operators .* 3 entries"):
        g.update([{}] * 3)


def test_unknown_names_are_reported(data):
    q, kv = data
    g, _ = captured(lambda: ops.attend(q, kv, [1, 1]))
    with pytest.warns(UserWarning, match=r"\['length'\].*\['lengths'\]"):
        g.update([{"length": [2, 2]}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g.update([{"lengths": [2, 2], "scale": 3.0}])


def test_errors_of_update(data):
    q, kv = data
    g, _ = capture(lambda: q + 1)
    with pytest.raises(RuntimeError, match="auto_dispatch_capture=True"):
        g.update([{}])
    g = npu.NPUGraph()
    g.auto_dispatch_capture = True
    with pytest.raises(RuntimeError, match="without a preceding"):
        g.update([{}])
    g, _ = captured(lambda: ops.attend(q, kv, [1, 1]))
    for wrong in ({}, [3], "x"):
        with pytest.raises(TypeError, match="list of dicts"):
            g.update(wrong)


def test_a_wrong_value_fails_at_the_replay_and_can_be_mended(data):
    q, kv = data
    g, y = captured(lambda: ops.attend(q, kv, [1, 1]))
    g.update([{"lengths": [1, 1, 1]}])
    with pytest.raises(ValueError):
        g.replay()
    g.update([{"lengths": [2, 2]}])
    g.replay()
    assert_same(y, attend(q, kv, [2, 2]))


def test_without_auto_dispatch_values_are_frozen(data):
    q, kv = data
    g, y = capture(lambda: ops.attend(q, kv, [2, 3]))
    g.replay()
    assert_same(y, attend(q, kv, [2, 3]))


# ---- handlers ----


def test_the_built_in_table():
    for op, specs in update.BUILT_IN.items():
        assert update._handlers[op].get_update_specs() == specs


def test_what_a_handler_may_do(data):
    q, kv = data
    seen = []

    class Own(npu.NpuGraphOpHandler):
        UPDATE_SPECS = {"lengths": 2}

        def should_handle(self, func, args, kwargs):
            seen.append("should_handle")
            return args[2] != [9, 9]

        def prepare_capture(self, func, args, kwargs):
            out = torch.empty_like(args[0])
            kwargs = {"lengths": args[2], "out": out}
            return ops.attend.out, args[:2], kwargs

        def postprocess_result(self, result, kwargs):
            assert result is kwargs["out"]
            return result * 10

        def record_wrap_kwarg(self, key, value, tensor_param_names):
            seen.append((key, key in tensor_param_names))
            return value

        def update_args(self, record, update_input):
            record.kwargs["lengths"] = [n + 1 for n in update_input["n"]]

    before = update._handlers["attend.default"]
    npu.register_npu_graph_handler("attend.default")(Own)
    try:
        g, (y, z) = captured(
            lambda: (ops.attend(q, kv, [1, 1]), ops.attend(q, kv, [2, 1]))
        )
    finally:
        update._handlers["attend.default"] = before
    assert ("lengths", False) in seen and ("out", True) in seen
    with pytest.warns(UserWarning, match="'n'"):
        g.update([{"n": [1, 2]}])
    g.replay()
    assert_same([y, z], [attend(q, kv, [2, 3]) * 10] * 2)


def test_registering_something_else():
    with pytest.raises(TypeError, match="NpuGraphOpHandler"):
        npu.register_npu_graph_handler("x")(object)


# ---- task groups ----


def group(fn):
    """(graph, result, handle): fn captured in a task group."""
    got = []

    def body():
        stream = npu.current_stream()
        npu.graph_task_group_begin(stream)
        y = fn()
        got.append(npu.graph_task_group_end(stream))
        return y

    g, y = capture(body)
    return g, y, got[0]


def reissue(handle, call, stream=None):
    stream = stream or npu.Stream()
    with npu.stream(stream):
        npu.graph_task_update_begin(stream, handle)
        try:
            found = call()
        finally:
            npu.graph_task_update_end(stream)
    return found


def test_any_operator_can_be_issued_again():
    x, other = torch.ones(3), torch.full((3,), 5.0)
    g, y, handle = group(lambda: x.mul(2.0).add(1.0))
    g.replay()
    assert y.tolist() == [3.0] * 3
    reissue(handle, lambda: x.mul(4.0).add(7.0))
    assert y.tolist() == [3.0] * 3  # nothing has run
    g.replay()
    assert y.tolist() == [11.0] * 3
    reissue(handle, lambda: other.mul(4.0).add(7.0))  # another tensor
    g.replay()
    assert y.tolist() == [27.0] * 3
    other.fill_(1)
    g.replay()
    assert y.tolist() == [11.0] * 3


def test_errors_of_task_groups():
    s, x = npu.Stream(), torch.ones(3)
    for call in (npu.graph_task_group_begin, npu.graph_task_group_end):
        with pytest.raises(RuntimeError, match="not capturing"):
            call(s)
    with pytest.raises(RuntimeError, match="without a begin"):
        capture(lambda: npu.graph_task_group_end(npu.current_stream()))

    def nested():
        npu.graph_task_group_begin(npu.current_stream())
        npu.graph_task_group_begin(npu.current_stream())

    with pytest.raises(RuntimeError, match="inside a task group"):
        capture(nested)
    with pytest.raises(RuntimeError, match="group is not ended"):
        capture(lambda: npu.graph_task_group_begin(npu.current_stream()))
    _, _, handle = group(lambda: x.mul(2.0))
    with pytest.raises(TypeError, match="graph_task_group_end"):
        npu.graph_task_update_begin(s, 3)
    with pytest.raises(RuntimeError, match="without a begin"):
        npu.graph_task_update_end(s)
    npu.graph_task_update_begin(s, handle)
    with pytest.raises(RuntimeError, match="inside an update"):
        npu.graph_task_update_begin(s, handle)
    with pytest.raises(RuntimeError, match="has aten.mul"):
        x.add(1)
    with pytest.raises(RuntimeError, match="before it has issued aten.mul"):
        npu.graph_task_update_end(s)
    assert x.add(1).tolist() == [2.0] * 3


def test_a_failed_update_changes_nothing():
    x = torch.ones(3)
    g, y, handle = group(lambda: (x.mul(2.0), x.add(3.0)))
    with pytest.raises(RuntimeError, match="before it has issued"):
        reissue(handle, lambda: x.mul(9.0))
    g.replay()
    assert [t[0].item() for t in y] == [2.0, 4.0]


def test_updating_inside_a_capture():
    x = torch.ones(3)
    _, _, handle = group(lambda: x.mul(2.0))
    with pytest.raises(RuntimeError, match="capturing stream"):
        capture(
            lambda: npu.graph_task_update_begin(npu.current_stream(), handle)
        )


# ---- weak references ----


def test_a_weak_output_is_written_and_its_memory_is_shared():
    handle = npu.graph_pool_handle()
    x = torch.ones(1 << 14)

    def body(n):
        y = (x[:n] * n).sin()
        return npu.weak_ref_tensor(y)

    sizes = [1 << 14, 1 << 13, 1 << 12]
    graphs = [capture(lambda n=n: body(n), pool=handle) for n in sizes]
    gc.collect()
    assert pools.statistics()[handle]["active_bytes"] == 0
    assert pools.statistics()[handle]["reserved_bytes"] <= 2 * 4 * (1 << 14)
    for n, (g, y) in zip(sizes, graphs, strict=True):
        g.replay()
        assert_same(y, (x[:n] * n).sin())
    assert len({y.data_ptr() for _, y in graphs}) < 3


def test_a_weak_reference_inside_its_capture():
    x = torch.ones(4)

    def body():
        weak = npu.weak_ref_tensor(x * 2)
        return weak + 1

    g, y = capture(body)
    for value in (1.0, 2.0):
        x.fill_(value)
        g.replay()
        assert y.tolist() == [2 * value + 1] * 4


def test_weak_references_outside_of_pools():
    x = torch.arange(6.0).view(2, 3).t()
    y = npu.weak_ref_tensor(x)
    assert y.data_ptr() == x.data_ptr() and y.stride() == x.stride()


def test_memory_of_weak_references_stays_valid():
    x = torch.ones(1000)
    g, y = capture(lambda: npu.weak_ref_tensor(x * 2))
    g.replay()
    g.reset()
    gc.collect()
    junk = [torch.zeros(1000) for _ in range(10)]
    assert y.sum() == 2000 and junk


# ---- as a server uses it ----


class Serving:
    """Decoding with one graph for each batch size, largest first: one pool,
    weak outputs, an ExternalEvent and a task group for each layer."""

    LAYERS = 3

    def __init__(self, sizes):
        self.pool = npu.graph_pool_handle()
        self.updates = npu.Stream()
        self.x = torch.randn(max(sizes), 4)
        self.kv = torch.randn(self.LAYERS, max(sizes), 6, 4)
        self.graphs = {}
        for n in sorted(sizes, reverse=True):
            self.capture(n)

    def layer(self, i, x, lengths, out):
        ops.attend.out(x, self.kv[i, : len(x)], lengths=lengths, out=out)
        return out.tanh()

    def capture(self, n):
        g, params = npu.NPUGraph(), []
        with npu.graph(g, pool=self.pool):
            y, stream = self.x[:n], npu.current_stream()
            for i in range(self.LAYERS):
                event = npu.ExternalEvent()
                event.wait(stream)
                event.reset(stream)
                out = torch.empty_like(y)
                x = y
                npu.graph_task_group_begin(stream)
                y = self.layer(i, x, [1] * n, out)
                handle = npu.graph_task_group_end(stream)
                weak = tuple(map(npu.weak_ref_tensor, (x, out)))
                params.append((handle, event, weak))
            y = npu.weak_ref_tensor(y)
        self.graphs[n] = g, params, y

    def run(self, n, lengths):
        g, params, y = self.graphs[n]
        g.replay()
        with npu.stream(self.updates):
            for i, (handle, event, (x, out)) in enumerate(params):
                npu.graph_task_update_begin(self.updates, handle)
                self.layer(i, x, lengths, out)
                npu.graph_task_update_end(self.updates)
                event.record(self.updates)
        npu.synchronize()
        return y

    def eager(self, n, lengths):
        y = self.x[:n]
        for i in range(self.LAYERS):
            y = attend(y, self.kv[i, :n], lengths).tanh()
        return y


def test_serving():
    sizes = [1, 2, 4, 8, 16]
    server = Serving(sizes)
    for step in range(12):
        if step == len(sizes):
            gc.collect()
            first = pools.statistics()[server.pool]
            assert first["graphs"] == len(sizes)
        n = sizes[step % len(sizes)]
        lengths = [(step + i) % 6 + 1 for i in range(n)]
        server.x.normal_()
        assert_same(server.run(n, lengths), server.eager(n, lengths))
    assert pools.statistics()[server.pool] == first
    for g, _, _ in server.graphs.values():
        g.reset()
    handle, server = server.pool, None
    gc.collect()
    assert handle not in pools.statistics()
