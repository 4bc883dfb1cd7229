"""torchair.inference: compiled functions in files, and sizes that vary over a
list."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import cache_file, caching, checks, loading
from .config import CompilerConfig, copy

__all__ = ["cache_compile", "readable_cache", "set_dim_gears"]

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
    checks.is_a(torch.Tensor, t, "set_dim_gears: t", "a tensor")
    if not isinstance(dim_gears, dict):
        raise AssertionError(
            f"set_dim_gears: dim_gears is {dim_gears!r}; give a dict of dims "
            "and lists of sizes, {0: [1024, 2048]}"
        )
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


def cache_compile(
    func: Callable[..., Any],
    *,
    config: CompilerConfig | None = None,
    backend: Any = None,
    dynamic: bool = True,
    cache_dir: str | None = None,
    global_rank: int | None = None,
    tp_rank: int | None = None,
    pp_rank: int | None = None,
    ge_cache: bool = False,
    custom_decompositions: dict[Any, Any] | None = None,
    **_kwargs: Any,
) -> Callable[..., Any]:
    """func, compiled once: later processes load it and skip Dynamo, its guards
    and AOTAutograd.

    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.cached_prompt = cache_compile(self.prompt)
    ...     def prompt(self, x): ...

    func: a bound method of a torch.nn.Module that is traced as one graph; all
    happens at its first call, under no_grad. config, backend: of
    `get_npu_backend`; with both, the configurations must be equal. dynamic: of
    torch.compile. The file is `<cache_dir>/<class>_<dynamic|static>[_...]_<md5
    of the module's text and the options>/world<W>global_rank<R>[_tp_rank<T>]
    [_pp_rank<P>]/<method>/compiled_module`; cache_dir is $TORCHAIR_CACHE_HOME
    or ./.torchair_cache. ge_cache: the graph is written as the engine
    optimised it (max-autotune).

    A file is used if it was made by the same torch, Python and engine, the
    files that were traced and the shapes and plain attributes of the module
    are the same, and it is this user's alone; else a UserWarning says why, and
    the function is compiled again. At the first call AssertionError where a
    tensor has other sizes or strides; where a number or a relation of sizes
    that was taken for granted does not hold, the cache is given up with a
    UserWarning. Functions that cannot be written (random numbers, operators
    without a schema, views of inputs as outputs) run without a file, and a
    UserWarning says why.

    ValueError: func is no such method; the configurations differ; cache_dir
    is another user's.
    """
    module = getattr(func, "__self__", None)
    if not isinstance(func, types.MethodType) or not isinstance(
        module, torch.nn.Module
    ):
        raise ValueError(
            "cache_compile: func must be a bound method of a torch.nn.Module, "
            f"got {func!r}"
        )
    found = _configuration(config, backend)
    _check_place(cache_dir, global_rank, tp_rank, pp_rank)
    checks.is_a((bool, type(None)), dynamic, "cache_compile: dynamic", "a bool")
    _check_folder(cache_dir)
    if ge_cache and found.captures:
        _warn_ge_cache()
    place = caching.Place(
        cache_dir, dynamic, (global_rank, tp_rank, pp_rank), ge_cache
    )
    tables = getattr(backend, "keywords", {}).get("decompositions") or {}
    table = {**tables, **(custom_decompositions or {})}
    return caching.Cached(func, copy(found), table, place)


def _check_place(folder: Any, *ranks: Any) -> None:
    if folder is not None:
        checks.is_a(
            (str, os.PathLike), folder, "cache_compile: cache_dir", "a path"
        )
    names = "global_rank", "tp_rank", "pp_rank"
    for name, rank in zip(names, ranks, strict=True):
        if rank is None:
            continue
        checks.is_a(int, rank, f"cache_compile: {name}", "an int")
        if rank < 0:
            raise ValueError(
                f"cache_compile: {name} is {rank}; ranks count from 0"
            )


def _configuration(
    config: CompilerConfig | None, backend: Any
) -> CompilerConfig:
    keywords = getattr(backend, "keywords", None)
    if backend is not None and "compiler_config" not in (keywords or {}):
        raise ValueError(
            "cache_compile: backend must be what torchair.get_npu_backend "
            f"gives, got {backend!r}"
        )
    theirs = keywords["compiler_config"] if keywords else None
    if config is not None and theirs is not None and config != theirs:
        raise ValueError(
            "cache_compile: config and the backend's configuration differ; "
            "give either"
        )
    found = theirs if config is None else config
    return CompilerConfig() if found is None else found


def _check_folder(path: str | None) -> None:
    if path is None or not os.path.exists(path):
        return
    if os.stat(path).st_uid != os.geteuid():
        raise ValueError(
            f"cache_compile: cache_dir {path} belongs to another user; give "
            "one of your own"
        )


_warned: set[str] = set()


def _warn_ge_cache() -> None:
    if "ge_cache" not in _warned:
        _warned.add("ge_cache")
        warnings.warn(
            "cache_compile: ge_cache has an effect in mode max-autotune only",
            stacklevel=3,
        )


def readable_cache(
    cache_bin: str, print_output: bool = True, file: str | None = None
) -> str:
    """What a file of cache_compile holds, as text: what made it, Dynamo's
    graph, its inputs, the options, and the function around it.

    print_output: print it. file: write it there too, as comments before Python
    that makes the graph callable.

    ValueError: cache_bin does not exist, is a link or no compiled module, or
    file is a link. PermissionError: cache_bin or an existing file is not this
    user's alone (mode 0600).
    """
    described, python = caching.readable(cache_bin)
    if print_output:
        print(described)
    if file is not None:
        _check_file(file)
        text = caching.commented(described, python)
        cache_file.write_private(file, text.encode())
    return described


def _check_file(path: str) -> None:
    if os.path.islink(path):
        raise ValueError(f"{path} is a symbolic link; give another name")
    if os.path.lexists(path):
        why = cache_file.why_not_trusted(path)
        if why:
            raise PermissionError(f"{path} is not overwritten: {why}")


def kernel_of(cache_bin: str) -> Callable[..., Any]:
    """The graph of a file of cache_compile as a function of its tensors and
    sizes, in their order; readable_cache says which they are.

    ValueError, PermissionError: as readable_cache.
    """
    caching.readable(cache_bin)
    content, tensors = cache_file.read(cache_bin)
    config = CompilerConfig()
    run = loading.program_of(content, tensors, config, cache_bin)
    return lambda *args: run(*args)
