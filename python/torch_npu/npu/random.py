"""Random numbers of the device are those of torch's CPU generator.

So one seed gives the same numbers on both, and the state of one is the state
of the other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch

from .devices import device_index

# One for each device.
default_generators = (torch.default_generator,)


def get_rng_state(device: Any = "npu") -> torch.Tensor:
    """The state as a uint8 CPU tensor."""
    device_index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = "npu") -> None:
    device_index(device)
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    states = list(new_states)
    if len(states) != 1:
        raise ValueError(f"one device, but {len(states)} states")
    set_rng_state(states[0])


def _refuse_capture() -> None:
    streams = sys.modules.get("torchair.npu.streams")
    if streams is not None:
        streams.refuse_in_capture("seeding the random generator")


def manual_seed(seed: int) -> None:
    """RuntimeError while the current stream is captured."""
    _refuse_capture()
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """A seed from the system. RuntimeError while capturing."""
    _refuse_capture()
    torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    return torch.default_generator.initial_seed()


# ---- torch.Generator(device="npu") ----

_Base: Any = torch._C.Generator


class _AnyGenerator(type(_Base)):  # type: ignore[misc]
    """isinstance(g, torch.Generator) holds for torch's own generators."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, _Base)


class Generator(_Base, metaclass=_AnyGenerator):  # type: ignore[misc]
    """torch.Generator that knows the device npu: a CPU generator there."""

    def __new__(cls, device: Any = "cpu") -> Any:
        asked = torch.device(device)
        if asked.type != "npu":
            return _Base(device)
        device_index(asked)
        return super().__new__(cls, "cpu")

    @property
    def device(self) -> torch.device:
        return torch.device("npu:0")

    def clone_state(self) -> Generator:
        found: Generator = Generator("npu")
        found.set_state(self.get_state())
        return found

    def __reduce__(self) -> Any:
        return _restored, (self.get_state(),)


def _restored(state: torch.Tensor) -> Generator:
    found: Generator = Generator("npu")
    found.set_state(state)
    return found


def install_generator() -> None:
    Generator.__module__, Generator.__qualname__ = "torch", "Generator"
    torch.Generator = Generator  # type: ignore[misc]
