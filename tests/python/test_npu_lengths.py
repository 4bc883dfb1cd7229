"""Captured attention whose lengths change: a node of the engine, whose
lengths NPUGraph.update writes."""

import warnings

import pytest
import torch
from helpers import assert_same
from test_npu_record import capture

from torchair import attention, backend, npu
from torchair.npu import lengths, trace

attention.register("npu")
attention.register("air")
NAMES = {
    1: ("actual_seq_lengths", "actual_seq_lengths_kv"),
    2: ("actual_seq_qlen", "actual_seq_kvlen"),
}
FIXED = {
    1: {"num_heads": 4, "num_key_value_heads": 2, "input_layout": "BSND"},
    2: {
        "num_query_heads": 4,
        "num_key_value_heads": 2,
        "input_layout": "BSND",
    },
}


def op_of(version, overload="default"):
    name = "npu_fused_infer_attention_score" + ("_v2" if version == 2 else "")
    return getattr(getattr(torch.ops.npu, name), overload)


@pytest.fixture
def data():
    q = torch.randn(2, 3, 4, 16)
    return q, *(torch.randn(2, 7, 2, 16) for _ in "kv")


def attend(version, data, **lens):
    return op_of(version)(*data, **FIXED[version], **lens)


def captured(fn):
    """(graph, results, records of its programs)"""
    records = []
    with backend.collect(records, []):
        graph, out = capture(fn, auto_dispatch_capture=True)
        for entry in graph._captured("").records:
            entry.event.record()  # what the first replay would wait for
        graph.replay()
    return graph, out, records


@pytest.mark.parametrize("version", [1, 2])
def test_an_update_reaches_the_engine(data, version):
    queries, keys = NAMES[version]
    start = {queries: [3, 3], keys: [7, 7]}
    graph, out, records = captured(lambda: attend(version, data, **start))
    assert [r.hosts for r in records] == [[]]
    assert_same(out, attend(version, data, **start))
    for new in ([3, 5], [1, 7], [2, 2]):
        graph.update([{keys: new}])
        graph.replay()
        assert_same(out, attend(version, data, **start | {keys: new}))
    assert len(records) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_results_in_memory_of_the_caller(data, version):
    keys = NAMES[version][1]
    out = [torch.full((2, 3, 4, 16), 9.0), torch.full((1,), 9.0)]

    def fn():
        return op_of(version, "out")(
            *data, **FIXED[version], **{keys: [7, 7]}, workspace=None, out=out
        )

    graph, found, records = captured(fn)
    assert found is None and [r.hosts for r in records] == [[]]
    graph.update([{keys: [4, 6]}])
    graph.replay()
    assert_same(out[0], attend(version, data, **{keys: [4, 6]})[0])
    assert out[1].item() == 9.0  # nobody asked for it


def test_one_length_for_all(data):
    graph, out, _ = captured(
        lambda: attend(1, data, actual_seq_lengths_kv=[7, 7])
    )
    graph.update([{"actual_seq_lengths_kv": [4]}])
    graph.replay()
    assert_same(out, attend(1, data, actual_seq_lengths_kv=[4, 4]))


def test_a_wrong_count_changes_nothing(data):
    start = {"actual_seq_lengths": [3, 3], "actual_seq_lengths_kv": [7, 7]}
    graph, out, _ = captured(lambda: attend(1, data, **start))
    wrong = {"actual_seq_lengths": [1, 1], "actual_seq_lengths_kv": [1, 2, 3]}
    with pytest.raises(RuntimeError, match="kv has 3 lengths, the capture had"):
        graph.update([wrong])
    graph.update([{"actual_seq_lengths_kv": [7, 7]}])
    graph.replay()
    assert_same(out, attend(1, data, **start))


def test_lengths_that_the_capture_had_not_are_reported(data):
    graph, _, _ = captured(
        lambda: attend(1, data, actual_seq_lengths_kv=[7, 7])
    )
    with pytest.warns(UserWarning, match="no captured operator has"):
        graph.update([{"actual_seq_lengths": [1, 1]}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.update([{"actual_seq_lengths_kv": [1, 1]}])


def test_what_is_not_taken(data):
    no_lengths = op_of(1), data, FIXED[1]
    assert lengths.take(*no_lengths) is None
    assert lengths.take(torch.ops.aten.add.Tensor, data[:2], {}) is None
    empty = FIXED[1] | {"actual_seq_lengths_kv": []}
    assert lengths.take(op_of(1), data, empty) is None


# ---- in a task group, by hand ----


def in_group(fn):
    """(graph, results, handle, records of its programs)"""
    records = []

    def body():
        stream = npu.current_stream()
        npu.graph_task_group_begin(stream)
        found = fn()
        handles.append(npu.graph_task_group_end(stream))
        return found

    handles = []
    with backend.collect(records, []):
        graph, out = capture(body)
    return graph, out, handles[0], records


def reissue(handle, call):
    stream = npu.Stream()
    npu.graph_task_update_begin(stream, handle)
    call()
    npu.graph_task_update_end(stream)


@pytest.mark.parametrize("version", [1, 2])
def test_lengths_of_a_task_group_are_patched(data, version):
    keys = NAMES[version][1]
    out = [torch.full((2, 3, 4, 16), 9.0), torch.full((1,), 9.0)]

    def call(new):
        op_of(version, "out")(
            *data, **FIXED[version], **{keys: new}, workspace=None, out=out
        )

    graph, _, handle, records = in_group(lambda: call([7, 7]))
    with backend.collect(records, []):
        for new in ([7, 7], [4, 6], [1, 7], [3]):
            reissue(handle, lambda new=new: call(new))
            graph.replay()
            wanted = new if len(new) == 2 else new * 2
            assert_same(out[0], attend(version, data, **{keys: wanted})[0])
    assert [r.hosts for r in records] == [[]]


def test_what_else_changes_makes_a_host_node(data):
    """Another tensor, and a scale: one compilation more, not one for each."""
    other = torch.randn_like(data[0])

    def call(q, scale, new):
        found = op_of(1)(
            q,
            *data[1:],
            **FIXED[1],
            scale=scale,
            actual_seq_lengths_kv=new,
        )
        return found[0] + 1

    graph, out, handle, records = in_group(lambda: call(data[0], 1.0, [7, 7]))
    graph.replay()
    assert_same(out, call(data[0], 1.0, [7, 7]))
    with backend.collect(records, []):
        for given in (
            (data[0], 0.5, [7, 7]),
            (data[0], 0.5, [2, 7]),
            (other, 2.0, [5, 6]),
            (data[0], 1.0, [7, 7]),
        ):
            reissue(handle, lambda given=given: call(*given))
            graph.replay()
            assert_same(out, call(*given))
    assert [len(r.hosts) for r in records] == [0, 1]


def test_what_does_not_change_stays_in_the_engine():
    x = torch.randn(5)
    fn = lambda: (x * 2).tanh()  # noqa: E731
    graph, out, handle, records = in_group(fn)
    with backend.collect(records, []):
        reissue(handle, fn)
        x.normal_()
        graph.replay()
    assert_same(out, fn())
    assert [r.hosts for r in records] == [[]]


def test_a_task_group_in_a_conditional_node(data):
    handles, flag = [], torch.tensor(True)

    def call(scale, new):
        return op_of(1)(
            *data, **FIXED[1], scale=scale, actual_seq_lengths_kv=new
        )[0]

    def body():
        stream = npu.current_stream()
        graph.begin_capture_to_if_node(flag)
        npu.graph_task_group_begin(stream)
        found = call(1.0, [7, 7])
        handles.append(npu.graph_task_group_end(stream))
        graph.end_capture_to_conditional_node()
        return found

    graph = npu.NPUGraph()
    with npu.graph(graph):
        out = body()
    for given in ((1.0, [7, 7]), (1.0, [2, 7]), (0.5, [7, 7]), (0.5, [3, 4])):
        reissue(handles[0], lambda given=given: call(*given))
        graph.replay()
        assert_same(out, call(*given))
    before = len(trace._calls)
    for _ in range(5):
        graph.replay()
    assert len(trace._calls) == before


@pytest.mark.parametrize("own", [False, True])
def test_generators_of_a_task_group(own):
    generator = torch.Generator() if own else torch.default_generator
    x = torch.zeros(5)

    def draw():
        return x.normal_(generator=generator)

    graph, _, handle, records = in_group(draw)
    with backend.collect(records, []):
        for seed in (3, 4):
            reissue(handle, draw)
            generator.manual_seed(seed)
            graph.replay()
            got, state = x.clone(), generator.get_state()
            generator.manual_seed(seed)
            assert_same(got, draw())
            assert torch.equal(state, generator.get_state())
    assert len(records) == 1  # nothing has changed


def test_a_change_while_the_graph_is_compiled_again(monkeypatch):
    x = torch.ones(3)
    graph, out, handle, _ = in_group(lambda: x * 2)
    plain, again = trace.Captured.compile, []

    def compile_and_change(self):
        plain(self)
        if not again:
            again.append(1)
            handle.changes.stale = True

    monkeypatch.setattr(trace.Captured, "compile", compile_and_change)
    reissue(handle, lambda: x * 3)
    graph.replay()
    assert_same(out, x * 3)
    assert handle.changes.stale
    graph.replay()
    assert not handle.changes.stale
