"""Captured attention whose lengths change: a node of the engine, whose
lengths NPUGraph.update writes."""

import warnings

import pytest
import torch
from helpers import assert_same
from test_npu_record import capture

from torchair import attention, backend
from torchair.npu import lengths

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
