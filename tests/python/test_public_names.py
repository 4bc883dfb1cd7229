"""docs/names.md: every public name has a row, is there, and has a test that
is there."""

import importlib
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import torchair
from torchair import options

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "python"
sys.path.insert(0, str(ROOT / "tools"))
gen_docs = importlib.import_module("gen_docs")
sys.path.pop(0)
SECTIONS = gen_docs.name_sections()
ROWS = [row for rows in SECTIONS.values() for row in rows]
RESOLVE = """
import importlib, sys
import torch, torch_npu, torchair

def find(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
            break
        except ImportError:
            pass
    for part in parts[cut:]:
        found = getattr(found, part)

for name in sys.argv[1:]:
    try:
        find(name)
    except Exception:
        print(name)
"""


def absent(names):
    """Those of the names that cannot be imported beside torch_npu, in a
    process of its own: registering the device is for good."""
    out = subprocess.run(
        [sys.executable, "-c", RESOLVE, *names],
        check=True,
        capture_output=True,
        text=True,
        env=_environment(),
    ).stdout
    return set(out.split())


def _environment():
    import os

    import torchair

    where = Path(torchair.__file__).resolve().parent
    paths = [str(where.parent), str(where / "_packages")]
    given = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, given])}


def test_every_row_has_a_test_or_says_why_not():
    for name, where, test in ROWS:
        assert name, "a row without a name"
        assert re.fullmatch(r"\w+\.py::test_\w+|not here yet: .+", test), name
        if where:
            assert (ROOT / "python" / where).exists(), where


@pytest.mark.parametrize("file", sorted({r[2].split("::")[0] for r in ROWS}))
def test_every_test_is_there(file):
    if file.startswith("not here"):
        return
    tests = re.findall(r"^def (test_\w+)", (TESTS / file).read_text(), re.M)
    for name, _, test in ROWS:
        if test.startswith(f"{file}::"):
            assert test.split("::")[1] in tests, f"{name}: no {test}"


def test_names_are_there():
    dotted = {r[0]: r for r in ROWS if r[0].startswith("torch")}
    gone = absent(dotted)
    missing = {n for n, r in dotted.items() if gen_docs.is_missing(r)}
    assert gone <= missing, f"not there: {sorted(gone - missing)}"
    for name in sorted(missing - gone):
        warnings.warn(
            f"{name} is here now: tools/public_names.txt can name its test",
            stacklevel=1,
        )


@pytest.mark.parametrize("name", torchair._HOME)
def test_no_module_hides_a_name(name):
    """An import of a module sets its name in the package."""
    assert importlib.util.find_spec(f"torchair.{name}") is None


def test_options_are_all_there():
    listed = [row[0] for row in SECTIONS["Options of CompilerConfig"]]
    assert sorted(listed) == sorted(row.path for row in options.OPTIONS)


def test_keys_of_npugraph_ex_are_all_there():
    listed = [row[0] for rows in SECTIONS.values() for row in rows]
    keys = {name[4:] for name in listed if name.startswith("key ")}
    assert keys == set(options.ALIASES)


def test_the_page_counts_what_is_missing():
    page = gen_docs.names(None)
    missing = sum(map(gen_docs.is_missing, ROWS))
    assert f"{missing} are not here yet" in page
    assert page.count("| not here yet") == missing
