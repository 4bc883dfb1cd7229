"""torch.npu and torch_npu: the names, and what they honestly do here."""

import copy
import os
import subprocess
import sys
import warnings

import pytest
import torch
from helpers import BEFORE_213
from torch import nn
from torch.testing import assert_close

import torch_npu
import torchair
from torchair import backend as air


def test_devices():
    npu = torch.npu
    assert npu.is_available() and npu.is_initialized()
    assert npu.device_count() == 1 and npu.current_device() == 0
    for device in (0, "npu", "npu:0", torch.device("npu")):
        npu.set_device(device)
    for device in (1, "npu:1", "cpu", None):
        with pytest.raises(RuntimeError):
            npu.set_device(device)
    npu.init()
    npu.synchronize()
    npu.synchronize("npu:0")
    with npu.device(0), npu.utils.device("npu:0"), npu.device(-1):
        assert npu.current_device() == 0
    with npu.device_of(torch.ones(1)):
        pass
    with pytest.raises(RuntimeError, match="there is one"):
        npu.device(2)
    assert torch.get_device_module("npu") is npu


def test_properties():
    npu = torch.npu
    assert "host" in npu.get_device_name() and npu.get_device_name(0)
    found = npu.get_device_properties("npu:0")
    assert (found.major, found.minor) == (0, 0)  # torch asks for Triton
    assert found.name == npu.get_device_name()
    free, total = npu.mem_get_info()
    assert 0 < free <= total == found.total_memory
    assert found.cube_core_num > 0 < found.vector_core_num
    assert npu.is_bf16_supported() and npu.can_device_access_peer(0, 0)
    assert npu.get_device_capability() is None


def test_accelerator():
    a = torch.accelerator
    assert a.is_available() and a.device_count() == 1
    assert a.current_accelerator() == torch.device("npu")
    a.synchronize()
    a.set_device_index(0)
    with pytest.raises(RuntimeError, match="there is one"):
        a.set_device_index(3)
    x = torch.ones(100, device="npu")
    assert a.memory_allocated() == torch.npu.memory_allocated() >= 400
    assert a.max_memory_allocated() >= 400 and a.memory_reserved() >= 400
    a.empty_cache()
    if not BEFORE_213:  # which has none
        a.empty_host_cache()
    a.reset_peak_memory_stats()
    assert a.get_memory_info()[1] == torch.npu.mem_get_info()[1]
    assert a.memory_stats()["allocated_bytes.all.current"] >= 400
    assert x.sum().item() == 100


def test_memory_counters():
    npu = torch.npu
    npu.reset_peak_memory_stats()
    npu.reset_accumulated_memory_stats()
    start = npu.memory_allocated()
    x = torch.empty(1 << 16, dtype=torch.uint8, device="npu")
    blocks = npu.memory_stats()["allocation.all.current"]
    del x
    stats = npu.memory_stats()
    assert stats["allocation.all.current"] == blocks - 1
    assert stats["allocated_bytes.all.current"] == start
    assert stats["allocated_bytes.all.peak"] == start + (1 << 16)
    assert npu.max_memory_allocated() == start + (1 << 16)
    assert stats["allocated_bytes.all.freed"] >= 1 << 16
    assert npu.max_memory_reserved() >= npu.memory_reserved() >= start
    npu.reset_max_memory_allocated()
    assert npu.max_memory_allocated() == start
    (segment,) = npu.memory_snapshot()
    assert segment["segment_pool_id"] == (0, 0)
    assert segment["allocated_size"] == start
    assert "allocated_bytes.all.peak" in npu.memory_summary()
    npu.empty_cache()
    npu.host_empty_cache()
    with pytest.raises(NotImplementedError, match="ulimit"):
        npu.set_per_process_memory_fraction(0.5)


def test_random_state():
    npu = torch.npu
    npu.manual_seed(5)
    assert npu.initial_seed() == 5
    state = npu.get_rng_state()
    a = torch.randn(3, device="npu")
    npu.set_rng_state(state, "npu:0")
    assert torch.equal(a, torch.randn(3, device="npu"))
    npu.set_rng_state_all([state])
    assert torch.equal(a, torch.randn(3, device="npu"))
    assert torch.equal(npu.get_rng_state_all()[0], npu.get_rng_state())
    npu.manual_seed_all(5)
    assert torch.equal(npu.get_rng_state(), state)
    npu.seed()
    npu.seed_all()
    with pytest.raises(ValueError, match="2 states"):
        npu.set_rng_state_all([state, state])


def test_default_generators():
    (generator,) = torch.npu.default_generators
    generator.manual_seed(5)
    a = torch.randn(3, device="npu")
    assert torch.npu.initial_seed() == 5
    torch.npu.manual_seed(5)
    b = torch.randn(3, device="npu", generator=generator)
    assert torch.equal(a, b)


def test_capability():
    found = torch.accelerator.get_device_capability("npu:0")
    assert {torch.float32, torch.bfloat16} <= found["supported_dtypes"]
    with pytest.raises(RuntimeError, match="there is one, npu:0"):
        torch.accelerator.get_device_capability(1)


def test_settings_without_effect():
    torch.npu.set_compile_mode(jit_compile=False)
    with pytest.warns(UserWarning, match="changes nothing"):
        torch.npu.set_compile_mode(jit_compile=True)
    with pytest.raises(TypeError, match="bool"):
        torch.npu.set_compile_mode(jit_compile=1)
    torch.npu.config.allow_internal_format = False


def test_formats():
    x = torch.ones(16, 16).npu()
    assert torch_npu.get_npu_format(x) == 2
    assert torch_npu.npu_format_cast(x, 2) is x
    assert torch_npu.npu_format_cast(x, x) is x
    with pytest.warns(UserWarning, match="plain memory"):
        assert torch_npu.npu_format_cast(x, 29) is x
    assert torch_npu.get_npu_format(x) == 2


def test_amp():
    x = torch.randn(4, 4).npu()
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
    torch.manual_seed(0)
    net = nn.Linear(4, 1).npu()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.npu.amp.GradScaler(init_scale=8.0)
    before = net.weight.detach().clone()
    with torch.npu.amp.autocast():
        loss = net(x).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 8.0 and not torch.equal(before, net.weight)
    assert torch.npu.get_amp_supported_dtype()


# ---- operators of the vendor ----


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_rms_norm(dtype):
    x = torch.randn(3, 5, 8).to(dtype)
    gamma = torch.rand(8).to(dtype)
    wide = x.double()
    rstd = (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    want = (wide * rstd * gamma.double()).to(dtype)
    y, r = torch_npu.npu_rms_norm(x.npu(), gamma.npu())
    assert y.is_npu and r.shape == (3, 5, 1) and r.dtype is torch.float32
    assert_close(y.cpu(), want)
    y, r, s = torch_npu.npu_add_rms_norm(x.npu(), x.npu(), gamma.npu(), 1e-5)
    assert_close(s.cpu(), x + x)
    assert_close(y, torch_npu.npu_rms_norm(s, gamma.npu(), 1e-5)[0])
    with pytest.raises(RuntimeError, match="gamma must have"):
        torch_npu.npu_rms_norm(x.npu(), torch.ones(5).npu())


def test_rms_norm_gradients():
    def norm(x, gamma):
        return torch.ops.npu.npu_rms_norm(x, gamma)[0]

    def both(a, b, gamma):
        return torch.ops.npu.npu_add_rms_norm(a, b, gamma)[::2]

    a, b = torch.randn(2, 3, 4, dtype=torch.double).requires_grad_().unbind()
    gamma = torch.rand(4, dtype=torch.double).requires_grad_()
    args = [t.detach().npu().requires_grad_() for t in (a, b, gamma)]
    assert torch.autograd.gradcheck(norm, (args[0], args[2]))
    assert torch.autograd.gradcheck(both, tuple(args))


@pytest.mark.parametrize("mode", (None, "reduce-overhead"))
def test_rms_norm_compiled(mode):
    x, gamma = torch.randn(4, 8).npu(), torch.rand(8).npu()

    def fn(a, b):
        y, _, s = torch_npu.npu_add_rms_norm(a, b, gamma)
        return torch_npu.npu_rms_norm(y * 2, gamma, epsilon=1e-3)[0] + s

    run = torch.compile(fn, backend="inductor", mode=mode)
    with torch.no_grad():
        assert_close(run(x, x), fn(x, x))
    record = air.records[-1]
    assert not record.fallback and not record.hosts


def test_rms_norm_in_training():
    x, gamma = torch.randn(4, 8).npu(), torch.rand(8).npu()
    results = []
    for wrap in (lambda f: f, torch.compile):
        a, g = x.clone().requires_grad_(), gamma.clone().requires_grad_()
        wrap(lambda a, g: torch_npu.npu_rms_norm(a, g)[0].sin())(
            a, g
        ).sum().backward()
        results.append((a.grad, g.grad))
    assert_close(results[0], results[1])


def test_register_replacement():
    """The published example: add and norm become one operator."""
    torchair.register_replacement(
        lambda a, b, g: torch.ops.npu.npu_rms_norm(a + b, g)[0],
        lambda a, b, g: torch.ops.npu.npu_add_rms_norm(a, b, g)[0],
        [torch.randn(2, 8), torch.randn(2, 8), torch.randn(8)],
    )
    seen = []

    def look(gm, inputs, config):
        seen.append([str(n.target) for n in gm.graph.nodes])

    x, gamma = torch.randn(2, 8).npu(), torch.rand(8).npu()
    run = torch.compile(
        lambda a, b: torch_npu.npu_rms_norm(a + b, gamma)[0],
        backend=air.npugraph_ex,
        options={"post_grad_custom_post_pass": look},
    )
    with torch.no_grad():
        got = run(x, x)
    assert_close(got, torch_npu.npu_rms_norm(x + x, gamma)[0])
    assert "npu.npu_add_rms_norm.default" in seen[-1]


# ---- printing and saving in graphs, profiler, packages ----


def test_save_npugraph_tensor(tmp_path):
    path = str(tmp_path / "x.pt")
    x = torch.ones(3).npu()
    torch_npu.save_npugraph_tensor(x, save_path=path)
    (file,) = tmp_path.iterdir()
    assert_close(torch.load(file).cpu(), torch.ones(3))


def test_profiler(tmp_path):
    p = torch_npu.profiler
    with p.profile(
        activities=[p.ProfilerActivity.CPU, p.ProfilerActivity.NPU],
        schedule=p.schedule(wait=0, warmup=0, active=1, repeat=1),
        on_trace_ready=p.tensorboard_trace_handler(str(tmp_path)),
        record_shapes=True,
    ) as prof:
        x = torch.randn(8, 8).npu()
        (x @ x).sum().item()
        prof.step()
    assert list(tmp_path.glob("*.json*"))
    with pytest.raises(TypeError, match="ProfilerActivity"):
        p.profile(activities=["NPU"])
    with pytest.warns(UserWarning, match="no effect"):
        p.profile(
            experimental_config=p._ExperimentalConfig(
                profiler_level=p.ProfilerLevel.Level2
            )
        )


def test_packages_after_torch_npu():
    import npugraph_ex

    assert torch.npu.npugraph_ex is npugraph_ex or (
        torch.npu.npugraph_ex.compile_fx is npugraph_ex.compile_fx
    )
    assert torchair.get_npu_backend is air.get_npu_backend
    x = torch.ones(3).npu()
    for backend in (air.npugraph_ex, torchair.get_npu_backend()):
        torch._dynamo.reset()
        run = torch.compile(lambda a: a + 1, backend=backend, fullgraph=True)
        assert run(x).tolist() == [2] * 3 and run(x).is_npu
    with torch.npu.npugraph_ex.scope.limit_core_num(4, 8):
        assert torch.compile(lambda a: a + 1)(x).tolist() == [2] * 3


def test_mark_step_begin():
    torch.compiler.npugraph_mark_step_begin()


TRANSFER = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
from torch import nn
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
assert torch.cuda.get_device_capability() == (0, 0)  # as Triton asks
torch.cuda.set_device(0)
x = torch.ones(3).cuda()
assert x.is_npu and x.is_cuda and x.cuda() is x
for y in (
    torch.zeros(2, device="cuda"),
    torch.zeros(2, device="cuda:0"),
    torch.ones(2).to("cuda"),
    torch.ones(2).to(device=torch.device("cuda")),
    torch.ones(2).to(torch.device("cuda", 0)),
    x.new_zeros(2, device="cuda"),
    torch.tensor([1.0], device="cuda"),
    torch.randn(2, device="cuda", generator=torch.Generator("cuda")),
):
    assert y.is_npu, y
net = nn.Linear(3, 2).cuda()
assert net.weight.is_npu and nn.Linear(2, 2).to("cuda").weight.is_npu
assert nn.Linear(2, 2, device="cuda").weight.is_npu
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert net(x).dtype is torch.bfloat16
with torch.cuda.amp.autocast():
    assert net(x).dtype is torch.float16
scaler = torch.cuda.amp.GradScaler()
opt = torch.optim.Adam(net.parameters())
scaler.scale(net(x).sum()).backward()
scaler.step(opt)
scaler.update()
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    y = x + 1
torch.cuda.current_stream().wait_stream(s)
torch.cuda.synchronize()
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() > 0
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    z = x * 2
g.replay()
assert z.tolist() == [2] * 3
torch.save(x, "/dev/null")
run = torch.compile(lambda a: a.to("cuda") * torch.ones(3, device="cuda"))
assert run(x).tolist() == [1] * 3 and run(x).is_npu
assert torch.zeros(2).device.type == "cpu" and torch.ones(2).to("cpu").is_cpu
torch.set_default_device("cuda")
assert torch.ones(1).is_npu
print("done")
"""


def test_transfer_to_npu():
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRANSFER],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert found.stdout == "done\n", found.stderr


def test_unknown_names():
    for owner in (torch.npu, torch_npu):
        with pytest.raises(AttributeError, match="no_such_name"):
            owner.no_such_name  # noqa: B018


def test_every_listed_name_is_there():
    for name in torch.npu.__all__:
        assert getattr(torch.npu, name) is not None, name


def test_deepcopy_of_a_compiled_module():
    net = torch.compile(nn.Linear(3, 3).npu(), backend="npugraphs")
    other = copy.deepcopy(net)
    x = torch.randn(2, 3).npu()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert_close(other(x), net(x))


def test_internal_formats_change_no_number():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Linear(6, 5))
    x = torch.randn(2, 4, 8, 8)
    want = model(x)
    model.npu()
    state = {k: v.cpu() for k, v in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torchair.use_internal_format_weight(model) is None
    for name, value in model.state_dict().items():
        assert torch.equal(value.cpu(), state[name])
        assert torch_npu.get_npu_format(value) == 2
    assert_close(model(x.npu()).cpu(), want)
    with pytest.raises(RuntimeError, match=r"1\.weight is on the CPU"):
        torchair.use_internal_format_weight(model.cpu())


def test_created_tensors_are_of_the_device():
    block = torch.zeros(2, 3)
    (made,) = torchair.llm_datadist.create_npu_tensors(
        [2, 3], torch.float32, [block.data_ptr()]
    )
    assert made.device.type == "npu"
    made.add_(1)
    assert block.sum() == 6


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_scatter_update(device):
    data = torch.zeros(2, 6, 3, device=device)
    new = torch.arange(1.0, 13).view(2, 2, 3).to(device)
    where = torch.tensor([1, 4], device=device)
    assert torch_npu.scatter_update_(data, where, new, 1) is data
    want = torch.zeros(2, 6, 3)
    want[0, 1:3], want[1, 4:6] = new[0].cpu(), new[1].cpu()
    assert torch.equal(data.cpu(), want)
    turned = torch.zeros(2, 3, 6, device=device)
    torch_npu.scatter_update_(turned, where, new.transpose(1, 2), -1)
    assert torch.equal(turned.cpu(), want.transpose(1, 2))
    with pytest.raises(ValueError, match="axis 0"):
        torch_npu.scatter_update_(data, where, new, 0)


def test_scatter_update_writes_the_cache_in_place():
    def step(cache, where, new):
        torch_npu.scatter_update_(cache, where, new, 1)
        return cache.sum()

    cache = torch.zeros(2, 6, 3).npu()
    where, new = torch.tensor([2, 2]).npu(), torch.ones(2, 1, 3).npu()
    run = torch.compile(step, backend=air.torchair, fullgraph=True)
    assert run(cache, where, new).item() == 6
    assert cache[:, 2].sum().item() == 6
    assert air.records[-1].program().stats()["copies"] == 0


# ---- quantising by token ----


def _by_token(y):
    y = y.float()
    scale = y.abs().amax(-1, keepdim=True) / 127
    return torch.round(y / scale).to(torch.int8), scale.squeeze(-1)


def test_dynamic_quant():
    x, smooth = torch.randn(3, 5, 16).half().npu(), torch.rand(16).half().npu()
    parts, scale = torch_npu.npu_dynamic_quant(x)
    assert parts.dtype == torch.int8 and scale.shape == (3, 5)
    assert_close((parts, scale), _by_token(x))
    got = torch_npu.npu_dynamic_quant(x, smooth_scales=smooth)
    assert_close(got, _by_token(x.float() * smooth.float()))
    parts, scale = torch_npu.npu_dynamic_quant(torch.zeros(2, 4).npu())
    assert not parts.any() and not scale.any()
    with pytest.raises(RuntimeError, match="dst_type"):
        torch_npu.npu_dynamic_quant(x, dst_type=torch.quint4x2)


def _normed_and_smoothed(a, b, gamma, smooth):
    y, _, x = torch_npu.npu_add_rms_norm(a, b, gamma, 1e-5)
    parts, scale = torch_npu.npu_dynamic_quant(y, smooth_scales=smooth)
    return parts, scale, x


def _normed_and_flat(a, b, gamma, smooth):
    y, _, x = torch_npu.npu_add_rms_norm(a, b, gamma)
    parts, scale = torch_npu.npu_dynamic_quant(y.flatten(0, 1))
    return parts, scale.view(-1, 1), x


def _normed_and_wide(a, b, gamma, smooth):
    y, _, x = torch_npu.npu_add_rms_norm(a, b, gamma)
    rows = y.view(-1, y.shape[-1])
    return rows, rows.to(torch.float32), x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize(
    "fn, name",
    [
        (_normed_and_smoothed, "npu_add_rms_norm_dynamic_quant"),
        (_normed_and_flat, "npu_add_rms_norm_dynamic_quant"),
        (_normed_and_wide, "npu_add_rms_norm_cast"),
    ],
)
def test_built_in_patterns(fn, name, mode, dynamic):
    """The fused operator is in the graph where the option says so; where
    every rounding is eager's no bit changes; all of it is the engine's."""
    x = [torch.randn(4, 6, 64).half().npu() for _ in range(2)]
    x += [torch.rand(64).half().npu() for _ in range(2)]
    found = []
    for fused in (True, False):
        torch._dynamo.reset()
        graphs = []
        config = torchair.CompilerConfig()
        config.mode = mode
        config.experimental_config.pattern_fusion_pass = fused
        config.post_grad_custom_post_pass = lambda gm, *_, to=graphs: to.append(
            {getattr(n.target, "__name__", "") for n in gm.graph.nodes}
        )
        run = torch.compile(
            fn,
            dynamic=dynamic,
            backend=torchair.get_npu_backend(compiler_config=config),
        )
        run(*x)
        found.append(run(*x))
        assert (f"{name}.default" in graphs[0]) == fused
        assert not air.records[-1].hosts and not air.records[-1].fallback
    for fused, plain, eager in zip(*found, fn(*x), strict=True):
        if mode == "reduce-overhead":
            assert torch.equal(fused, plain) and torch.equal(fused, eager)
        atol = 1 if eager.dtype == torch.int8 else 2e-3
        assert_close(fused.float(), eager.float(), rtol=2e-3, atol=atol)
