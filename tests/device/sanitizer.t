#!/bin/sh
# compute-sanitizer finds as much in a program with every memory access instrumented (memtrace) as without egpu: nothing, or what is
# the program's own; and a fault planted in a program is still found. Programs: tests/programs by nvcc.
#
# TOOLS and NAMES narrow it, BOX is how many seconds one run may take (what is slower is skipped), JOBS how many run at once.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
: "${BOX:=25}"
: "${JOBS:=8}"
PATH=$PATH:/usr/local/cuda/bin
LD_LIBRARY_PATH=/usr/local/cuda/lib64:${LD_LIBRARY_PATH:-}
export EGPU_SOURCE EGPU_BUILD BOX PATH LD_LIBRARY_PATH
programs=$EGPU_SOURCE/tests/programs

# findings FILE: what the last summary says, nothing when there is none.
findings() {
	sed -n 's/^========= \(ERROR\|RACECHECK\) SUMMARY: *\([0-9]*\).*/\2/p' "$1" | tail -1
}

plain() {
	timeout "$BOX" compute-sanitizer --tool "$1" --print-limit 20 "$W/bin/$2" >"$w/native" 2>&1
}

probed() {
	timeout "$BOX" "$EGPU_BUILD/egpu" run --gpu -o "$w/report" memtrace -- compute-sanitizer --tool "$1" --print-limit 20 "$W/bin/$2" >"$w/ours" 2>&1
}

one() { # one TOOL NAME: "ok", "not ok" or "skip", and what was seen
	w=$W/$1-$2 # in memory: maps of a session on a disk cannot be pinned
	mkdir -p "$w"
	EGPU_DIR=$w EGPU_CACHE=$w/cache
	export EGPU_DIR EGPU_CACHE
	plain "$1" "$2"
	probed "$1" "$2"
	n=$(findings "$w/native") o=$(findings "$w/ours") again=0
	# The tool finds something in some runs only (in a conditional graph of its own 9 of 16): what egpu causes is there each time.
	while [ "$2" != bad ] && [ "${o:-0}" -gt "${n:-0}" ] && [ $((again += 1)) -le 4 ]; do
		plain "$1" "$2"
		probed "$1" "$2"
		more=$(findings "$w/native") less=$(findings "$w/ours")
		[ "${more:-0}" -le "$n" ] || n=$more
		[ "${less:-$o}" -ge "$o" ] || o=$less
	done
	coverage=$(sed -n 's/^coverage: //p' "$w/report" 2>/dev/null | cut -c 1-70)
	said="$1 $2: ${n:-no end} without, ${o:-no end} with; $coverage"
	if [ -z "$n" ] || [ -z "$o" ]; then
		echo "skip $said"
	elif [ "$2" = bad ]; then
		[ "$o" -gt 0 ] && echo "ok $1: the planted fault is found; $coverage" || echo "not ok $said"
	elif [ "$o" -gt "$n" ] || grep -q ' [1-9][0-9]* wrong' "$w/ours" || { [ "$n" = 0 ] && ! grep -q ' 0 wrong' "$w/ours"; }; then
		printf '%s\n' "not ok $said" "$(grep '^=========' "$w/ours" | head -25 | sed 's/^/#    /')"
	else
		echo "ok $said"
	fi
	[ -z "${SANITIZER_LOGS:-}" ] || head -c 20000 "$w/ours" >"$SANITIZER_LOGS/$1-$2.txt"
	rm -rf "$w"
}

if [ "${1:-}" = --one ]; then
	printf '%s\n' "$(one "$2" "$3")"
	exit 0
fi
command -v compute-sanitizer >/dev/null && command -v nvcc >/dev/null || { echo "1..0 # skip no compute-sanitizer and nvcc"; exit 0; }
W=$(mktemp -d /dev/shm/egpu-sanitizer.XXXXXX)
export W
trap 'rm -rf "$W"' EXIT
mkdir "$W/bin"
cat >"$W/bad.cu" <<'C'
#include <cstdio>
__global__ void bad(int *p, int n) { p[threadIdx.x < n ? threadIdx.x : n + 4] = 1; }
int main() { int *p; cudaMalloc(&p, 100 * 4); bad<<<1, 128>>>(p, 100); cudaDeviceSynchronize(); puts("bad: 1 checked, 0 wrong"); }
C
for s in "$W/bad.cu" "$programs"/*.cu "$programs"/nvcc/*.cu; do
	n=$(basename "$s" .cu)
	[ -z "${NAMES:-}" ] || case " bad $NAMES " in *" $n "*) ;; *) continue ;; esac
	echo "$s $W/bin/$n"
done | xargs -P "$(nproc)" -L 1 "$programs/build-nvcc" nvcc >"$W/build" 2>&1
echo "# $(ls "$W/bin" | wc -l) programs built"
{
	for n in bad $(cd "$W/bin" && ls | grep -vx bad); do echo "memcheck $n"; done
	for t in racecheck synccheck initcheck; do
		for n in ${NAMES:-reduction scan transpose matmul softmax graphs}; do [ -x "$W/bin/$n" ] && echo "$t $n"; done
	done
} | grep -E "^(${TOOLS:-memcheck|racecheck|synccheck|initcheck}) " | xargs -P "$JOBS" -L 1 "$0" --one >"$W/said"
awk '/^skip / { $1 = "ok"; print "ok " ++n " - " substr($0, 4) " # skip too slow"; next }
	/^ok / { print "ok " ++n " - " substr($0, 4); next } /^not ok / { print "not ok " ++n " - " substr($0, 8); next } { print }
	END { print "1.." n }' "$W/said"
