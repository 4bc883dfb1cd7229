#!/bin/sh
# newest.sh: the Python tests in a Debian sid of today, with its gcc and Python
# and the newest torch.
#
#   tools/newest.sh FOLDER [pytest's arguments]
#
# As root, with debootstrap; FOLDER takes 8 GB and is used again. PYTHON and
# TORCH say which, as PYTHON=python3.15 TORCH=torch==2.15.0.
set -eu
[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(realpath -m "$1")
shift
[ $# -gt 0 ] || set -- tests/python
python=${PYTHON:-python3.14}
here=$(cd "$(dirname "$0")/.." && pwd)

[ -d "$root/usr" ] || debootstrap --variant=minbase \
    --include=ca-certificates,g++,git,libc6-dev sid "$root"
cp /etc/resolv.conf "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf "$root/source"
git clone -q "$here" "$root/source"

# Mounted for these processes alone: nothing is left in FOLDER, however they end.
unshare --mount sh -eu -c '
    mount --bind /proc "$1/proc"
    mount --bind /dev "$1/dev"
    exec chroot "$@"
' sh "$root" env -i HOME=/root PATH="/$python/bin:/usr/bin:/bin:/usr/sbin" \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt sh -eu -c '
    python=$1 torch=$2
    shift 2
    apt-get install -y -q "$python" "$python-dev" "$python-venv" >/dev/null
    [ -d "/$python" ] || "$python" -m venv "/$python"
    pip install -q "$torch" numpy pytest expecttest hypothesis safetensors
    pip install -q /source /source/packages/torch_npu
    cd /source
    exec python -m pytest -q -p no:cacheprovider "$@"
' sh "$python" "${TORCH:-torch}" "$@"
