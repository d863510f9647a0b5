#!/bin/sh
# Each header can be read, and compiled, without another before it.
cd "${EGPU_SOURCE:-$(dirname "$0")/../..}" || exit 1
command -v cc >/dev/null || { echo "1..0 # skip no C compiler"; exit 0; }
echo 1..1
# What callers of the driver say before they include its calls (src/cuda/calls.h).
errors=$(cc -std=gnu11 -D_GNU_SOURCE -DEGPU_CUDA_NO_ALIASES= -fsyntax-only -I. -Isrc -Iinclude -x c src/*/*.h include/egpu/cuda.h \
	include/egpu/access.h tools/tool.h 2>&1 | grep 'error:')
if [ -z "$errors" ]; then
	echo "ok 1 - all headers stand alone"
else
	echo "not ok 1 - all headers stand alone"
	echo "$errors" | sed 's/^/# /'
	exit 1
fi
