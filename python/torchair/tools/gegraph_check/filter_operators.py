"""Keeps communication and what orders it; computing kernels are left out."""

from __future__ import annotations

import argparse

from . import trace


def filter_comm_ops(
    input_path: str, output_path: str, merge_gap: float = 0.0
) -> None:
    """Writes the trace without computing kernels. merge_gap: microseconds of
    idle time within a stream that are closed."""
    found = trace.read(input_path)
    kept = [
        task
        for task in trace.tasks(found)
        if trace.is_communication(task) or trace.is_synchronisation(task)
    ]
    trace.close_gaps(kept, merge_gap)
    trace.write(output_path, found | {"traceEvents": kept})


def arguments(help_text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=help_text)
    parser.add_argument("input", help="a Chrome trace")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--merge-gap", type=float, default=0.0)
    return parser


if __name__ == "__main__":
    given = arguments(str(__doc__)).parse_args()
    filter_comm_ops(given.input, given.output, given.merge_gap)
