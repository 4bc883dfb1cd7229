"""The command line of what a seed makes up: programs.py, networks.py."""

import sys
import time

import helpers
import torch


def main(what, text_of, check):
    """what: they are called; text_of: one of a seed; check: '' or how it
    differs from eager, None: eager cannot run it."""
    first = int(sys.argv[1])
    helpers.DEVICE = torch.device(*sys.argv[3:] or ["cpu"])
    if len(sys.argv) < 3:
        print(text_of(first), check(first), sep="\n")
        return
    end, seed, ran = time.monotonic() + float(sys.argv[2]), first, 0
    while time.monotonic() < end:
        said = check(seed)
        ran += said is not None
        seed += 1
        if said:
            print(said, flush=True)
    print(f"{ran} {what}, seeds {first} to {seed - 1}")
