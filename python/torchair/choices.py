"""Where the engine keeps what it measured: which matrix products are faster by
torch's library (src/driver/cpu/product/choice.h).

TORCHAIR_MEASURE: "0" measures nothing, a rule decides; "again" forgets what
was measured on all machines, once in this process; else what is not known is
measured when a program first has a product of its class, and in a second
process, as the first may have been disturbed.
TORCHAIR_CACHE_DIR: where `choices.txt` is; "": nothing is measured.
"""

from __future__ import annotations

import contextlib
import os

from . import files


def path() -> str | None:
    """ValueError where TORCHAIR_MEASURE is something else."""
    asked = os.environ.get("TORCHAIR_MEASURE", "")
    if asked not in ("", "0", "1", "again"):
        raise ValueError(
            f"TORCHAIR_MEASURE is {asked!r}; give 0 (nothing is measured), 1 "
            "(what is not known is) or again (what was measured is forgotten)"
        )
    if asked == "0":
        return None
    folder = files.cache_folder("", "measurements are")
    if folder is None:
        return None
    file = os.path.join(folder, "choices.txt")
    if asked == "again":
        with contextlib.suppress(OSError):
            os.unlink(file)
    return file
