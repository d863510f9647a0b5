#!/bin/sh
# Complete CUDA programs on softgpu through our runtime library. Each verifies its own results; under memtrace, which
# instruments every memory access, it prints the same, and softgpu's checker finds no race in it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
programs=$EGPU_BUILD/tests/programs
[ -x "$programs/reduction" ] || skip_all "this build has no programs (sanitizers)"

try() { # try NAME
	status=0
	LD_LIBRARY_PATH=$EGPU_BUILD/src/softgpu timeout 60 "$programs/$1" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	cp "$tmp/out" "$tmp/plain"
	[ $status = 0 ] && tail -1 "$tmp/plain" | grep -Eq ': [0-9]+ checked, 0 wrong$'
	ok $? "$1 verifies its results"
	status=0
	timeout 60 "$egpu" run --softgpu -o "$tmp/report" memtrace -- "$programs/$1" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	[ $status = 0 ] && cmp -s "$tmp/plain" "$tmp/out" && grep -q '^coverage:' "$tmp/report"
	ok $? "$1 prints the same with every memory access instrumented"
	status=0
	EGPU_SOFTGPU=check LD_LIBRARY_PATH=$EGPU_BUILD/src/softgpu timeout 60 "$programs/$1" >"$tmp/out" 2>"$tmp/err" </dev/null || status=$?
	[ $status = 0 ] && cmp -s "$tmp/plain" "$tmp/out" && [ ! -s "$tmp/err" ]
	ok $? "$1 has nothing that the checker complains of"
}

for p in "$EGPU_SOURCE"/tests/programs/*.cu; do
	name=$(basename "$p" .cu)
	try "$name"
done
missing=0
for p in conditional cooperative perthread symbols texture wmma graphs heap recursion streams softmax transpose; do
	if [ -x "$programs/nvcc-$p" ]; then
		try "nvcc-$p"
	else
		missing=$((missing + 1))
	fi
done
[ $missing = 0 ] || skip "no nvcc on this machine" "$missing programs that only nvcc compiles"


# Several devices share the work of the one that knows about them.
for n in 2 4; do
	EGPU_SOFTGPU=devices=$n LD_LIBRARY_PATH=$EGPU_BUILD/src/softgpu timeout 60 "$programs/multidevice" >"$tmp/out" 2>"$tmp/err"
	is "$(cat "$tmp/out")" 'multidevice: 16000 checked, 0 wrong' "multidevice on $n devices"
done
finish
