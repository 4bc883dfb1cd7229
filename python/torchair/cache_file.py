"""The file of a compiled function: a JSON object and the bytes of tensors,
behind a checksum.

    torchair compiled_module 1\\n
    SHA-256 of what follows     32 bytes
    length of the JSON object    8 bytes, little-endian
    JSON object, then the bytes of its "tensors", one after the other

The object has Python byte code that loading runs, so a file is trusted only
where nobody but its owner can write: `why_not_trusted`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import stat
import tempfile
from typing import Any

import torch

from . import files

MAGIC = b"torchair compiled_module 1\n"
_MODE = 0o600
_DIGEST, _LENGTH = 32, 8


class Damaged(ValueError):
    """The file is not what was written."""


def write(
    path: str, content: dict[str, Any], tensors: list[torch.Tensor]
) -> None:
    """Replaces the file, so that a reader finds the old or the new one.
    OSError where it cannot be written."""
    write_private(path, packed(content, tensors))


def packed(content: dict[str, Any], tensors: list[torch.Tensor]) -> bytes:
    """The bytes of such a file."""
    content = content | {"tensors": [_type(t) for t in tensors]}
    text = json.dumps(content, separators=(",", ":")).encode()
    body = b"".join(
        [len(text).to_bytes(_LENGTH, "little"), text, *map(_bytes, tensors)]
    )
    return MAGIC + hashlib.sha256(body).digest() + body


def write_private(path: str, data: bytes) -> None:
    """A file that its owner alone can read and write. Where it cannot be
    written, no folder is there that was not before."""
    folder = os.path.dirname(os.path.abspath(path))
    there = _first_folder(folder)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _write_private(path, folder, data)
    except BaseException:
        _remove_empty(folder, there)
        raise


def _write_private(path: str, folder: str, data: bytes) -> None:
    number, made = tempfile.mkstemp(dir=folder)  # of mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def _first_folder(folder: str) -> str:
    """The lowest folder on the way there that exists."""
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return folder


def _remove_empty(folder: str, end: str) -> None:
    """The folder and those above it, below `end`, as far as they are empty."""
    while folder != end:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        folder = os.path.dirname(folder)


def read(path: str) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """What `write` was given. Damaged: it is something else, or another
    user's; OSError."""
    return unpacked(_trusted(path))


def unpacked(data: bytes) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """What `packed` was given. Damaged: it is something else."""
    body = memoryview(data)[len(MAGIC) + _DIGEST :]
    if not data.startswith(MAGIC):
        raise Damaged("it is no compiled module of this version")
    if hashlib.sha256(body).digest() != data[len(MAGIC) :][:_DIGEST]:
        raise Damaged("its checksum is wrong")
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    try:
        content = json.loads(bytes(body[_LENGTH:end]))
        return content, list(_tensors(content["tensors"], body[end:]))
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise Damaged(f"it is no compiled module: {wrong}") from None


def _type(t: torch.Tensor) -> list[Any]:
    return [str(t.dtype).removeprefix("torch."), list(t.shape)]


def _bytes(t: torch.Tensor) -> bytes:
    flat = t.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()


def _tensors(types: Any, data: memoryview) -> Any:
    at = 0
    for name, shape in types:
        dtype = getattr(torch, name)
        count = math.prod(shape)
        size = count * dtype.itemsize
        if at + size > len(data):
            raise ValueError("tensors are missing")
        part = bytearray(data[at : at + size])
        at += size
        made = (
            torch.frombuffer(part, dtype=dtype)
            if count
            else torch.empty(0, dtype=dtype)
        )
        yield made.reshape(shape)


# ---- the engine's result ----

# Beside the module: the graph as the engine's passes left it, and an index.
_INDEX = "graph_0.idx"


def write_graph(path: str, text: str) -> None:
    """For the compiled module at `path`. OSError."""
    folder = os.path.dirname(path)
    name = f"graph_0_{files.now()}.om"
    entry = {"cache_file_name": name, "graph_key": "0"}
    entry["var_desc_file_name"] = ""
    entry["digest"] = hashlib.sha256(text.encode()).hexdigest()
    write_private(os.path.join(folder, name), text.encode())
    index = json.dumps({"cache_file_list": [entry]}).encode()
    write_private(os.path.join(folder, _INDEX), index)


def read_graph(path: str) -> str:
    """The text that lies beside the compiled module at `path`; "" where there
    is none. Damaged: it is not what was written."""
    folder = os.path.dirname(path)
    index = os.path.join(folder, _INDEX)
    if not os.path.exists(index):
        return ""
    try:
        entry = json.loads(_trusted(index))["cache_file_list"][0]
        name = os.path.basename(entry["cache_file_name"])
        data = _trusted(os.path.join(folder, name))
        digest = entry["digest"]
    except (ValueError, KeyError, IndexError, TypeError) as wrong:
        raise Damaged(f"{_INDEX} is wrong: {wrong}") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise Damaged(f"{name} has another checksum than {_INDEX} says")
    return data.decode()


def _trusted(path: str) -> bytes:
    """Of the very file that was looked at: another may take its name."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as file:
        why = _why_not(os.fstat(number))
        if why:
            raise Damaged(f"{path}: {why}")
        return file.read()


def why_not_trusted(path: str) -> str:
    """Why the file may be another user's; "": it is our own."""
    return _why_not(os.lstat(path))


def _why_not(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_uid != os.geteuid():
        return f"its owner is user {found.st_uid}, not {os.geteuid()}"
    mode = stat.S_IMODE(found.st_mode)
    if mode != _MODE:
        return f"its mode is {mode:o}, it has to be {_MODE:o}"
    return ""


def remove(path: str) -> None:
    """The folder of the file, as far as we may."""
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
