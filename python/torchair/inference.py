"""torchair.inference: sizes that vary over a list."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["set_dim_gears"]

_LEAST, _MOST = 2, 100  # gears of a dim


def set_dim_gears(t: torch.Tensor, dim_gears: dict[int, Sequence[int]]) -> None:
    """Says which sizes an input of a compiled function has: dim -> list of
    sizes. Call it once, before the first call, for all such inputs.

    Every other dim of every input is static then. How the lists of several
    dims combine is `inference_config.dynamic_gears_merge_policy`; a call with
    other sizes is an AssertionError behind Dynamo's BackendCompilerFailed. The
    function is traced once; each combination gets a plan of its own.

    AssertionError: the tensor has other gears already; a dim is no int or not
    one of the tensor; its sizes are no list or tuple of 2 to 100 ints that are
    greater than 1 (Dynamo makes graphs of their own for sizes 0 and 1).
    """
    for dim, sizes in dim_gears.items():
        _check(t, dim, sizes)
    gears = {dim: tuple(sizes) for dim, sizes in dim_gears.items()}
    known = getattr(t, "dim_gears", gears)
    if known != gears:
        raise AssertionError(
            f"set_dim_gears: the tensor has gears {known} already; they can "
            "be set once"
        )
    t.dim_gears = gears  # type: ignore[attr-defined]
    for dim in gears:
        torch._dynamo.mark_dynamic(t, dim)


def _check(t: torch.Tensor, dim: int, sizes: Sequence[int]) -> None:
    if type(dim) is not int or not 0 <= dim < t.dim():
        raise AssertionError(
            f"set_dim_gears: {dim!r} is no dim of a tensor with {t.dim()}; "
            f"keys are ints from 0 to {t.dim() - 1}"
        )
    if not isinstance(sizes, (list, tuple)):
        raise AssertionError(
            f"set_dim_gears: dim {dim} has {sizes!r}; give a list of sizes"
        )
    if not _LEAST <= len(sizes) <= _MOST:
        raise AssertionError(
            f"set_dim_gears: dim {dim} has {len(sizes)} sizes; give "
            f"{_LEAST} to {_MOST}"
        )
    if any(type(size) is not int or size <= 1 for size in sizes):
        raise AssertionError(
            f"set_dim_gears: dim {dim} has sizes {list(sizes)}; each must be "
            "an int greater than 1"
        )
