#!/bin/sh
# 5 x 10^7 operations on queues and stacks from all multiprocessors, on maps of a thousand values and of a hundred thousand, and of three.
# EGPU_ON=--softgpu EGPU_QUEUES_THREADS=20000 tries it without a GPU.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_ON:=--gpu}"
. "$EGPU_SOURCE/tests/cli/lib.sh"
. "$EGPU_SOURCE/tests/cli/queues.sh"

threads=${EGPU_QUEUES_THREADS:-2097152}
for scale in 1 100; do
	start=$(date +%s%N)
	run "$egpu" run "$EGPU_ON" --set rounds=4 --json="$tmp/json" -o "$tmp/report" "$EGPU_BUILD/tests/device/queues_$scale.bpf.o" -- "$samples/vecadd" "$threads"
	ms=$((($(date +%s%N) - start) / 1000000))
	exact "maps x $scale"
	operations=$(tail -1 "$tmp/checks" | cut -f1)
	sed "s/^/# /" "$tmp/checks.err"
	is "$((operations >= 24 * threads))" 1 "maps x $scale: all were done"
	echo "# maps x $scale: $operations operations, $ms ms with all around them"
	[ -z "$OUT" ] || { cp "$tmp/report" "$OUT/queues_$scale.txt"; cp "$tmp/err" "$OUT/queues_$scale.err"; }
done
finish
