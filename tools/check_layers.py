"""Layers point down only: which directory may include which.

A file of src/<layer> includes headers of its own layer and of the layers
listed for it, and the public headers. Standard and system headers are free.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = {"air.h", "air_kernel.h", "air_driver.h"}
TABLES = {
    "air_calls.def",
    "air_dtypes.def",
    "air_prims.def",
    "air_status.def",
    "air_without.def",
}

# layer: what it may include besides itself
MAY = {
    "base": set(),
    "ir": {"base"},
    "pass": {"ir", "base"},
    "lower": {"pass", "ir", "base"},
    "codegen": {"lower", "ir", "base"},
    "driver": {"base"},
    "driver/null": {"driver", "base"},
    "driver/ref": {"driver", "ir", "base"},
    # cpu takes the kernels of ref where it has none of its own
    "driver/cpu": {"driver", "driver/ref", "base"},
    "driver/cuda": {"driver", "base"},
    "driver/wrap": {"base", "driver"},
    "exec": {"driver", "codegen", "lower", "pass", "ir", "base"},
    "api": {"exec", "driver", "codegen", "lower", "pass", "ir", "base"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def layer_of(path):
    """The layer of a file or directory relative to src/."""
    parts = path.parts
    if parts[0] == "driver" and len(parts) > 2:
        return f"driver/{parts[1]}"
    return parts[0]


def find_target(including, name):
    """The layer a quoted include leads to; None: a public header."""
    if name in PUBLIC | TABLES:
        return None
    for base in (ROOT / "src", including.parent):
        if (base / name).exists():
            target = (base / name).resolve().relative_to(ROOT / "src")
            return layer_of(target)
    return f"? ({name} is not in src/ or include/)"


def check_file(path):
    own = layer_of(path.relative_to(ROOT / "src"))
    if own not in MAY:
        yield f"{path.relative_to(ROOT)}: no rule for layer {own}"
        return
    for name in INCLUDE.findall(path.read_text()):
        target = find_target(path, name)
        if target is not None and target != own and target not in MAY[own]:
            yield (
                f"{path.relative_to(ROOT)}: {own} may not include "
                f"{name} ({target})"
            )


def check_public():
    """The headers of applications include nothing of src/."""
    for path in sorted((ROOT / "include").glob("*.h")):
        for name in INCLUDE.findall(path.read_text()):
            if name not in PUBLIC | TABLES:
                yield f"include/{path.name}: includes {name}"


def check_malloc():
    """Only src/base/alloc*.c names the C library's allocator."""
    word = re.compile(r"(?<![\w.>])(malloc|calloc|realloc|free|strdup)\s*\(")
    comment = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.S)
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        if path.parent.name == "base" and path.name.startswith("alloc"):
            continue
        for found in set(word.findall(comment.sub("", path.read_text()))):
            yield f"{path.relative_to(ROOT)}: names {found}()"


def main():
    problems = [*check_public(), *check_malloc()]
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".c", ".h", ".def"):
            problems += check_file(path)
    print("\n".join(problems) or "layers: fine")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
