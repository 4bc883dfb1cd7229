"""make check: everything about the sources that is not a test.

check.py --build DIR       check
check.py --fix             format the C and Python sources in place
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"
PYTHON_DIRS = ["python", "examples", "tests", "tools"]
PACKAGES = ["python/torchair", "python/torch_npu"]


def tracked(*patterns):
    """Files git knows, new ones included, ignored ones not."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    out = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return sorted(p for p in out.splitlines() if (ROOT / p).exists())


def tool(name):
    return str(Path(sys.executable).parent / name)


def run(*command):
    return subprocess.run(command, cwd=ROOT).returncode == 0


def c_files():
    return tracked("*.c", "*.h")


def check_format():
    return run(tool("clang-format"), "--dry-run", "-Werror", *c_files())


def check_ruff():
    ruff = tool("ruff")
    lint = run(ruff, "check", "--quiet", *PYTHON_DIRS)
    return run(ruff, "format", "--check", "--quiet", *PYTHON_DIRS) and lint


def check_mypy():
    return run(tool("mypy"), "--no-error-summary", *PACKAGES)


def check_symbols(build):
    """libair.so shows the functions of air.h and air_driver.h, no more."""
    libs = sorted(Path(build).glob("libair.so"))
    if not libs:
        print(f"no libair.so in {build}")
        return False
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(libs[0])],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = [line.split()[-1] for line in out.splitlines()]
    headers = "".join(p.read_text() for p in (ROOT / "include").glob("*.h"))
    wrong = [
        n for n in names if not n.startswith("air_") or f"{n}(" not in headers
    ]
    if wrong:
        print("exported, but not in include/: " + " ".join(wrong))
    missing = [n for n in declared(headers) if n not in names]
    if missing:
        print("in include/, but not exported: " + " ".join(missing))
    return not wrong and not missing


def declared(headers):
    """Functions marked AIR_API."""
    for part in headers.split("\nAIR_API ")[1:]:
        yield part.split("(")[0].split()[-1].lstrip("*")


def script(name, *args):
    return lambda: run(sys.executable, str(TOOLS / name), *args)


def fix():
    run(tool("clang-format"), "-i", *c_files())
    run(tool("ruff"), "check", "--quiet", "--fix", *PYTHON_DIRS)
    run(tool("ruff"), "format", "--quiet", *PYTHON_DIRS)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--fix", action="store_true")
    args = parser.parse_args()
    if args.fix:
        return fix()
    checks = {
        "format": check_format,
        "ruff": check_ruff,
        "mypy": check_mypy,
        "layers": script("check_layers.py"),
        "budgets": script("check_budget.py"),
        "symbols": lambda: check_symbols(args.build),
        "docs": script("gen_docs.py", "--check", "--build", args.build),
    }
    bad = []
    for name, check in checks.items():
        good = check()
        print(f"{'ok  ' if good else 'FAIL'}  {name}", flush=True)
        if not good:
            bad.append(name)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
