"""torch.npu.npugraph_ex.inference: compiled functions in files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config import npugraph_ex_config
from ..inference import cache_compile as _cache_compile
from ..inference import readable_cache

__all__ = ["cache_compile", "readable_cache"]


def cache_compile(
    func: Callable[..., Any],
    *,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    options: dict[str, Any] | None = None,
    custom_decompositions: dict[Any, Any] | None = None,
) -> Callable[..., Any]:
    """torchair.inference.cache_compile for captures. options: of the backend
    npugraph_ex; ValueError names one that is unknown."""
    return _cache_compile(
        func,
        config=npugraph_ex_config(options),
        dynamic=dynamic,
        cache_dir=cache_dir,
        global_rank=global_rank,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        custom_decompositions=custom_decompositions,
    )
