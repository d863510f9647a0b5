#!/bin/sh
# tests/cli/extremes.t on the GPU: least and greatest values, bits and sums are exact there too.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
: "${EGPU_ON:=--gpu}"
EGPU_EXTREMES=$EGPU_BUILD/tests/device/extremes.bpf.o
export EGPU_SOURCE EGPU_BUILD EGPU_ON EGPU_EXTREMES
exec perl "$EGPU_SOURCE/tests/cli/extremes.t"
