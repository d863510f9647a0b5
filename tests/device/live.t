#!/bin/sh
# tests/dynamic/live and live_native on the GPU: the kernel that leaves no room, with programs at an access of one lane, in both tiers. After
# gone no run may come. (The other kinds take minutes: run those two with --gpu.)
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
export EGPU_SOURCE EGPU_BUILD
/sbin/ldconfig -p | grep -q 'libcuda\.so\.1 ' || { echo "1..0 # SKIP no CUDA driver"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# part NAME COMMAND...: its lines, with the name; without a plan it did not come to its end.
part() {
	name=$1
	shift
	timeout 60 "$@" > "$work/out" 2>&1
	echo "# status $?" >> "$work/out"
	sed -n "s/^\(not ok\|ok\) [0-9]* - /\1 - $name: /p; s/^#/#/p" "$work/out" >> "$work/all"
	grep -q '^1\.\.[1-9]' "$work/out" || { echo "not ok - $name: comes to its end"; tail -5 "$work/out" | sed 's/^/# /'; } >> "$work/all"
}
part native "$EGPU_BUILD/tests/dynamic/dynamic_live_native" --gpu --only full
for tier in native interpreted; do
	EGPU_LIVE_TIER=$tier part "live, $tier" "$EGPU_BUILD/tests/dynamic/dynamic_live" --gpu --only full
done
awk '/^(not )?ok/ { n++; sub(/ok/, "ok " n); bad += /^not/ } { print } END { print "1.." n; exit bad != 0 }' "$work/all"
