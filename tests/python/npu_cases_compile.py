"""torch.compile for tensors of device npu: every backend, the same memory."""

import copy
import glob
import os
import warnings

import pytest
import torch
from helpers import BEFORE_213
from torch import nn
from torch.testing import assert_close

import torch_npu  # noqa: F401
import torchair
from torchair import backend as air

F = nn.functional
BACKENDS = (
    {"backend": air.torchair},
    {"backend": air.torchair, "mode": "reduce-overhead"},
    {"backend": "inductor"},
    {"backend": "inductor", "mode": "reduce-overhead"},
    {"backend": "npugraphs"},
)
every_backend = pytest.mark.parametrize("how", BACKENDS)


def moved(x):
    return x.npu() if isinstance(x, torch.Tensor) else x


def last():
    return air.records[-1]


def check(fn, *args, how, hosts=0, **options):
    """Compiled on the device against eager on the CPU."""
    on_npu = copy.deepcopy(fn).npu() if isinstance(fn, nn.Module) else fn
    want = fn(*args)
    got = torch.compile(on_npu, **how, **options)(*map(moved, args))
    assert got.is_npu and got.stride() == want.stride()
    assert_close(got.cpu(), want, rtol=2e-5, atol=2e-5)
    assert not last().fallback and len(last().hosts) == hosts
    return got


@every_backend
def test_functions(how):
    x = torch.randn(4, 8)
    q = torch.randn(1, 2, 8, 16)
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    with torch.no_grad():
        check(lambda a, b: torch.relu(a + b) * 2, x, x, how=how)
        check(nn.LayerNorm(8), x, how=how)
        check(nn.Embedding(9, 4), torch.tensor([1, 2]), how=how)
        check(lambda a: a.view(2, 16), x, how=how)
        check(lambda a: a.t() @ a, x, how=how)
        check(lambda a: a + torch.arange(8, device=a.device), x, how=how)
        check(lambda a: a + torch.ones(8).to(a.device), x, how=how)
        check(
            lambda a: F.scaled_dot_product_attention(a, a, a, mask.to(a)),
            q,
            how=how,
        )


@every_backend
def test_moves_inside(how):
    fn = torch.compile(lambda a: (a.to("npu") + 1).cpu() * 2, **how)
    with torch.no_grad():
        got = fn(torch.ones(3))
    assert got.is_cpu and got.tolist() == [4] * 3


@every_backend
def test_convolution_net(how):
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
    ).eval()
    with torch.no_grad():
        check(net, torch.randn(1, 3, 8, 8), how=how)


@every_backend
def test_operator_without_a_row(how):
    with torch.no_grad():
        check(
            lambda a: torch.linalg.svdvals(a) * 2,
            torch.randn(6, 6),
            how=how,
            hosts=1,
        )


@torch.library.custom_op("npu_cases::where_am_i", mutates_args=())
def where_am_i(x: torch.Tensor) -> torch.Tensor:
    return x + (1 if x.device.type == "npu" else 0)


@where_am_i.register_fake
def _(x):
    return torch.empty_like(x)


def test_custom_operator_sees_the_device():
    fn = torch.compile(lambda x: where_am_i(x * 1), backend="npugraphs")
    assert fn(torch.zeros(2).npu()).tolist() == [1, 1]
    assert last().hosts and not last().fallback
    assert fn(torch.zeros(2)).tolist() == [0, 0]


@every_backend
def test_dynamic_sizes(how):
    fn = torch.compile(lambda a: (a * a.shape[0]).sum(0), dynamic=True, **how)
    count = len(air.records)
    for n in (3, 5, 9):
        x = torch.randn(n, 4)
        assert_close(fn(x.npu()).cpu(), (x * n).sum(0))
    assert len(air.records) == count + 1


@every_backend
def test_results_share_no_memory(how):
    """A result that is kept is never overwritten by a later call."""
    fn = torch.compile(lambda a: a * 2, **how)
    with torch.no_grad():
        kept = [fn(torch.full((16,), float(i)).npu()) for i in range(6)]
    for i, x in enumerate(kept):
        assert x.is_npu and x.tolist() == [2.0 * i] * 16


@every_backend
def test_no_copy_of_inputs_and_caches(how):
    """A cache is written where it lies; an identity is the input itself."""

    def step(cache, at, value):
        cache.index_copy_(0, at, value)
        return cache.sum()

    cache = torch.zeros(4, 4).npu()
    view = cache[1]
    place = cache.data_ptr()
    fn = torch.compile(step, **how)
    with torch.no_grad():
        for i in range(4):
            at = torch.tensor([i]).npu()
            got = fn(cache, at, torch.ones(1, 4).npu())
            assert got.item() == 4 * (i + 1)
    assert cache.data_ptr() == place and view.sum().item() == 4
    memory = torch.npu.memory_allocated()
    with torch.no_grad():
        same = torch.compile(lambda a: a.view(16), **how)(cache)
    assert same.data_ptr() == place
    assert torch.npu.memory_allocated() == memory


@every_backend
def test_memory_of_results_is_counted(how):
    fn = torch.compile(lambda a: a + 1, **how)
    x = torch.ones(1000).npu()
    with torch.no_grad():
        fn(x)
        start = torch.npu.memory_allocated()
        y = fn(x)
        assert torch.npu.memory_allocated() == start + 4000
        del y
    assert torch.npu.memory_allocated() == start


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(128, 256), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def train(device, steps, wrap, optimizer=torch.optim.Adam):
    torch.manual_seed(0)
    net = wrap(MLP().to(device))
    opt = optimizer(net.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    x = torch.randn(32, 128).to(device)
    y = torch.randint(0, 10, (32,)).to(device)
    losses = []
    for _ in range(steps):
        loss = loss_fn(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "optimizer",
    (
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        lambda p, lr: torch.optim.AdamW(p, lr, fused=False, foreach=True),
        torch.optim.RMSprop,
        torch.optim.Adagrad,
    ),
)
def test_eager_training_is_the_cpus(optimizer):
    want = train("cpu", 10, lambda net: net, optimizer)
    assert train("npu", 10, lambda net: net, optimizer) == want


SAMPLES = (
    ({"backend": "inductor", "mode": "reduce-overhead"}, 100),
    ({"backend": "npugraphs"}, 1000),
    ({"backend": "inductor"}, 100),
)


@pytest.mark.parametrize(("how", "steps"), SAMPLES)
def test_training_samples(how, steps):
    """The guide's programs; losses are those of eager on the CPU."""
    want = train("cpu", steps, lambda net: net)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        got = train("npu", steps, lambda net: torch.compile(net, **how))
    assert not last().fallback and not last().hosts
    assert last().kind == "backward"
    head = steps // 10
    assert_close(got[:head], want[:head], rtol=2e-6, atol=1e-8)
    assert_close(got, want, rtol=1e-3, atol=1e-6)
    assert got[-1] < 0.02 < got[0]


@every_backend
def test_training_of_layers(how):
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    )
    x = torch.randn(3, 2, 8, 8)
    other = copy.deepcopy(net).npu()
    F.mse_loss(net(x), torch.zeros(3, 5)).backward()
    compiled = torch.compile(other, **how)
    loss = F.mse_loss(compiled(x.npu()), torch.zeros(3, 5).npu())
    loss.backward()
    for p, q in zip(other.parameters(), net.parameters(), strict=True):
        assert p.grad.is_npu
        assert_close(p.grad.cpu(), q.grad, rtol=2e-5, atol=2e-6)


@every_backend
def test_autocast_inside(how):
    net = nn.Linear(8, 8)
    x = torch.randn(4, 8)

    def fn(a):
        with torch.autocast("npu", dtype=torch.bfloat16):
            return net(a).float()

    net.npu()
    want = fn(x.npu())
    got = torch.compile(fn, **how)(x.npu())
    assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_reduce_overhead_is_dispatched():
    """Guards are asked from C, whatever the name of the backend."""
    x = torch.ones(8).npu()
    for how in BACKENDS[1], BACKENDS[3], BACKENDS[4]:
        torch._dynamo.reset()
        fn = torch.compile(lambda a: a * 2 + 1, **how)
        with torch.no_grad():
            for _ in range(10):
                assert fn(x).tolist() == [3] * 8
        counts = fn._torchair_dispatcher.stats()
        assert counts["dispatched"] == 9, counts


def test_inductor_keeps_cpu_tensors():
    fn = torch.compile(lambda a: torch.relu(a) + 1, backend="inductor")
    count = len(air.records)
    with torch.no_grad():
        assert fn(torch.ones(4)).tolist() == [2] * 4
        assert len(air.records) == count
        assert fn(torch.ones(4).npu()).tolist() == [2] * 4
    assert len(air.records) == count + 1


# ---- options: honoured or refused, never dropped ----


def compile_error(options, how="inductor", x=None):
    torch._dynamo.reset()
    x = torch.ones(3).npu() if x is None else x
    with pytest.raises(Exception) as found, torch.no_grad():
        torch.compile(lambda a: a + 1, backend=how, options=options)(x)
    return str(found.value)


def test_cudagraphs_option_is_reduce_overhead(monkeypatch):
    seen = []
    from torch_npu import _compile

    plain = _compile.npugraphs.compile_frame

    def spy(gm, inputs, config):
        seen.append(config.mode.raw)
        return plain(gm, inputs, config)

    monkeypatch.setattr(_compile.npugraphs, "compile_frame", spy)
    x = torch.ones(3).npu()
    for how in (
        {"options": {"triton.cudagraphs": True}},
        {"options": {"triton.cudagraphs": False}},
        {"mode": "reduce-overhead"},
        {"mode": "max-autotune-no-cudagraphs"},
        {},
    ):
        torch._dynamo.reset()
        torch.compile(lambda a: a + 1, backend="inductor", **how)(x)
    assert seen == [
        "reduce-overhead",
        "max-autotune",
        "reduce-overhead",
        "max-autotune",
        "max-autotune",
    ]


@pytest.mark.parametrize("how", ("inductor", "npugraphs"))
def test_trace_writes_graphs(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"trace.enabled": True}
    fn = torch.compile(lambda a: a + 1, backend=how, options=options)
    fn(torch.ones(3).npu())
    assert glob.glob("torch_compile_debug/**/*.py", recursive=True)


def test_trace_is_off_by_default(tmp_path, monkeypatch):
    """The original switches it on for the whole process."""
    monkeypatch.chdir(tmp_path)
    torch.compile(lambda a: a + 1, backend="inductor")(torch.ones(3).npu())
    assert os.listdir() == []
    assert not torch._inductor.config.trace.enabled


def test_wrong_options_of_inductor():
    assert "no effect on npu tensors" in compile_error({"max_autotune": True})
    assert "epilogue_fusion" in compile_error({"epilogue_fusion": False})
    with pytest.raises(RuntimeError, match="Unexpected optimization option"):
        torch.compile(lambda a: a, options={"no_such_option": 1})
    with pytest.raises(ValueError, match="npu_backend"):
        torch.compile(lambda a: a, options={"npu_backend": "mlir"})
    ok = {"npu_backend": "default", "epilogue_fusion": True}
    fn = torch.compile(lambda a: a + 1, options=ok)
    assert fn(torch.ones(2).npu()).tolist() == [2, 2]


def test_wrong_options_of_npugraphs():
    """The original drops every option of this backend."""
    assert "Invalid option 'no'" in compile_error({"no": 1}, "npugraphs")
    text = compile_error({"triton.cudagraphs": False}, "npugraphs")
    assert "leave it out" in text
    text = compile_error({"triton.cudagraphs": 1}, "npugraphs")
    assert "must be True or False" in text
    assert "npu_backend" in compile_error({"npu_backend": "dvm"}, "npugraphs")
    for options in (
        {"triton.cudagraphs": True},
        {"npu_backend": "default"},
        {"trace.enabled": False},
    ):
        torch._dynamo.reset()
        fn = torch.compile(
            lambda a: a + 1, backend="npugraphs", options=options
        )
        assert fn(torch.ones(2).npu()).tolist() == [2, 2]
    torch._dynamo.reset()
    with pytest.raises(Exception, match="max-autotune"):
        torch.compile(
            lambda a: a + 1, backend="npugraphs", mode="max-autotune"
        )(torch.ones(2).npu())


# ---- npugraphs: semantics of trees without their traps ----


def test_forwards_without_backwards():
    """The published program's loop; the original never gets fast there and
    warns."""
    net = torch.compile(MLP().npu(), backend="npugraphs")
    x = torch.randn(32, 128).npu()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        outs = [net(x) for _ in range(20)]
    outs[3].sum().backward()
    assert net.fc1.weight.grad.is_npu
    assert all(torch.equal(o, outs[0]) for o in outs)


def test_old_outputs_can_be_read():
    """The original raises: overwritten by a subsequent run."""
    fn = torch.compile(lambda a: a * 3, backend="npugraphs")
    with torch.no_grad():
        first = fn(torch.ones(4).npu())
        for _ in range(5):
            torch.compiler.npugraph_mark_step_begin()
            fn(torch.zeros(4).npu())
    assert first.tolist() == [3] * 4


def test_steps_and_the_common_pool():
    """Graphs share memory; what is held of an earlier step is counted."""
    from torchair import npugraphs

    def held(fn, x):
        with torch.no_grad():
            return [fn(x) for _ in range(3)]

    x = torch.ones(64).npu()
    kept = held(torch.compile(lambda a: a * 3, backend="npugraphs"), x)
    kept += held(
        torch.compile(
            lambda a: a * 5, backend="inductor", mode="reduce-overhead"
        ),
        x,
    )
    before = npugraphs.pool().stats()
    assert before["captures"] >= 2 and before["live_blocks"] >= 6
    torch.compiler.npugraph_mark_step_begin()
    after = npugraphs.pool().stats()
    assert after["generation"] == before["generation"] + 1
    assert after["stale_blocks"] >= 6
    assert [k[0].item() for k in kept] == [3] * 3 + [5] * 3
    kept.clear()
    assert npugraphs.pool().stats()["stale_blocks"] == 0


def test_sizes_may_change():
    fn = torch.compile(lambda a: a.sum(0), backend="npugraphs")
    with torch.no_grad():
        for n in (3, 5, 3, 7):
            assert fn(torch.ones(n, 2).npu()).tolist() == [n, n]


def test_what_the_original_skips_is_compiled():
    """CPU tensors among the inputs, mutated inputs."""

    def fn(a, b):
        a.add_(b)
        return a * 2

    run = torch.compile(fn, backend="npugraphs")
    with torch.no_grad():
        a = torch.ones(3).npu()
        assert run(a, torch.tensor(2.0)).tolist() == [6] * 3
        assert a.tolist() == [3] * 3
        c = torch.ones(3)
        assert run(c, torch.ones(3)).tolist() == [4] * 3
    assert not last().fallback


def test_int_inputs_and_parameters_that_move():
    net = nn.Linear(4, 4).npu()
    fn = torch.compile(lambda a, k: net(a) * k, backend="npugraphs")
    x = torch.randn(2, 4).npu()
    with torch.no_grad():
        for k in (1, 2, 3):
            assert_close(fn(x, k), net(x) * k)
        net.weight = nn.Parameter(torch.zeros(4, 4).npu())
        assert_close(fn(x, 3), net(x) * 3)


def test_cpu_input_check():
    """The original's setter changes Inductor's assertions as well."""
    from torch._inductor import config

    from torch_npu import _inductor

    before = config.triton.slow_path_cudagraph_asserts
    trees = _inductor.config.npugraph_trees
    assert not trees.disable_cpu_input_check
    trees.disable_cpu_input_check = True
    assert config.triton.slow_path_cudagraph_asserts == before
    fn = torch.compile(lambda a, b: a * b, backend="npugraphs")
    assert fn(torch.ones(2).npu(), torch.tensor(3.0)).tolist() == [3, 3]
    trees.disable_cpu_input_check = False
    with pytest.raises(TypeError, match="True or False"):
        trees.disable_cpu_input_check = 1


def test_npugraph_ex_trains():
    """Its documentation says it cannot; its code compiles backward graphs."""
    want = train("cpu", 5, lambda net: net)
    got = train(
        "npu", 5, lambda net: torch.compile(net, backend=air.npugraph_ex)
    )
    assert last().kind == "backward" and not last().fallback
    assert_close(got, want, rtol=2e-6, atol=1e-8)


def test_reset():
    fn = torch.compile(lambda a: a + 1, backend="npugraphs")
    fn(torch.ones(2).npu())
    torch.compiler.reset()
    assert fn(torch.ones(2).npu()).tolist() == [2, 2]


def test_explain_shows_the_graph():
    found = torchair.explain(lambda a: a + 1, torch.ones(2).npu())
    assert "fallback" not in str(found).lower() or not last().fallback


def bare(fn):
    return fn._torchair_dispatcher.stats()[
        "of these, without the function that Dynamo generated"
    ]


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_calls_run_no_python(device):
    """Dynamo's code begins by noting the current stream, which nobody asks."""
    fn = torch.compile(lambda a: a * 2 + 1, backend=air.torchair)
    for _ in range(4):
        assert fn(torch.ones(2, device=device)).tolist() == [3, 3]
    assert bare(fn) == 3


def test_the_stream_is_noted_for_a_graph_that_asks():
    fn = torch.compile(
        lambda a: (a * 2, torch.accelerator.current_stream()),
        backend=air.torchair,
    )
    inputs = torch._dynamo.graph_bytecode_inputs
    for _ in range(3):
        inputs.index_to_external_object_weakref.clear()
        y, found = fn(torch.ones(2))
        assert found == torch.accelerator.current_stream()
        assert len(inputs.index_to_external_object_weakref) == 1
        assert y.tolist() == [2, 2]
    assert bare(fn) == 0


def synchronizes(x, side):
    y = x * 2
    torch.accelerator.current_stream().synchronize()
    return y + 1


def waits_for_a_stream(x, side):
    y = x * 2
    torch.accelerator.current_stream().wait_stream(side)
    z = y + x
    side.wait_stream(torch.accelerator.current_stream())
    return z - y + y + 1 - x


def waits_for_an_event(x, side):
    y = x * 2
    event = torch.accelerator.current_stream().record_event()
    event.wait()
    return y + 1


@pytest.mark.parametrize(
    ("fn", "grad"),
    [
        (synchronizes, False),
        (synchronizes, True),
        (waits_for_a_stream, False),  # torch cannot cut this one in two
        (waits_for_an_event, False),
        (waits_for_an_event, True),
    ],
)
def test_waiting_for_streams(fn, grad):
    """AOTAutograd wraps it together with the values it is about."""
    if fn is waits_for_an_event and BEFORE_213:
        pytest.skip("Dynamo of this torch loses the event")
    compiled = torch.compile(fn, backend=air.torchair)
    side = torch.Stream(device="npu")
    for _ in range(3):
        x = torch.ones(3, requires_grad=grad)
        y = compiled(x, side)
        assert y.tolist() == [3, 3, 3]
        if grad:
            y.sum().backward()
            assert x.grad.tolist() == [2, 2, 2]
    assert not last().fallback


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_explain_a_function_of_inductor(mode):
    """Its own mode; without captures it is known by its calls."""
    fn = torch.compile(lambda x: x.sin() * 2, backend="inductor", mode=mode)
    x = torch.ones(3).npu()
    fn(x)
    got = torchair.explain(fn, x)
    assert not got.error
    (graph,) = got.graphs
    assert graph.mode == (mode or "max-autotune")
    assert graph.stats["runs"] == 2
