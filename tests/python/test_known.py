"""Parameters between calls of a program: one that stays is not read again,
one that has changed in any way is seen.

The programs are called as they are, without Dynamo, whose guards would see
much of it sooner.
"""

import gc
import weakref

import pytest
import torch
from helpers import assert_same
from torch import nn

import torchair
from torchair import backend


class Net(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x):
        return x - self.weight


def program_of(net, x, dynamic=None, frozen=False):
    """(parameter, input) -> what the net's program gives; called twice."""
    torch._dynamo.reset()
    programs = []
    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = frozen
    made = torchair.get_npu_backend(compiler_config=config)
    compiled = torch.compile(net, backend=made, dynamic=dynamic)
    with backend.collect([], programs), torch.no_grad():
        assert_same(compiled(x), net(x))

    @torch.no_grad()
    def run(w, x):
        return programs[0](w, x)

    same(run, net, x)
    return run


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net(torch.randn(4, 4))


@pytest.fixture
def x():
    return torch.randn(4, 4)


def same(run, net, x):
    for _ in range(2):
        assert_same(run(net.weight, x)[0], x - net.weight)


def written(w):
    w.mul_(3)


def other_memory(w):
    w.data = torch.randn(4, 4)


def other_memory_of_the_same_storage(w):
    both = torch.randn(2, 4, 4)
    w.data = both[0]
    w.data = both[1]


def turned(w):
    w.data = w.data.t()


def turned_in_place(w):
    w.t_()


def strided_in_place(w):
    w.as_strided_((4, 4), (1, 4))


def rows_apart(w):
    w.data = torch.randn(8, 4)[::2]


def broadcast(w):
    w.data = w.data[:1].expand(4, 4)


def set_to_another(w):
    w.set_(torch.randn(4, 4).t())


def storage_gone_and_back(w):
    storage = w.untyped_storage()
    storage.resize_(0)
    storage.resize_(64)
    w.fill_(2)


CHANGES = (
    written,
    other_memory,
    other_memory_of_the_same_storage,
    turned,
    turned_in_place,
    strided_in_place,
    rows_apart,
    broadcast,
    set_to_another,
    storage_gone_and_back,
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_parameter_is_seen(net, x, change):
    run = program_of(net, x)
    change(net.weight)
    same(run, net, x)
    change(net.weight)
    same(run, net, x)


def test_another_object_is_seen(net, x):
    run = program_of(net, x)
    for _ in range(20):  # some of them lie where the one before was
        net.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        gc.collect()
        same(run, net, x)


def test_a_resized_parameter_is_seen(net, x):
    run = program_of(net, x, dynamic=True)
    net.weight.data = net.weight.data[:2]  # the same address
    with pytest.raises((RuntimeError, ValueError)):
        run(net.weight, x)
    net.weight.data = torch.randn(4, 4)
    same(run, net, x)


def test_a_parameter_of_another_dtype_is_seen(net, x):
    run = program_of(net, x)
    was = net.weight.data
    net.weight.data = was.view(torch.int32)  # the same address
    with pytest.raises(TypeError, match=r"is int32, float32 is expected"):
        run(net.weight, x)
    net.weight.data = was
    same(run, net, x)


def test_a_parameter_of_another_rank_is_seen(net, x):
    run = program_of(net, x)
    was = net.weight.data
    for other in (was[None], was[..., None], was[0], was.view(-1)):
        net.weight.data = other
        with pytest.raises((RuntimeError, ValueError), match="dims"):
            run(net.weight, x)
    net.weight.data = was
    same(run, net, x)


@pytest.mark.parametrize("bytes", (0, 32))
def test_freed_memory_is_seen(net, x, bytes):
    run = program_of(net, x)
    net.weight.untyped_storage().resize_(0)
    net.weight.untyped_storage().resize_(bytes)
    with pytest.raises(ValueError, match="less memory than its size needs"):
        run(net.weight, x)
    net.weight.untyped_storage().resize_(64)
    net.weight.fill_(1)
    same(run, net, x)


def test_another_device_is_seen(net, x):
    run = program_of(net, x)
    with pytest.raises(ValueError, match="on device meta"):
        run(nn.Parameter(net.weight.data.to("meta")), x)
    same(run, net, x)


@pytest.mark.parametrize("rank", (0, 1, 5, 6))
def test_every_rank(rank):
    net = Net(torch.randn((2,) * rank))
    x = torch.randn((2,) * rank)
    run = program_of(net, x)
    net.weight.data = torch.randn((2,) * rank)
    same(run, net, x)
    if rank >= 2:
        net.weight.data = net.weight.data.transpose(0, 1)
        same(run, net, x)


def test_no_elements():
    net, x = Net(torch.randn(0, 4)), torch.randn(0, 4)
    run = program_of(net, x)
    net.weight.data = torch.randn(4, 0).t()
    same(run, net, x)
    net.weight.data = torch.empty(0, 4, dtype=torch.float64)
    with pytest.raises(TypeError, match="is float64"):
        run(net.weight, x)


def test_a_subclass_is_read(net, x):
    class Odd(torch.Tensor):
        pass

    run = program_of(net, x)
    odd = net.weight.data.as_subclass(Odd)
    for _ in range(2):
        assert_same(run(odd, x)[0].as_subclass(torch.Tensor), net(x))
    same(run, net, x)


# ---- frozen_parameter ----

BOUND = "parameters are bound to the memory of the first call"


def test_a_frozen_parameter_stays_where_it_was(net, x):
    run = program_of(net, x, frozen=True)
    was = net.weight.detach().clone()
    net.weight.data = torch.randn(4, 4)
    gc.collect()
    taken = [torch.randn(4, 4) for _ in range(20)]
    assert_same(run(net.weight, x)[0], x - was)  # stale, and still there
    del taken


@pytest.mark.parametrize("stride", ((4, 1), (1, 4), (0, 1)))
def test_what_is_written_into_a_frozen_parameter_is_seen(net, x, stride):
    net.weight.data = torch.randn(16).as_strided((4, 4), stride)
    run = program_of(net, x, frozen=True)
    net.weight.data[0].mul_(3)
    same(run, net, x)


def test_another_object_than_the_frozen_one_is_seen(net, x):
    run = program_of(net, x, frozen=True)
    first = net.weight
    for _ in range(20):  # some of them lie where the one before was
        net.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        gc.collect()
        same(run, net, x)
    assert_same(run(first, x)[0], x - first)


def test_a_frozen_parameter_dies_with_its_program(net, x):
    run = program_of(net, x, frozen=True)
    alive = weakref.ref(net.weight)
    net.weight = None
    torch._dynamo.reset()
    gc.collect()
    assert alive() is None  # the program keeps the memory only
    del run


def frozen():
    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = True
    return config


@torch.no_grad()
def test_modules_that_share_code_have_parameters_of_their_own(x):
    made = torchair.get_npu_backend(compiler_config=frozen())
    nets = [Net(torch.randn(4, 4)) for _ in range(3)]
    compiled = [torch.compile(net, backend=made) for net in nets]
    for _ in range(3):
        for net, run in zip(nets, compiled, strict=True):
            assert_same(run(x), net(x))


@torch.no_grad()
def test_a_compiled_model_is_bound(net, x):
    made = torchair.get_npu_backend(compiler_config=frozen())
    run = torch.compile(net, backend=made)
    want = net(x)
    for _ in range(3):
        assert_same(run(x), want)
    net.weight.data = torch.randn(4, 4)
    assert_same(run(x), want)
    net.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
    assert_same(run(x), net(x))


def explained(net, *args):
    config = frozen()
    return torchair.explain(net, *args, compiler_config=config).graphs


def test_explain_says_what_is_frozen(net, x):
    assert BOUND in explained(net, x)[0].options


def test_nothing_is_frozen_in_training(net, x):
    net.weight.requires_grad_()
    for graph in explained(net, x):
        assert BOUND not in graph.options
