"""torch.accelerator.Graph for the device npu."""

from __future__ import annotations

from typing import Any

from . import streams
from .graphs import NPUGraph, graph
from .pools import Handle


class Graph(NPUGraph):
    """An NPUGraph that is its own context manager.

    >>> g = torch.accelerator.Graph()
    >>> with g:
    ...     x += 1
    >>> g.replay()

    keep_graph: the program is made at the end of the capture either way.
    pool, capture_error_mode: see NPUGraph.capture_begin; "default" is
    "global". The block is captured on the current stream of torch.npu, or
    where that is the default one, on the stream that all captures share.
    """

    def __init__(
        self,
        keep_graph: bool = False,
        *,
        pool: Handle | None = None,
        capture_error_mode: str = "default",
    ) -> None:
        super().__init__()
        self.keep_graph, self.graph_pool = keep_graph, pool
        self.capture_error_mode = capture_error_mode
        self._block: list[graph] = []

    def capture_begin(
        self, pool: Handle | None = None, capture_error_mode: str = ""
    ) -> None:
        mode = capture_error_mode or self.capture_error_mode
        super().capture_begin(
            pool=self.graph_pool if pool is None else pool,
            capture_error_mode="global" if mode == "default" else mode,
        )

    def instantiate(self) -> None:
        """RuntimeError without a capture; there is nothing else to do."""
        self._captured("instantiate()")

    def __enter__(self) -> None:
        now = streams.current_stream()
        mode = self.capture_error_mode
        block = graph(
            self,
            pool=self.graph_pool,
            stream=None if now.stream_id == 0 else now,
            capture_error_mode="global" if mode == "default" else mode,
        )
        block.__enter__()
        self._block.append(block)

    def __exit__(self, *exception: Any) -> None:
        self._block.pop().__exit__(*exception)
