"""CUDA C texts as C arrays: embed.py OUT.c NAME=FILE,FILE,... ...

The text of a name is its files, one after another, each in namespace `call`
and once in a program. Whole-line comments stay out of it. Where there is no
FILE.cuh, FILE.py has a function `text`.
"""

import runpy
import sys
from pathlib import Path


def source_of(path):
    if path.exists():
        return path.read_text()
    return runpy.run_path(str(path.with_suffix(".py")))["text"]()


def text_of(file):
    guard = f"CALL_{Path(file).stem.upper()}"
    lines = source_of(Path(file)).splitlines()
    code = [x for x in lines if not x.lstrip().startswith("//")]
    head = [f"#ifndef {guard}", f"#define {guard}", "namespace call {"]
    return "\n".join([*head, *code, "}", "#endif", ""])


def array_of(name, text):
    data = text.encode("ascii") + b"\0"
    rows = [data[i : i + 20] for i in range(0, len(data), 20)]
    body = "\n".join("    " + ", ".join(map(str, row)) + "," for row in rows)
    return f"const char kern_text_{name}[] = {{\n{body}\n}};\n"


def main(out, *entries):
    parts = ['#include "driver/cuda/kern.h"\n']
    for entry in entries:
        name, files = entry.split("=")
        parts.append(array_of(name, "".join(map(text_of, files.split(",")))))
    Path(out).write_text("\n".join(parts))


main(*sys.argv[1:])
