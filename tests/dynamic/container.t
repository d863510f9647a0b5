#!/bin/bash
# `egpu attach` from the host into a process that lives in mount and pid namespaces of its own: its session lies where it can
# see it, and it is known by the host's number. A controller that is killed there is noticed all the same.
. "$(dirname "$0")/../cli/lib.sh"
work=$tmp
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0
[ -n "$EGPU_SANITIZED" ] && { echo "1..0 # SKIP a sanitized agent cannot come into a program that is not"; exit 0; }
unshare --pid --mount --fork --mount-proc --propagation private true 2> /dev/null ||
	{ echo "1..0 # SKIP no namespaces of our own here (they take root)"; exit 0; }
probe=$EGPU_BUILD/tests/dynamic/count.bpf.o

LD_LIBRARY_PATH=${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu} EGPU_SOFTGPU_QUIET=1 unshare --pid --mount --fork --mount-proc --propagation private \
	sh -c 'mount -t tmpfs tmpfs /dev/shm; exec "$0" opened 4' "$EGPU_BUILD/tests/dynamic/target_plain" > "$work/out" 2>&1 &
outer=$!
for _ in $(seq 200); do grep -qs running "$work/out" && break; sleep 0.02; done
pid=$(cat /proc/$outer/task/$outer/children); pid=${pid%% *}
echo "$pid" > "$work/target.pid"
[ "$(sed -n 's/^NSpid:[[:space:]]*[0-9]*[[:space:]]*//p' /proc/$pid/status)" = 1 ]
ok $? "the process is number 1 where it lives"
# Of its directories, /tmp takes nothing: the next one has to do.
nsenter -t "$pid" -m sh -c 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp'; ok $? "its /tmp is read-only"

attach() { "$egpu" attach "$@" > "$work/err" 2>&1; }
whole() {
	launches=$(sed -n 's/^coverage: .* probed, \([0-9]*\) of [0-9]* launch.*/\1/p' "$work/err")
	threads=$(sed -n 's/^ *threads = \([0-9]*\)$/\1/p' "$work/err")
	[ -n "$launches" ] && [ "$launches" -gt 0 ] && [ "$threads" = $((launches * 256)) ]
}
for i in 1 2; do
	for seconds in 0.4 1 4; do attach --for $seconds -k fill "$pid" "$probe" && break; done; ok $? "attach $i"
	whole; ok $? "counts are exact"
done
ls /proc/$pid/root/dev/shm | grep -q '^egpu-'; ok $? "its session is in its own /dev/shm"
attach -d -k fill "$pid" "$probe"; ok $? "attach -d"
"$egpu" detach "$pid" > "$work/err" 2>&1; ok $? "egpu detach"
grep -q '1 link detached' "$work/err"; ok $? "finds it"

# Nobody but the agent itself can notice that this one is gone.
"$egpu" attach -k fill "$pid" "$probe" > "$work/err" 2>&1 & controller=$!
for _ in $(seq 100); do grep -qs attached "$work/err" && break; sleep 0.02; done
kill -9 $controller; wait $controller 2> /dev/null
session=$(echo /proc/$pid/root/dev/shm/egpu-*)
for _ in $(seq 150); do EGPU_DIR=${session%/*} "$egpu" link 2>&1 | grep -q " $pid " || break; sleep 0.02; done
! EGPU_DIR=${session%/*} "$egpu" link 2>&1 | grep -q " $pid "; ok $? "a probe whose controller was killed is detached"
kill -TERM "$pid"; wait $outer; ok $? "the program ended well"
grep -q 'wrong 0' "$work/out"; ok $? "its results were right"
rm -f "$work/target.pid"
echo "1..$test_count"
exit $test_failed
