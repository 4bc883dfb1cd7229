"""Moves tasks so that the trace shows what waits for what."""

from __future__ import annotations

from typing import Any

from . import trace
from .filter_operators import arguments


def align_trace_json(input: str, output: str, merge_gap: float = 0.0) -> None:
    """Writes the trace with each task as early as its stream allows it, a wait
    not before its record has ended. Durations stay; merge_gap: microseconds of
    idle time within a stream that are closed."""
    found = trace.read(input)
    events = trace.tasks(found)
    end: dict[Any, float] = {}
    reached: list[tuple[trace.Clock, float]] = []
    for task, clock in zip(events, trace.clocks(events), strict=True):
        stream = task.get("tid")
        start = end.get(stream, 0.0)
        for other, at in reached:
            if all(clock.get(k, 0) >= n for k, n in other.items()):
                start = max(start, at)
        task["ts"] = start
        end[stream] = start + float(task.get("dur", 0))
        reached.append((clock, end[stream]))
    trace.close_gaps(events, merge_gap)
    trace.write(output, found | {"traceEvents": events})


if __name__ == "__main__":
    given = arguments(str(__doc__)).parse_args()
    align_trace_json(given.input, given.output, given.merge_gap)
