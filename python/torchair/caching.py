"""cache_compile: compiled once, loaded by later processes."""

from __future__ import annotations

import dis
import hashlib
import io
import os
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import cache_file, files, loading, switches
from .config import CompilerConfig
from .logs import logger
from .options import text

_HOME = "TORCHAIR_CACHE_HOME"
_DEFAULT = ".torchair_cache"
_FILE = "compiled_module"
_RULE = "-" * 79


@dataclass(frozen=True)
class Place:
    """Where a compiled function lies."""

    folder: str | None
    dynamic: bool
    ranks: tuple[int | None, int | None, int | None]  # global, tp, pp
    ge_cache: bool

    def path(
        self,
        method: types.MethodType,
        config: CompilerConfig,
        given: Iterable[Any] = (),
    ) -> str:
        """given: what the first call was."""
        owner = type(method.__self__).__name__
        kind = "dynamic" if self.dynamic else "static"
        kind += "_aclgraphcache" if config.captures else ""
        kind += "_gecache" if self.keeps_engine(config) else ""
        root = os.path.realpath(self.folder or _root())
        key = _key(method.__self__, config, given)
        name = f"{owner}_{kind}_{key}"
        parts = (*self._process(), method.__name__, _FILE)
        return os.path.join(root, name, *parts)

    def keeps_engine(self, config: CompilerConfig) -> bool:
        """Is the engine's result in a file too?"""
        return self.ge_cache and not config.captures

    def _process(self) -> Iterator[str]:
        """Which of several processes it is; nothing where there is one."""
        world, mine = files.ranks()
        rank, tensor, pipeline = self.ranks
        if world == 1 and self.ranks == (None, None, None):
            return
        name = f"world{world}global_rank{mine if rank is None else rank}"
        name += "" if tensor is None else f"_tp_rank{tensor}"
        yield name + ("" if pipeline is None else f"_pp_rank{pipeline}")


def _root() -> str:
    return os.environ.get(_HOME) or _DEFAULT


def _gpus(module: Any, given: Iterable[Any]) -> list[str]:
    """That the module or an argument is on."""
    tensors = [x for x in given if isinstance(x, torch.Tensor)]
    if isinstance(module, torch.nn.Module):
        tensors += [*module.parameters(), *module.buffers()]
    return sorted({str(t.device) for t in tensors if t.device.type == "cuda"})


def _key(module: Any, config: CompilerConfig, given: Iterable[Any] = ()) -> str:
    """Of the module's structure, the options, the GPU and its precision."""
    said = [str(module), *_gpus(module, given)]
    if switches.allows_tf32():
        said.append("tf32")
    for option in config.options():
        raw = option.raw
        code = getattr(raw, "__code__", None)
        shown = code.co_code.hex() if code is not None else text(raw)
        said.append(f"{option.row.path}={shown}")
    joined = "\n".join(said).encode()
    return hashlib.md5(joined, usedforsecurity=False).hexdigest()


class Cached:
    """What cache_compile gives: at the first call it loads the file, or
    compiles and writes it."""

    def __init__(
        self,
        method: types.MethodType,
        config: CompilerConfig,
        decompositions: dict[Any, Any],
        place: Place,
    ) -> None:
        self.method, self.config = method, config
        self.decompositions, self.place = decompositions, place
        self.path = ""
        self._run: Callable[..., Any] | None = None
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            if self._run is None:
                with self._lock:
                    if self._run is None:
                        return self._first(args, kwargs)
            return self._run(*args, **kwargs)

    def _first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = (*args, *kwargs.values())
        self.path = self.place.path(self.method, self.config, given)
        loaded = self._load()
        if loaded is None:
            return self._compile(args, kwargs)
        logger.info("cache_compile: loaded from %s", self.path)
        loaded.check_inputs(args, kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            if loaded.holds(self.method.__self__, *args, **kwargs):
                return loaded.run(*args, **kwargs)
            self._abandon("a call is not what it was compiled for")
            self._run = self._plain()
            return self._run(*args, **kwargs)

        self._run = run
        return run(*args, **kwargs)

    def _load(self) -> loading.Loaded | None:
        if not os.path.lexists(self.path):
            return None
        try:
            why = cache_file.why_not_trusted(self.path)
            if not why:
                return loading.Loaded(self.method, self.path, self.config)
        except (cache_file.Damaged, loading.Stale, OSError) as wrong:
            why = str(wrong)
        warnings.warn(
            f"cache_compile: {self.path} is not used: {why}. "
            f"{self._name()} is compiled again",
            stacklevel=5,
        )
        cache_file.remove(self.path)
        return None

    def _name(self) -> str:
        return f"{type(self.method.__self__).__name__}.{self.method.__name__}"

    def _abandon(self, why: str) -> None:
        warnings.warn(
            f"Skip cache as {self._name()} is recompiled: {why}. Give each "
            "case a method of its own to cache both",
            stacklevel=5,
        )
        cache_file.remove(self.path)

    def _plain(self, saver: Any = None) -> Callable[..., Any]:
        from . import backend

        compiler = backend.saving_backend(
            self.config, self.decompositions, saver
        )
        made: Callable[..., Any] = torch.compile(
            self.method,
            backend=compiler,
            fullgraph=True,
            dynamic=self.place.dynamic,
        )
        return made

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from . import compat_saving, saving

        function: Any = self.method.__func__
        saver = saving.Saver(function, self.method.__self__)
        saver.locals = loading._bind(self.method, args, kwargs)
        saver.again = self._abandon
        compiled = self._plain(saver)
        with compat_saving.bytecode_of(function.__code__, saver.code):
            result = compiled(*args, **kwargs)
        if saver.save(self.path, self._description()):
            logger.info("cache_compile: saved to %s", self.path)
            if self.place.keeps_engine(self.config):
                cache_file.write_graph(self.path, saver.text)
        else:
            warnings.warn(
                f"cache_compile: skip cache of {self._name()}: {saver.reason}",
                stacklevel=5,
            )
        self._run = compiled
        return result

    def _description(self) -> dict[str, Any]:
        lines = [
            f"{option.row.path}: {text(option.raw)}"
            for option in self.config.options()
        ]
        return {"name": self._name(), "options": lines}


# ---- readable_cache ----


def readable(path: str) -> tuple[str, str]:
    """(description, Python that runs the graph) of a file.

    ValueError: no such file, a link, or no compiled module. PermissionError:
    others may have written it.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
        raise ValueError(f"{path} is no file; give that of a compiled module")
    if os.path.islink(path):
        raise ValueError(f"{path} is a symbolic link; give the file itself")
    why = cache_file.why_not_trusted(path)
    if why:
        raise PermissionError(f"{path} is not read: {why}")
    content, _ = cache_file.read(os.fspath(path))
    return _described(content), _python(os.path.abspath(path), content)


def _described(content: dict[str, Any]) -> str:
    import base64
    import marshal

    code = marshal.loads(base64.b64decode(content["code"]))  # noqa: S302
    listing = io.StringIO()
    dis.dis(code, file=listing)
    version = ", ".join(f"{k} {v}" for k, v in content["built"].items())
    return "\n".join(
        [
            _RULE,
            f"name: {content['name']}",
            f"date: {content['date']}",
            f"version: {version}",
            _RULE,
            content["fx"].strip("\n"),
            _RULE,
            *map(_input_line, enumerate(content["inputs"])),
            _RULE,
            *content["options"],
            _RULE,
            listing.getvalue().rstrip("\n"),
            _RULE,
        ]
    )


def _input_line(numbered: tuple[int, list[Any]]) -> str:
    i, (source, name, dtype, sizes, strides) = numbered
    kind = "UserInput"
    if "._parameters[" in source or "._buffers[" in source:
        kind = "Parameter" if "._parameters[" in source else "Buffer"
    return f"{i}:{name} {kind}({source})={dtype}{sizes} strides {strides}"


def _python(path: str, content: dict[str, Any]) -> str:
    return (
        "import torchair.inference\n\n"
        f"GRAPH = '''\n{content['program']['text']}'''\n\n"
        f"kernel = torchair.inference.kernel_of({path!r})\n"
        "# kernel(*args): tensors and sizes in the order of the graph\n"
    )


def commented(described: str, python: str) -> str:
    return "".join(f"# {line}\n" for line in described.splitlines()) + python
