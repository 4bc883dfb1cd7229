"""torch_npu._inductor.config: settings programs write to.

npugraph_trees.disable_cpu_input_check: graphs with CPU inputs are captured
like any other here, so there is no check to disable; the value is kept, and
nothing else changes with it.
"""

from __future__ import annotations


class _Trees:
    def __init__(self) -> None:
        self._disable_cpu_input_check = False

    @property
    def disable_cpu_input_check(self) -> bool:
        return self._disable_cpu_input_check

    @disable_cpu_input_check.setter
    def disable_cpu_input_check(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(
                f"disable_cpu_input_check must be True or False, got {value!r}"
            )
        self._disable_cpu_input_check = value


npugraph_trees = _Trees()
