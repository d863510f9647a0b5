#!/bin/sh
# tests/cli/adds.t on the GPU: programs that only add are exact there too.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
: "${EGPU_ON:=--gpu}"
EGPU_ADDS=$EGPU_BUILD/tests/device/adds.bpf.o
export EGPU_SOURCE EGPU_BUILD EGPU_ON EGPU_ADDS
exec perl "$EGPU_SOURCE/tests/cli/adds.t"
