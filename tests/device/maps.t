#!/bin/sh
# 10^8 operations on hash maps of every kind from all multiprocessors, on tables of a thousand keys and of a hundred thousand.
# EGPU_ON=--softgpu EGPU_MAPS_THREADS=20000 tries it without a GPU, in minutes, where the larger tables do not fill.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_ON:=--gpu}"
. "$EGPU_SOURCE/tests/cli/lib.sh"
. "$EGPU_SOURCE/tests/cli/maps.sh"

threads=${EGPU_MAPS_THREADS:-2097152}
for scale in 1 100; do
	start=$(date +%s%N)
	run "$egpu" run "$EGPU_ON" --set rounds=4 --json="$tmp/json" -o "$tmp/report" "$EGPU_BUILD/tests/device/maps_$scale.bpf.o" -- "$samples/vecadd" "$threads"
	ms=$((($(date +%s%N) - start) / 1000000))
	exact "tables x $scale" "$scale"
	operations=$(tail -1 "$tmp/checks" | cut -f1)
	is "$((operations >= 48 * threads))" 1 "tables x $scale: all were done"
	echo "# tables x $scale: $operations operations, $ms ms with all around them"
	[ -z "$OUT" ] || { cp "$tmp/json" "$OUT/maps_$scale.json"; cp "$tmp/report" "$OUT/maps_$scale.txt"; cp "$tmp/err" "$OUT/maps_$scale.err"; }
done
finish
