"""tools/run_tests.py: where it finds the compiler of CUDA C."""

import importlib.util
from pathlib import Path

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
