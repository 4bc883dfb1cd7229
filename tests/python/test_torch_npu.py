"""The package torch_npu: the cases of npu_cases_*.py.

Registering the device is for good, so each of those files is run by a pytest
of its own, in a process of its own; here every case is a test.
"""

import functools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import torchair

HERE = Path(__file__).parent
PACKAGES = Path(torchair.__file__).resolve().parent.parent
FILES = sorted(HERE.glob("npu_cases_*.py"))
CASES = [
    (file.name, name)
    for file in FILES
    for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)
]


@functools.cache
def results(file, folder):
    """case -> "" or what it failed with; "" -> output of the whole run."""
    report = Path(folder) / f"{file}.xml"
    path = [str(PACKAGES), str(HERE), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [f"--junitxml={report}", str(HERE / file)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    found = {"": f"{run.stdout[-4000:]}\n{run.stderr[-4000:]}"}
    if not report.exists():
        return found
    for case in ET.parse(report).iter("testcase"):
        name = case.get("name").partition("[")[0]
        bad = [c for c in case if c.tag in ("failure", "error")]
        text = "\n".join(c.text or c.get("message") for c in bad)
        found[name] = found.get(name, "") + text
    return found


@pytest.mark.parametrize(("file", "name"), CASES)
def test_case(file, name, tmp_path_factory):
    found = results(file, str(tmp_path_factory.getbasetemp()))
    assert name in found, f"no result of {name}: {found['']}"
    assert not found[name], found[name]
