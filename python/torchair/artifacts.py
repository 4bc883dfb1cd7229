"""get_compiler: graphs for a backend of your own, and what they leave behind.

compiled = torchair.get_compiler(config)(gm, example_inputs)
compiled.get_code()            Python that runs the graph, to be read
data = compiled.dump_artifacts()
Compiled.load_artifacts(data)  in a later process
"""

from __future__ import annotations

import base64
import dataclasses
import pprint
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import (
    backend,
    cache_file,
    capture,
    checks,
    compat,
    eager,
    loading,
    saving,
)
from .config import CompilerConfig, capture_options, settings
from .options import captures

__all__ = ["Compiled", "get_compiler", "load"]

Run = Callable[..., Any]
# Options that what was compiled can be run with otherwise, and what they are
# in CaptureOptions.
_CAPTURE = [
    field.name
    for field in dataclasses.fields(capture.CaptureOptions)
    if field.name not in ("listener", "trace", "pool")
]


class Compiled:
    """A compiled graph: its inputs -> a tuple of its outputs."""

    _boxed_call = True  # AOTAutograd passes one list

    def __init__(
        self,
        run: Run,
        saved: saving.GraphSaver,
        config: CompilerConfig,
        reason: str = "",
    ) -> None:
        """reason: why torch runs the graph, "" where it does not."""
        self._run, self._saved, self._config = run, saved, config
        self.reason = reason or saved.reason  # why it cannot be written

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        made = self._run(*args)
        return made if type(made) is tuple else tuple(made)

    def get_code(self, extend_config: dict[str, Any] | None = None) -> Any:
        """Python that defines kernel(*args) for the same inputs; the graph
        stands in it as text. Where there can be none (random numbers, graphs
        of a GPU or that torch runs), this object itself.

        extend_config: options by their paths or keys that the code is to have
        instead, of those that are about captures (`mode`, `clone_input`,
        ...). ValueError for others: they have made the graph what it is.
        """
        if self.reason:
            return self
        content = self._content(extend_config)
        program = dict(content["program"])
        return _CODE.format(
            built=content["built"],
            graph=program.pop("text"),
            program=pprint.pformat(program, width=79),
            capture=pprint.pformat(content["capture"], width=79),
            tensors=_packed(self._saved.tensors),
        )

    def dump_artifacts(self) -> bytes:
        """All that `load_artifacts` needs, in the same torch and engine.
        RuntimeError where the graph cannot be written, with the reason."""
        if self.reason:
            raise RuntimeError(
                f"dump_artifacts: the graph cannot be written: {self.reason}"
            )
        return cache_file.packed(self._content(None), self._saved.tensors)

    @staticmethod
    def load_artifacts(artifacts: bytes) -> Loaded:
        """What `dump_artifacts` gave, as a callable.

        TypeError: they are no bytes. ValueError: they are damaged, or of
        another torch, Python or engine.
        """
        checks.is_a(
            bytes, artifacts, "load_artifacts: artifacts", "dump_artifacts()"
        )
        content, tensors = cache_file.unpacked(artifacts)
        _check_built(content.get("built", {}))
        try:
            run = _program(content, tensors)
        except loading.WRONG as why:
            raise cache_file.Damaged(f"its contents are wrong: {why}") from why
        return Loaded(run, content, tensors)

    def _content(self, extend_config: dict[str, Any] | None) -> dict[str, Any]:
        config = self._config
        if extend_config is not None:
            checks.is_a(
                dict,
                extend_config,
                "get_code: extend_config",
                "a dict of options and values",
            )
            config = settings(config, options=extend_config)
            _check_captures_only(self._config, config)
        program = dict(self._saved.content["program"])
        return {
            "program": program,
            "capture": _capture_data(config),
            "built": saving.built(),
        }


class Loaded(Compiled):
    """A compiled graph from its artifacts."""

    def __init__(
        self, run: Run, content: dict[str, Any], tensors: list[torch.Tensor]
    ) -> None:
        self._run, self.reason = run, ""
        self._loaded = content
        self._saved = saving.GraphSaver()
        self._saved.tensors = tensors
        self._config = CompilerConfig()

    def _content(self, extend_config: dict[str, Any] | None) -> dict[str, Any]:
        if extend_config:
            raise ValueError(
                "get_code: extend_config has to be given where the graph was "
                "compiled; loaded artifacts have their options"
            )
        return self._loaded


def _check_captures_only(old: CompilerConfig, new: CompilerConfig) -> None:
    known = {"mode"} | set(_PATHS)
    if captures(old.mode.raw) != captures(new.mode.raw):
        raise ValueError(
            "get_code: extend_config: mode decides how the graph is compiled; "
            "give it to get_compiler"
        )
    for mine, theirs in zip(old.options(), new.options(), strict=True):
        if mine.raw != theirs.raw and mine.row.path not in known:
            raise ValueError(
                f"get_code: extend_config: {mine.row.path} decides how the "
                "graph is compiled; give it to get_compiler. Here may be: "
                + ", ".join(sorted(known))
            )


_PATHS = (
    "debug.aclgraph.static_capture_size_limit",
    "debug.aclgraph.clone_input",
    "debug.aclgraph.enable_output_clone",
    "debug.aclgraph.force_recapture",
    "debug.aclgraph.disable_mempool_reuse_in_same_fx",
    "debug.aclgraph.capture_error_mode",
    "experimental_config.frozen_parameter",
)


def _capture_data(config: CompilerConfig) -> dict[str, Any] | None:
    found = capture_options(config)
    if found is None:
        return None
    return {name: getattr(found, name) for name in _CAPTURE}


def _check_built(then: dict[str, Any]) -> None:
    for what, now in saving.built().items():
        if then.get(what) != now:
            raise cache_file.Damaged(
                f"the artifacts are of another {what} ({then.get(what)}); "
                "compile the graph again"
            )


def _program(content: dict[str, Any], tensors: list[torch.Tensor]) -> Run:
    asked = content["capture"]
    options = None if asked is None else capture.CaptureOptions(**asked)
    return loading.program(
        content["program"], tensors, options, "of get_compiler"
    )


# ---- code ----

_CODE = '''\
# A graph that torchair compiled, as a function. Of {built}.
import torchair.artifacts

GRAPH = """\\
{graph}"""
PROGRAM = {program}
CAPTURE = {capture}
TENSORS = {tensors!r}

_run = torchair.artifacts.load(GRAPH, PROGRAM, CAPTURE, TENSORS)


def kernel(*args):
    return _run(*args)
'''


def _packed(tensors: list[torch.Tensor]) -> str:
    if not tensors:
        return ""
    return base64.b64encode(cache_file.packed({}, tensors)).decode()


def load(
    graph: str,
    program: dict[str, Any],
    capture: dict[str, Any] | None,
    tensors: str,
) -> Compiled:
    """What the code of `get_code` runs."""
    found: list[torch.Tensor] = []
    if tensors:
        _, found = cache_file.unpacked(base64.b64decode(tensors))
    content = {"program": program | {"text": graph}, "capture": capture}
    return Loaded(_program(content, found), content, found)


# ---- the compiler ----


class Compiler(backend.Compiler):
    """compiler(gm, example_inputs) -> Compiled."""

    @compat.untraced
    def __call__(
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Compiled:
        saved = saving.GraphSaver()
        with backend.followed_by(saved):
            made = super().__call__(gm, example_inputs)
        assert self.record is not None
        run = made if self.record.fallback else eager.timed(self.record, made)
        return Compiled(run, saved, self.config, self.record.fallback)


def get_compiler(compiler_config: CompilerConfig | None = None) -> Compiler:
    """A compiler(gm, example_inputs) for your own AOTAutograd backend; what it
    gives is a `Compiled`."""
    return Compiler(settings(compiler_config))
