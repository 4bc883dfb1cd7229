"""HOST nodes inside CUDA graphs: which may be (anywhere), and on a GPU that
they are, that results are right when memory moves, and what stays outside."""

import gc
import operator

import pytest
import torch
from helpers import compiled as compile_with
from helpers import recorded as collected

from torchair import recorded

GPU = torch.cuda.is_available()
gpu = pytest.mark.skipif(not GPU, reason="needs a GPU that torch sees")
modes = pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
aten = torch.ops.aten


# ---- which ----


class OnGpu(torch.Tensor):
    device = property(lambda self: torch.device("cuda:0"))


def on_gpu(dtype=torch.float32):
    return torch.empty(2, dtype=dtype).as_subclass(OnGpu)


def reason(target, *args, operands=1, dtypes=None, results=()):
    node = torch.fx.Graph().call_function(target, args)
    values = [on_gpu(d) for d in dtypes or [torch.float32] * operands]
    return recorded.unrecorded(node, values, results or [on_gpu()])


ATTENTION = aten._scaled_dot_product_flash_attention.default


@pytest.mark.parametrize(
    ("target", "args", "why"),
    [
        (aten.convolution.default, (), ""),
        (aten.copy_.default, (), "writes"),
        (aten.sort.default, (), ""),
        (operator.add, (), "no operator of torch"),
        (aten.nonzero.default, (), "depends on data"),
        (aten._local_scalar_dense.default, (), "depends on data"),
        (aten.masked_select.default, (), "depends on data"),
        (aten.bernoulli.default, (), "random"),
        (aten.multinomial.default, (), "waits for the GPU"),
        (aten._linalg_svd.default, (), "waits for the GPU"),
        (ATTENTION, (1, 2, 3, 0.1), "random"),
        (ATTENTION, (1, 2, 3, 0.0), ""),
        (ATTENTION, (1, 2, 3), ""),
    ],
)
def test_which_operators_are_tried(target, args, why):
    found = reason(target, *args)
    assert why in found if why else found == ""


def test_a_mask_as_index_is_not():
    dtypes = [torch.float32, torch.bool]
    assert "data" in reason(aten.index.Tensor, dtypes=dtypes)
    dtypes = [torch.float32, torch.int64]
    assert reason(aten.index.Tensor, dtypes=dtypes) == ""


def test_what_is_on_the_cpu_is_not():
    assert "CPU" in reason(
        aten.convolution.default, results=[torch.empty(2, device="cpu")]
    )


def test_custom_operators_are_not():
    with torch.library._scoped_library("recorded_case", "DEF") as lib:
        lib.define("f(Tensor x) -> Tensor")
        target = torch.ops.recorded_case.f.default
        assert "custom operator" in reason(target)


def test_every_named_operator_is_there():
    for name in recorded.WAITING:
        assert hasattr(aten, name.removeprefix("aten.")), name


def test_captures_of_max_autotune_run_on_beyond_their_limit():
    names = (None, "op", (), (), 2)
    assert recorded.captures([]) is None
    assert recorded.captures([(None, "op", (), ())]) is None
    assert recorded.captures([(*names, "draws")]) is None
    found = recorded.captures([(*names, "draws"), (*names, "")])
    assert not found.warns


# ---- on a GPU ----


def lines(records):
    """What became of HOST nodes, of the last graph."""
    return records[-1].program().stats()["capture"]["hosts"]


def convolutions():
    torch.manual_seed(0)
    return (
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1, bias=False),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 8, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(8, 5),
        )
        .cuda()
        .eval()
    )


@gpu
@modes
def test_convolutions_are_in_the_graph(mode):
    model = convolutions()
    torch._dynamo.reset()
    with collected() as records, torch.no_grad():
        fast = compile_with(model, mode)
        held = []
        for i in range(7):
            x = torch.randn(2, 3, 16, 16, device="cuda") + i
            held.append((fast(x), model(x)))
        found = lines(records)
    assert records[-1].fallback == ""
    assert [line for line in found if "convolution" in line]
    assert all(line.endswith(": in the graph") for line in found)
    for ours, eager in held:
        torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)


@gpu
@modes
def test_results_stay_where_the_graph_leaves_them(mode):
    """Until one is held; what is held keeps its numbers."""

    def fn(x):
        places = torch.sort(x * 2, dim=-1)
        return *places, torch.special.bessel_j0(places[0])

    torch._dynamo.reset()
    with torch.no_grad():
        fast, seen, held = compile_with(fn, mode), [], []
        for i in range(12):
            x = torch.randn(64, 1000, device="cuda") * (i + 1)
            ours, eager = fast(x), fn(x)
            seen.append(ours[1].data_ptr())
            torch.testing.assert_close(ours, eager)
            if i > 6:
                held.append((ours[1], eager[1]))
            del ours
    assert len(set(seen[3:7])) == 1
    for ours, eager in held:
        assert torch.equal(ours, eager)
    assert len({ours.data_ptr() for ours, _ in held}) == len(held)


@gpu
@modes
def test_a_graph_of_several_host_nodes_reuses_their_memory(mode):
    def chain(x):
        for _ in range(12):
            x = torch.special.bessel_j0(torch.sort(x * 2 - 1, dim=-1)[0])
        return x + 1

    torch._dynamo.reset()
    with collected() as records, torch.no_grad():
        fast = compile_with(chain, mode)
        for i in range(6):
            x = torch.randn(64, 1000, device="cuda") * (i + 1)
            torch.testing.assert_close(fast(x), chain(x), rtol=1e-3, atol=1e-3)
    found = lines(records)
    assert sum("sort" in line for line in found) == 12
    assert all(line.endswith(": in the graph") for line in found)


@gpu
@modes
def test_what_stays_outside_says_why(mode):
    def mixed(x):
        y = torch.nn.functional.dropout(x, 0.5)
        a = torch.sort(y * 2, dim=-1)[0] * 3
        b = torch.linalg.inv(a @ a.mT + 100 * torch.eye(8, device="cuda")) + 1
        return torch.sort(b, dim=0)[0]

    torch._dynamo.reset()
    with collected() as records, torch.no_grad():
        fast = compile_with(mixed, mode)
        for i in range(5):
            x = torch.randn(8, 8, device="cuda")
            torch.manual_seed(i)
            found = fast(x)
            torch.manual_seed(i)
            torch.testing.assert_close(found, mixed(x), rtol=1e-3, atol=1e-3)
    text = "\n".join(lines(records))
    assert "random" in text
    assert "waits for the GPU" in text
    assert text.count("sort: in the graph") == 2


@gpu
@modes
def test_an_operand_that_moves_leaves_its_node_outside(mode):
    big = (17 << 20) + 3  # too large to be copied: 68 MB

    def search(x, y):
        return torch.sort(x)[0][:100] + y

    torch._dynamo.reset()
    with collected() as records, torch.no_grad():
        fast = compile_with(search, mode)
        kept = []
        for i in range(7):
            kept.append(torch.randn(big, device="cuda"))
            y = torch.full((100,), float(i), device="cuda")
            assert torch.equal(fast(kept[-1], y), search(kept[-1], y))
    assert "elsewhere" in "\n".join(lines(records))


@gpu
@modes
def test_streams_take_turns(mode):
    model = convolutions()
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch._dynamo.reset()
    with torch.no_grad():
        fast = compile_with(model, mode)
        pairs = []
        for i in range(8):
            x = torch.randn(2, 3, 16, 16, device="cuda")
            torch.cuda.synchronize()
            with torch.cuda.stream(streams[i % 2]):
                pairs.append((fast(x), x))
        torch.cuda.synchronize()
        for found, x in pairs:
            torch.testing.assert_close(found, model(x), rtol=1e-3, atol=1e-4)


@gpu
@modes
def test_memory_goes_back(mode):
    model = convolutions()
    x = torch.randn(2, 3, 16, 16, device="cuda")
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            fast = compile_with(model, mode)
            for _ in range(4):
                fast(x)
            del fast
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (1 << 20)


@gpu
@modes
def test_an_input_that_torch_writes_is_written(mode):
    """Of complex numbers, whose logarithm is torch's."""
    run = compile_with(lambda x: x.log_(), mode)
    for _ in range(4):
        mine = torch.randn(3, 4, dtype=torch.complex64, device="cuda")
        want = mine.log()
        torch.testing.assert_close(run(mine), want)
        torch.testing.assert_close(mine, want)
