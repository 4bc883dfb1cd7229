"""enable_shape_handling and NPUShapeHandling: the rules, and their traps."""

import threading

import pytest
import torch
from helpers import in_threads

import torch_npu  # noqa: F401
from torch_npu._inductor import NPUShapeHandling, gears, shapes
from torchair import backend as air


def handling(*configs, **hooks):
    return NPUShapeHandling(list(configs), **hooks)


BATCH = {"type": "BATCHSIZE", "gears": [4, 8]}
LENGTH = {"type": "SEQLEN", "gears": [16, 32]}


def shapes_of(groups):
    return [[tuple(t.shape) for t in g] for g in groups]


# ---- gears ----


@pytest.mark.parametrize(
    ("low", "high", "want"),
    (
        (1, 8, [1, 2, 4, 8]),
        (3, 20, [3, 4, 8, 16, 20]),
        (4, 4, [4]),
        (5, 6, [5, 6]),
        (1, 1024, [2**i for i in range(11)]),
    ),
)
def test_gears_of_times(low, high, want):
    assert gears.times_gears(low, high) == want


def test_default_config():
    (config,) = gears.parse_configs(None)
    assert config.type == "BATCHSIZE" and config.dimensions == [0]
    assert config.gears == [2**i for i in range(11)]
    (config,) = gears.parse_configs([{"type": "SEQLEN"}])
    assert config.dimensions == [1]
    (config,) = gears.parse_configs([{"type": "SEQLEN", "gears": [9, 3, 9]}])
    assert config.gears == [3, 9]


@pytest.mark.parametrize(
    "configs",
    (
        [BATCH, LENGTH, BATCH],
        [BATCH, dict(BATCH)],
        [{}],
        [{"type": "OTHER"}],
        [{"type": "SEQLEN", "dimensions": "1"}],
        [{"type": "SEQLEN", "dimensions": True}],
        [{"type": "SEQLEN", "indices": 3}],
        [{"type": "SEQLEN", "indices": [0, 1], "dimensions": [1, 1, 1]}],
        [{"type": "SEQLEN", "value": "0"}],
        [{"type": "SEQLEN", "gears": 4}],
        [{"type": "SEQLEN", "gears": [4.0]}],
        [{"type": "SEQLEN", "policy": "NONE"}],
        [{"type": "SEQLEN", "policy": "CUSTOM", "max_size": 4}],
        [{"type": "SEQLEN", "min_size": 9, "max_size": 4}],
        [{"type": "SEQLEN", "min_size": 0}],
        [{"type": "SEQLEN", "size": 4}],
        ["SEQLEN"],
    ),
)
def test_wrong_configs(configs):
    with pytest.raises(ValueError):
        NPUShapeHandling(configs)


@pytest.mark.parametrize(
    "config",
    (
        {"type": "BATCHSIZE", "gears": list(range(1, 67))},
        {"type": "BATCHSIZE", "gears": [8193]},
        {"type": "BATCHSIZE", "gears": [0, 4]},
        {"type": "SEQLEN", "gears": [1310721]},
    ),
)
def test_limits_of_gears(config):
    with pytest.raises(RuntimeError):
        NPUShapeHandling([config])


def test_batch_with_several_dimensions_uses_the_first():
    """The original warns that it does, and then fails."""
    with pytest.warns(UserWarning, match="first is used"):
        h = handling({**BATCH, "dimensions": [1, 0]})
    assert shapes_of(h.transform([torch.ones(2, 3)])) == [[(2, 4)]]


# ---- padding and splitting ----


def test_batch_is_padded_and_cut():
    h = handling({**BATCH, "value": 7})
    x = torch.arange(6.0).view(3, 2)
    ((got,),) = h.transform([x])
    assert got[:3].equal(x) and got[3].tolist() == [7, 7]
    (back,) = h.recover([[got * 2]])
    assert back.equal(x * 2)


def test_exact_gear_changes_nothing():
    h = handling(BATCH)
    x = torch.ones(4, 2)
    ((got,),) = h.transform([x])
    assert got is x
    y = torch.tensor(3.0)  # no record: results as they are
    assert h.recover([[y]]) == [y]


def test_large_batch_is_split():
    h = handling(BATCH)
    x = torch.arange(19.0)
    other = torch.tensor(5.0)
    groups = h.transform([x, other])
    assert shapes_of(groups) == [[(8,), ()], [(8,), ()], [(4,), ()]]
    assert all(g[1] is other for g in groups)
    (back,) = h.recover([[g[0] + g[1]] for g in groups])
    assert back.equal(x + 5)
    groups = h.transform([torch.arange(16.0), other])
    assert len(groups) == 2
    assert h.recover([[g[0]] for g in groups])[0].equal(torch.arange(16.0))


def test_lengths_go_to_gears_of_their_own():
    h = handling({**LENGTH, "value": 1})
    a, b, c = torch.zeros(2, 5), torch.zeros(2, 17), torch.zeros(3)
    ((x, y, z),) = h.transform([a, b, c])
    assert x.shape == (2, 16) and y.shape == (2, 32) and z is c
    assert x[:, 5:].eq(1).all() and x[:, :5].eq(0).all()
    # documented: the padding of SEQLEN stays in results
    assert h.recover([[x, y]])[0].shape == (2, 16)
    with pytest.raises(RuntimeError, match="greatest gear is 32"):
        h.transform([a, torch.zeros(2, 33), c])


def test_dimensions_per_index():
    h = handling({**LENGTH, "indices": [0, 2], "dimensions": [1, 0]})
    groups = h.transform([torch.ones(2, 3), torch.ones(2, 3), torch.ones(3)])
    assert shapes_of(groups) == [[(2, 16), (2, 3), (16,)]]


def test_both_types():
    h = handling(BATCH, LENGTH)
    groups = h.transform([torch.ones(9, 20, 3)])
    assert shapes_of(groups) == [[(8, 32, 3)], [(4, 32, 3)]]
    (back,) = h.recover(groups)
    assert back.shape == (9, 32, 3)


def test_batches_that_differ():
    with pytest.raises(RuntimeError, match="differ"):
        handling(BATCH).transform([torch.ones(3), torch.ones(4)])


def test_indices_are_decided_once_and_stay_ours():
    config = dict(BATCH)
    h = NPUShapeHandling([config])
    h.transform([torch.ones(3), torch.tensor(1.0)])
    assert config == BATCH  # the original writes them into it
    other = NPUShapeHandling([config])
    groups = other.transform([torch.ones(3, 2), torch.ones(3)])
    assert shapes_of(groups) == [[(4, 2), (4,)]]
    groups = h.transform([torch.ones(3), torch.ones(5)])
    assert shapes_of(groups) == [[(4,), (5,)]]


def test_tensors_after_the_last_index():
    """The original reads past the end of its list there."""
    h = handling({**BATCH, "indices": [0]})
    groups = h.transform([torch.ones(5), torch.ones(3), torch.ones(2, 2)])
    assert shapes_of(groups) == [[(8,), (3,), (2, 2)]]
    with pytest.raises(ValueError, match="index 2, but the call has 1"):
        handling({**BATCH, "indices": [2]}).transform([torch.ones(5)])
    with pytest.raises(ValueError, match="dimension 1 is asked for"):
        handling({**LENGTH, "indices": [0]}).transform([torch.ones(5)])


def test_results_without_the_batch():
    """The original cuts them wrongly, or fails somewhere inside."""
    h = handling(BATCH)
    h.transform([torch.ones(3)])
    with pytest.raises(RuntimeError, match="result 1 has shape"):
        h.recover([[torch.ones(4), torch.tensor(1.0)]])
    h.transform([torch.ones(3)])
    with pytest.raises(RuntimeError, match="re_pre_fn"):
        h.recover([[torch.ones(7)]])


def test_an_exception_leaves_nothing_behind():
    """In the original the next call is cut by what this one had to undo."""
    h = handling(BATCH)

    def fail(x):
        raise KeyError("model")

    with pytest.raises(KeyError):
        h.run(fail, (torch.ones(3),), {})
    assert h.run(lambda x: x + 1, (torch.ones(4),), {}).shape == (4,)
    h.transform([torch.ones(3)])
    h.transform([torch.ones(8)])
    assert h.recover([[torch.ones(8)]])[0].shape == (8,)
    assert h.recover([[torch.ones(8)]])[0].shape == (8,)


def test_a_transform_that_fails_forgets_the_one_before():
    h = handling(BATCH)
    good, bad = [torch.ones(3), torch.ones(3)], [torch.ones(3), torch.ones(4)]
    h.transform(good)
    with pytest.raises(RuntimeError, match="differ"):
        h.transform(bad)
    assert h.recover([[torch.ones(4)]])[0].shape == (4,)
    h.transform_hook(*good)
    with pytest.raises(RuntimeError, match="differ"):
        h.transform_hook(*bad)
    assert h.recover_hook([torch.ones(4)]).shape == (4,)


def test_threads_do_not_mix():
    h = handling(BATCH)
    sizes = (3, 4, 5, 8)
    all_have = threading.Barrier(len(sizes))

    def work(size):
        for _ in range(5):
            x = torch.rand(size)
            assert h.run(lambda a: a * 2, (x,), {}).equal(x * 2)
            (g,) = h.transform([x])
            all_have.wait(20)
            assert h.recover([g])[0].equal(x)
            all_have.wait(20)

    in_threads(sizes, work)


# ---- hooks ----


def test_hooks_of_calls():
    h = handling(BATCH)
    calls = h.transform_hook(torch.ones(9), 3, scale={"s": torch.ones(9)})
    assert len(calls) == 2 and calls[1][0][1] == 3
    assert calls[1][1]["scale"]["s"].shape == (4,)
    got = h.recover_hook([{"y": a[0] * a[1], "n": 5} for a, _ in calls])
    assert got["n"] == 5 and got["y"].tolist() == [3.0] * 9


def test_own_hooks():
    seen = {}

    def take(x, extra):
        seen["extra"] = extra
        return [x]

    def give(groups):
        return [((g[0], seen["extra"]), {}) for g in groups]

    def open_results(results):
        return [[r["y"]] for r in results]

    def close(tensors):
        return {"y": tensors[0], "closed": True}

    h = NPUShapeHandling([BATCH], take, give, open_results, close)
    got = h.run(lambda x, e: {"y": x + e}, (torch.ones(3), 2), {})
    assert got["closed"] and got["y"].tolist() == [3, 3, 3]


# ---- with torch.compile ----


@pytest.mark.parametrize("how", ("inductor", "npugraphs"))
@pytest.mark.parametrize("device", ("npu", "cpu"))
def test_compiled_function(how, device):
    if (how, device) == ("inductor", "cpu"):
        pytest.skip("Inductor needs a C++ compiler")
    fn = torch.compile(
        lambda x, y: {"sum": x + y, "name": "n"},
        backend=how,
        options={
            "enable_shape_handling": True,
            "shape_handling_configs": [BATCH],
        },
    )
    count = len(air.records)
    with torch.no_grad():
        for n in (3, 4, 5, 6, 8, 17):
            x = torch.randn(n, 2, device=device)
            y = torch.randn(n, 2, device=device)
            got = fn(x, y)
            assert got["name"] == "n" and got["sum"].device == x.device
            assert got["sum"].equal(x + y)
    assert len(air.records) - count == 2  # one a gear


def test_compilations_of_sizes_3_to_6():
    def compiles(**options):
        torch._dynamo.reset()
        fn = torch.compile(lambda x: x * 2, backend="inductor", **options)
        count = len(air.records)
        with torch.no_grad():
            for n in (3, 4, 5, 6):
                assert fn(torch.ones(n, 2).npu()).shape == (n, 2)
        return len(air.records) - count

    assert compiles(options={"enable_shape_handling": True}) == 2
    assert compiles(dynamic=False) == 4
    assert compiles(dynamic=True) == 1


def test_compiled_module():
    net = torch.nn.Linear(3, 2).npu()
    options = {"enable_shape_handling": True, "shape_handling_configs": [BATCH]}
    run = torch.compile(net, backend="inductor", options=options)
    for n in (1, 5, 11):
        x = torch.randn(n, 3).npu()
        torch.testing.assert_close(run(x), net(x))


def test_gradients_go_through_a_split():
    """The original copies and detaches every part."""
    options = {"enable_shape_handling": True, "shape_handling_configs": [BATCH]}
    fn = torch.compile(
        lambda x: torch.tanh(x), backend="inductor", options=options
    )
    x = torch.randn(19).npu().requires_grad_()
    y = x.detach().clone().requires_grad_()
    fn(x).sum().backward()
    torch.tanh(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_exception_of_a_compiled_function():
    options = {"enable_shape_handling": True, "shape_handling_configs": [BATCH]}

    def model(x, fail):
        if fail:
            raise ValueError("told to")
        return x + 1

    fn = torch.compile(model, backend="inductor", options=options)
    with pytest.raises(ValueError, match="told to"):
        fn(torch.ones(3).npu(), True)
    assert fn(torch.ones(8).npu(), False).shape == (8,)
    assert fn(torch.ones(5).npu(), False).shape == (5,)


def test_wrong_options():
    def compile_with(**options):
        torch.compile(lambda x: x, backend="inductor", options=options)

    with pytest.raises(TypeError, match="True or False"):
        compile_with(enable_shape_handling=1)
    with pytest.raises(TypeError, match="list of dicts"):
        compile_with(enable_shape_handling=True, shape_handling_configs=BATCH)
    with pytest.raises(ValueError, match="unknown key"):
        compile_with(enable_shape_handling=True, shape_handling_dict={"a": 1})
    with pytest.raises(TypeError, match="callable"):
        compile_with(
            enable_shape_handling=True, shape_handling_dict={"re_pre_fn": 1}
        )
    with pytest.raises(ValueError, match="enable_shape_handling=True"):
        compile_with(shape_handling_configs=[BATCH])
    with pytest.raises(ValueError, match="type"):
        compile_with(enable_shape_handling=True, shape_handling_configs=[{}])
    assert shapes.take_options({}) is None


# ---- the names of torch_npu._C ----


def test_base_class():
    from torch_npu._C import ShapePolicy, ShapeType, _NPUShapeHandling

    h = _NPUShapeHandling()
    h.initialize(ShapeType.BATCHSIZE, 1, 8, ShapePolicy.TIMES, [0], [0])
    groups = h.transform([torch.ones(3, 2)])
    assert shapes_of(groups) == [[(4, 2)]]
    assert h.recover(groups)[0].shape == (3, 2)
    h.initialize(ShapeType.SEQLEN, [16], [1], [], 2.0)
    assert shapes_of(h.transform([torch.ones(3, 2)])) == [[(4, 16)]]
    with pytest.raises(TypeError, match="ShapeType"):
        h.initialize("BATCHSIZE", [4], [0], [])


def test_own_strategy():
    from torch_npu._C import ShapeType, _NPUShapeHandling
    from torch_npu._inductor.shapes import BatchStrategy

    class Twice(BatchStrategy):
        def transform(self, tensors):
            groups, undo = super().transform(tensors)
            return [[t * 2 for t in g] for g in groups], undo

    h = _NPUShapeHandling()
    h.initialize(ShapeType.BATCHSIZE, [4], [0], [])
    h.register_batch_size_strategy(Twice)
    ((got,),) = h.transform([torch.ones(3)])
    assert got.tolist() == [2, 2, 2, 0]
    with pytest.raises(TypeError, match="Strategy"):
        h.register_sequence_strategy(int)
