"""Finds kernels of communication that may wait for each other for ever: two
streams run them at once, and together they need more vector cores than there
are."""

from __future__ import annotations

import itertools

from . import trace
from .filter_operators import arguments

SHOWN = 49.5  # microseconds: the duration of what is flagged
PREFIX = "dead_lock_"


def need(task: trace.Task) -> int:
    """Vector cores: its blocks, twice where it is mixed."""
    blocks = int(trace.arg(task, "Block Num", 0))
    return blocks * 2 if float(trace.arg(task, "Task Ratio", 0)) else blocks


def _unordered(a: trace.Task, x: trace.Clock, y: trace.Clock) -> bool:
    """a with clock x is the earlier one in the trace."""
    stream = a.get("tid")
    return y.get(stream, 0) < x[stream]


def _line(a: trace.Task, b: trace.Task, total: int) -> str:
    both = " | ".join(
        f"stream {t.get('tid')} TaskId {trace.arg(t, 'Task Id')} "
        f"{t.get('name')} vector cores {need(t)}"
        for t in (a, b)
    )
    return f"{both} | sum={need(a) + need(b)} > {total}"


def deadlock_check(
    input_path: str,
    output_path: str,
    aivec_total: int,
    merge_gap: float = 0.0,
) -> list[str]:
    """Prints how many pairs are at risk and a line for each, which it returns.
    Writes a trace that shows them, only where there are any. aivec_total:
    vector cores of the device; merge_gap: microseconds of idle time within a
    stream that are closed."""
    found = trace.read(input_path)
    events = trace.tasks(found)
    kept = [
        (task, clock)
        for task, clock in zip(events, trace.clocks(events), strict=True)
        if trace.is_communication(task)
    ]
    pairs = [
        (a, b)
        for (a, x), (b, y) in itertools.combinations(kept, 2)
        if a.get("tid") != b.get("tid")
        and need(a) + need(b) > aivec_total
        and _unordered(a, x, y)
    ]
    lines = [_line(a, b, aivec_total) for a, b in pairs]
    print(f"deadlock check: {len(pairs)} conflicting pair(s)", *lines, sep="\n")
    if pairs:
        trace.close_gaps(events, merge_gap)
        flagged = {id(task): task for pair in pairs for task in pair}
        for task in flagged.values():
            task["name"], task["dur"] = PREFIX + str(task["name"]), SHOWN
        trace.write(output_path, found | {"traceEvents": events})
    return lines


if __name__ == "__main__":
    parser = arguments(str(__doc__))
    parser.add_argument("--aivec-total", type=int, default=48)
    given = parser.parse_args()
    deadlock_check(
        given.input, given.output, given.aivec_total, given.merge_gap
    )
