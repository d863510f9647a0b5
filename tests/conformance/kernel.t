#!/bin/sh
# Our verdicts beside those of the running kernel's verifier. `kernel -s SEED -n COUNT` asks about more programs.
data=${EGPU_SOURCE:-.}/../shared/conformance/verdicts.jsonl
kernel=${EGPU_BUILD:-build}/tests/conformance/kernel
echo 1..2
skip() {
	echo "ok 1 - every disagreement is explained # skip $1"
	echo "ok 2 - both accept and both refuse # skip $1"
	exit 0
}
# Verdicts change from version to version: docs/verifier.md explains those of 6.18. Before 6.6 instructions of cpu v4 are unknown.
version=$(uname -r | sed -n 's/^\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
# shellcheck disable=SC2086
set -- ${version:-0 0}
[ $(($1 * 1000 + $2)) -ge 6006 ] || skip "$(uname -s) $(uname -r) is older than 6.6: 220 programs"
[ -r "$data" ] || data=
# A quarter of the recorded cases; all of them, and more programs, with EGPU_KERNEL_EVERY=1 EGPU_KERNEL_PROGRAMS=3000.
out=$("$kernel" -n "${EGPU_KERNEL_PROGRAMS:-220}" -e "${EGPU_KERNEL_EVERY:-4}" ${data:+"$data"})
status=$?
last=$(echo "$out" | tail -n 1)
[ $status = 77 ] && skip "$last: 220 programs"
echo "$out" | sed 's/^/# /'
case $status$last in
0*', unexplained 0,'*) echo "ok 1 - every disagreement is explained ($last)" ;;
*) echo "not ok 1 - every disagreement is explained (status $status: $last)" ;;
esac
case $last in
'agree 0 '* | *'(0 accepted)'* | '') echo "not ok 2 - both accept and both refuse" ;;
*) echo "ok 2 - both accept and both refuse" ;;
esac
