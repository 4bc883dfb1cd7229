"""tools/run_tests.py: where it finds the compiler of CUDA C, what it counts."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "tools" / "run_tests.py"
spec = importlib.util.spec_from_file_location("run_tests", PATH)
assert spec is not None and spec.loader is not None
run_tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_tests)


def put(folder, name):
    path = folder / "nvidia" / name
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_newest_nvrtc_of_the_packages(tmp_path):
    assert run_tests.nvrtc(tmp_path) == ""
    put(tmp_path, "cuda_nvrtc/lib/libnvrtc.so.12")
    new = put(tmp_path, "cu13/lib/libnvrtc.so.13")
    (Path(new).parent / "libnvrtc-builtins.so.13.0").touch()
    (Path(new).parent / "libnvrtc.alt.so.13").touch()
    assert run_tests.nvrtc(tmp_path) == new


# ---- pytest in several processes --------------------------------------------

PASSES = (
    "import pytest\n@pytest.mark.parametrize('i', range(9))\ndef test(i):\n"
)
FILES = {
    "test_many.py": PASSES + "    pass\n",
    "test_fails.py": "def test_a():\n    assert 1 == 2\ndef test_b(): pass\n",
    "test_skips.py": "import pytest\ndef test(): pytest.skip('not here')\n",
    "test_lost.py": "import nothing_of_this_name\n",
}
CRASH = "import os, signal\ndef test(): os.kill(os.getpid(), signal.SIGSEGV)\n"
AT_EXIT = "import atexit, os\ndef test(): atexit.register(os._exit, 3)\n"


def runner(folder, files, jobs=2):
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, PATH, f"--jobs={jobs}", "--pytest", folder]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=600
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_test_counts_once(tmp_path, jobs):
    code, text = runner(tmp_path, FILES, jobs)
    assert code == 1
    assert text.splitlines()[-1] == "10 passed, 2 failed"
    assert text.count("assert 1 == 2") and "nothing_of_this_name" in text


def test_all_pass(tmp_path):
    code, text = runner(tmp_path, {"test_many.py": FILES["test_many.py"]})
    assert (code, text.splitlines()[-1]) == (0, "9 passed, 0 failed")


def test_the_tally_is_not_what_tests_write(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_TALLY", str(tmp_path / "tally"))
    reads = "import os\ndef test(): assert 'TEST_TALLY' not in os.environ\n"
    assert runner(tmp_path, {"test_reads.py": reads})[0] == 0
    assert (tmp_path / "tally").read_text() == "1 0\n"


def test_files_of_another_process_lie_between(tmp_path):
    """Its folder's fixtures end before a file of another folder begins."""
    for name in ("a/test_1.py", "a/test_2.py", "b/test_3.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("def test(): pass\n")
    share = tmp_path / "share"
    share.mkdir()
    taken = str(tmp_path / "a/test_2.py").encode()
    (share / hashlib.sha1(taken).hexdigest()).touch()
    command = [sys.executable, PATH.parent / "pytest_share.py", share, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "2 passed" in done.stdout and done.returncode == 0, done.stdout


@pytest.mark.parametrize("crash", [CRASH, AT_EXIT])
def test_a_process_that_crashes_fails(tmp_path, crash):
    files = {"test_crash.py": crash, "test_many.py": FILES["test_many.py"]}
    code, text = runner(tmp_path, files)
    assert code == 1
    assert text.splitlines()[-1].endswith(" passed, 1 failed")
    assert "exit status" in text


HANGS = """
import subprocess, sys
def hangs():  # with a child that has the pipe, too
    subprocess.run([sys.executable, "-c", "import time; time.sleep(900)"])
hangs()
"""


def test_a_process_that_hangs_is_ended_and_says_where(capsys):
    command = [sys.executable, "-X", "faulthandler", "-c", HANGS]
    assert run_tests.run("sleeper", command, silence=4) == (0, 1)
    text = capsys.readouterr().out
    assert "── sleeper" in text and "in hangs" in text
    assert "killed: it printed nothing for 4 s" in text


def test_tests_may_run_under_an_emulator(tmp_path):
    info = tmp_path / "meson-info"
    info.mkdir()
    tests = [{"name": "ir", "cmd": ["/ir", "a.txt"]}, {"name": "b", "cmd": []}]
    (info / "intro-tests.json").write_text(json.dumps(tests))
    found = list(run_tests.c_tests(tmp_path, ["ir"], "qemu -L '/a b'"))
    command = ["qemu", "-L", "/a b", "/ir", "a.txt"]
    assert found == [("ir", command, tmp_path)]
    assert next(run_tests.c_tests(tmp_path, None))[1] == ["/ir", "a.txt"]


def test_processes_of_pytest():
    gigabyte = 1 << 30
    assert run_tests.pytest_count(64, 500 * gigabyte) == 8
    assert run_tests.pytest_count(64, 7 * gigabyte) == 3
    assert run_tests.pytest_count(2, 20 * gigabyte) == 2
    assert run_tests.pytest_count(4, gigabyte) == 1
    assert 0 < run_tests.free_memory() < 1 << 50
