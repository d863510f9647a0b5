#!/bin/sh
# nvcc-built programs under memtrace on the real driver: counts exact, results identical to those of the driver's own
# compilation of the unprobed PTX (CUDA_FORCE_PTX_JIT=1).
p=$EGPU_BUILD/tests/device/programs
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
ok() { # ok STATUS DESCRIPTION
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # skip $2"
}

try() { # try NAME COMMAND...
	name=$1
	shift
	if [ ! -x "$1" ]; then
		skip "$name" "no nvcc to build it"
		return
	fi
	rm -f "$tmp"/*
	CUDA_FORCE_PTX_JIT=$jit timeout 120 "$@" >"$tmp/plain" 2>"$tmp/plain.err"
	ok $? "$name: runs without egpu"
	EXPECT=$tmp/expect timeout 120 "$EGPU_BUILD/egpu" run --gpu --json="$tmp/json" -o "$tmp/report" memtrace -- "$@" \
		>"$tmp/probed" 2>"$tmp/probed.err"
	ok $? "$name: runs under memtrace"
	sed 's/^/# /' "$tmp/probed.err"
	cmp -s "$tmp/plain" "$tmp/probed"
	ok $? "$name: output identical to the unprobed PTX"
	[ -f "$tmp/expect" ] || : >"$tmp/expect"
	"$EGPU_BUILD/tests/device/check_counts" "$tmp/json" "$tmp/expect"
	ok $? "$name: counts exact ($(wc -l <"$tmp/expect") expectations)"
	sed 's/^/# /' "$tmp/report"
}

jit=1
try mangled "$p/mangled"
try mangled-shared-cudart "$p/mangled_shared"
try globals "$p/globals"
try dynamic-shared-96k "$p/dynshared"
try block-of-1024 "$p/block1024"
try cooperative "$p/coop"
try spin-pair "$p/spinpair"
try separate-compilation "$p/globals_rdc"
try same-name-two-modules "$p/samename" "$p/samename_a.fatbin" "$p/samename_b.fatbin"
# Its PTX is in the cubin's debug section only, which the driver cannot be made to compile: nvcc's own code is the measure.
jit=0
try lineinfo-maxrregcount "$p/block1024_lineinfo"
echo "1..$n"
