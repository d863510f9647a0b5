#!/bin/sh
# The tests of the command that say what a run must show, on the real driver instead of softgpu.
export EGPU_ON=--gpu
n=0
for t in memtrace run; do
	n=$((n + 1))
	if [ $t = run ] && ! command -v clang >/dev/null; then
		echo "ok $n - tests/cli/run.t # skip no clang to compile its probes"
		continue
	fi
	if sh "$EGPU_SOURCE/tests/cli/$t.t" >"${TMPDIR:-/tmp}/egpu-$t.$$" 2>&1; then
		echo "ok $n - tests/cli/$t.t on the GPU: $(grep -c '^ok' "${TMPDIR:-/tmp}/egpu-$t.$$") checks"
	else
		echo "not ok $n - tests/cli/$t.t on the GPU"
		grep -A8 '^not ok' "${TMPDIR:-/tmp}/egpu-$t.$$" | sed 's/^/# /'
	fi
	rm -f "${TMPDIR:-/tmp}/egpu-$t.$$"
done
echo "1..$n"
