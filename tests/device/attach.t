#!/bin/sh
# tests/dynamic/attach.t on the GPU: attaching to programs that run.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
library=$(/sbin/ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -1)
[ -n "$library" ] || { echo "1..0 # SKIP no CUDA driver"; exit 0; }
EGPU_DRIVER_DIR=${library%/*}:/usr/local/cuda/lib64
export EGPU_SOURCE EGPU_BUILD EGPU_DRIVER_DIR
exec bash "$EGPU_SOURCE/tests/dynamic/attach.t"
