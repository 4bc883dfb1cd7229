"""device_tests.py: failures are counted, a file without imports among them."""

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
FILES = {
    "conftest.py": 'def pytest_addoption(parser): parser.addoption("--device")',
    "test_broken.py": "import no_such_module",
    "test_fine.py": "def test_a(): pass\ndef test_b(): assert 0\n",
    "test_host.py": """
import pytest
@pytest.mark.skip(reason="of the CPU: why it's so")
@pytest.mark.parametrize("i", range(3))
def test_c(i): pass
""",
}


@pytest.fixture
def device_tests(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(TOOLS)
    import device_tests

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(device_tests, "TESTS", tmp_path)
    return device_tests


def run(device_tests, monkeypatch, tmp_path, *arguments):
    options = ["device_tests", "-j", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [*options, *arguments])
    with pytest.raises(SystemExit) as end:
        device_tests.main()
    return end.value.code


def test_failures(device_tests, monkeypatch, tmp_path, capsys):
    assert run(device_tests, monkeypatch, tmp_path) == 1
    said = capsys.readouterr().out
    assert "test_broken.py: 1 failed" in said
    assert "2 failed, 1 passed, 3 skipped" in said
    assert "3 skipped: of the CPU: why it's so\n" in said
    assert "\n    assert 0\n        test_b\n".replace("0", "#") in said
    assert "limit" not in said


def test_file_that_cannot_be_imported_alone(
    device_tests, monkeypatch, tmp_path
):
    assert run(device_tests, monkeypatch, tmp_path, "test_broken.py") == 1


def test_all_passed(device_tests, monkeypatch, tmp_path, capsys):
    (tmp_path / "test_fine.py").write_text("def test_a(): pass\n")
    assert run(device_tests, monkeypatch, tmp_path, "test_fine.py") == 0
    assert "1 passed" in capsys.readouterr().out
