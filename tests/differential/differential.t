#!/bin/sh
# softgpu against the recorded results of an H200, instruction by instruction (docs/softgpu.md, "Differential tests").
diff=${EGPU_BUILD:-build}/tests/differential/diff
data=${EGPU_SOURCE:-.}/tests/differential/h200.zst
if [ ! -r "$data" ]; then
	echo 1..1
	echo "ok 1 # skip no recorded results: $("$diff" --list | wc -l) instructions are not compared"
	exit 0
fi
exec "$diff" --driver "${EGPU_BUILD:-build}/src/softgpu/libcuda.so.1" --check "$data" 2>/dev/null
