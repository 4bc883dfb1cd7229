"""Functions that torch writes and loads: `aot_compile` of torch.compile.

    made = torch.compile(f, fullgraph=True, backend="torchair").aot_compile(
        ((x,), {})
    )
    made.save_compiled_function(path)
    with open(path, "rb") as file:  # in a later process
        f = torch.compiler.load_compiled_function(file)

AOTAutograd keeps the graphs that its compilers gave beside its own wrappers,
where they are what Inductor calls an OutputCode. Imported when one is asked
for: Inductor's module takes long to import.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._inductor.output_code import OutputCode

from . import artifacts, compat, weights

_HINT = "torch.compile without aot_compile takes it"


class Output(OutputCode):
    """A compiled graph: its inputs, or a list of them -> a tuple of its
    outputs."""

    def __init__(self, made: artifacts.Compiled) -> None:
        self._made: artifacts.Compiled | None = made
        self._data = b""  # of one that is in a file
        # AOTAutograd passes one list where what it calls says so; its wrappers
        # copy what the object has, not what the class has.
        self._boxed_call = True

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        assert self._made is not None, "it was not loaded"
        return self._made(*args)

    def prepare_for_serialization(self) -> None:
        if self._made is not None:
            with compat.real_tensors():
                self._data, self._made = self._made.dump_artifacts(), None

    def post_compile(self, *_: Any) -> None:
        """In the process that loads it. ValueError: it is of another torch or
        engine."""
        with compat.real_tensors():
            self._made = self._made or artifacts.Compiled.load_artifacts(
                self._data
            )

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        pass


class Compiler(artifacts.Compiler):
    """compiler(gm, example_inputs) -> Output. RuntimeError: no file can have
    the graph, and why."""

    @compat.untraced  # AOTAutograd asks for an OutputCode
    def __call__(  # type: ignore[override]
        self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Output:
        made = super().__call__(gm, example_inputs)
        why = made.reason
        if weights.parts(self.made)[1] is not None:
            why = "a file does not watch the parameters that are quantised"
        if why:
            raise RuntimeError(
                f"aot_compile: the graph cannot be written: {why}; {_HINT}"
            )
        return Output(made)
