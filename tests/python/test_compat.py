"""What compat.py does in place of torch's functions."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchair import compat


def _fails(*_args, **_keywords):
    raise AssertionError("inspect walks all modules here")


def _other_parameters(monkeypatch):
    """The first call, which is ours, does not fit."""
    holder = torch._library.fake_impl.FakeImplHolder
    plain, calls = holder.register, []

    def register(*args, **keywords):
        calls.append(args)
        if len(calls) == 1:
            raise TypeError("unexpected argument")
        return plain(*args, **keywords)

    monkeypatch.setattr(holder, "register", register)


def _as_tested(monkeypatch):
    monkeypatch.setattr(torch.library, "register_fake", _fails)


@pytest.mark.parametrize(
    "prepare", (_as_tested, _other_parameters), ids=lambda f: f.__name__
)
def test_register_fake(prepare, monkeypatch):
    """Both ways, also on meta tensors; it goes with the library."""
    library = torch.library.Library("compat_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    with monkeypatch.context() as patch:
        prepare(patch)
        compat.register_fake(library, "twice", lambda x: x.new_empty(2))
    twice = torch.ops.compat_test.twice
    with FakeTensorMode():
        assert twice(torch.ones(3)).shape == (2,)
    assert twice(torch.ones(3, device="meta")).shape == (2,)
    entry = torch._library.simple_registry.singleton.find("compat_test::twice")
    assert len(entry.fake_impl.kernels) == 1
    library._destroy()
    assert not entry.fake_impl.kernels
