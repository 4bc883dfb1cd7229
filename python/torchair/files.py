"""Names and permissions of what is written for people to read."""

from __future__ import annotations

import os
import warnings
from datetime import UTC, datetime
from typing import BinaryIO

_FOLDER, _FILE = 0o750, 0o640


def ranks() -> tuple[int, int]:
    """(number of processes, this one's rank)"""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size(), dist.get_rank()
    return 1, 0


def rank_folder(root: str) -> str:
    """worldsize<W>_global_rank<R>, made where it does not exist."""
    world, rank = ranks()
    path = os.path.join(root, f"worldsize{world}_global_rank{rank}")
    make_folder(path)
    return path


def cache_folder(name: str, what: str) -> str | None:
    """Folder `name` of TORCHAIR_CACHE_DIR (default ~/.cache/torchair), made
    where it does not exist; None: nothing is to be kept, or it cannot be, of
    which `what` ("kernels are") is warned."""
    asked = os.environ.get("TORCHAIR_CACHE_DIR")
    if asked == "":
        return None
    root = asked or os.path.expanduser("~/.cache/torchair")
    folder = os.path.join(root, name) if name else root
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as why:
        warnings.warn(
            f"{what} not kept: {why}; set TORCHAIR_CACHE_DIR to a folder that "
            'can be written, or to "" for none',
            stacklevel=2,
        )
        return None
    return folder


def now() -> str:
    """UTC, down to the microsecond, digits only."""
    return datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")


def mark() -> str:
    """Of this process and moment, for names of files."""
    return f"rank_{ranks()[1]}_pid_{os.getpid()}_ts_{now()}"


def make_folder(path: str) -> None:
    os.makedirs(path, mode=_FOLDER, exist_ok=True)


def write(path: str, text: str, encoding: str = "utf-8") -> None:
    """A file of text, as `opened`."""
    with opened(path) as file:
        file.write(text.encode(encoding))


def opened(path: str) -> BinaryIO:
    """A new file that others cannot read, in a folder that is made if need be.
    RuntimeError where the path is a symbolic link: what it points to is not
    overwritten."""
    make_folder(os.path.dirname(os.path.abspath(path)))
    if os.path.islink(path):
        raise RuntimeError(
            f"{path} is a symbolic link; remove it, or choose another folder"
        )
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, _FILE), "wb")
