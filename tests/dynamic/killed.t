#!/bin/bash
# A controller that dies at any of its system calls, in egpu attach or in egpu detach, leaves the process unharmed: the next
# attach counts whole launches, what was attached is detached, the results stay right. KILLED_POINTS: at how many calls of each (6).
. "$(dirname "$0")/../cli/lib.sh"
all=$tmp
trap 'kill $(cat "$all"/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$all"' EXIT
export ASAN_OPTIONS=detect_leaks=0
[ -n "$EGPU_SANITIZED" ] && { echo "1..0 # SKIP a sanitized agent cannot come into a program that is not"; exit 0; }
probe=$EGPU_BUILD/tests/dynamic/count.bpf.o
killed=$EGPU_BUILD/tests/dynamic/killed
points=${KILLED_POINTS:-6}

start() { # NAME: a target, its number in $pid
	LD_LIBRARY_PATH=${EGPU_DRIVER_DIR:-$EGPU_BUILD/src/softgpu} EGPU_SOFTGPU_QUIET=1 "$EGPU_BUILD/tests/dynamic/target_plain" "$([ $((RANDOM % 2)) = 0 ] && echo linked || echo opened)" \
		> "$all/$1.out" 2>&1 &
	pid=$!
	echo $pid > "$all/$1.pid"
	for _ in $(seq 400); do grep -qs running "$all/$1.out" && break; sleep 0.02; done
}
whole() { # REPORT
	launches=$(sed -n 's/^coverage: .* probed, \([0-9]*\) of [0-9]* launch.*/\1/p' "$1")
	[ -n "$launches" ] && [ "$launches" -gt 0 ] && [ "$(sed -n 's/^ *threads = \([0-9]*\)$/\1/p' "$1")" = $((launches * 256)) ]
}
# More time where the machine has much else to do.
attach() { # REPORT
	for seconds in 0.4 1 4; do "$egpu" attach --for $seconds -k fill "$pid" "$probe" > "$1" 2>&1 && return; done
	return 1
}
calls() { sed -n 's/^\([0-9]*\) calls, .*/\1/p' "$1"; }

start count
"$killed" 0 "$egpu" attach --for 0.1 --allow-empty -k fill "$pid" "$probe" > "$all/err" 2>&1; ok $? "an attach under the tracer"
of_attach=$(calls "$all/err")
"$egpu" attach -d -k fill "$pid" "$probe" > "$all/err" 2>&1
"$killed" 0 "$egpu" detach "$pid" > "$all/err" 2>&1; ok $? "a detach under the tracer"
of_detach=$(calls "$all/err")
kill -TERM "$pid"; wait "$pid"; rm -f "$all/count.pid"
echo "# $of_attach calls of an attach, $of_detach of a detach"

one() { # K: all that happens to one process; what was wrong, on standard output
	start "$1"
	"$killed" $((1 + $1 * of_attach / points)) "$egpu" attach --for 0.1 --allow-empty -k fill "$pid" "$probe" > "$all/$1.first" 2>&1
	attach "$all/$1.next" || echo "the next attach failed"
	whole "$all/$1.next" || echo "the next attach counted in parts"
	"$egpu" attach -d -k fill "$pid" "$probe" > "$all/$1.detached" 2>&1 || echo "attach -d failed"
	"$killed" $((1 + $1 * of_detach / points)) "$egpu" detach "$pid" > "$all/$1.second" 2>&1
	"$egpu" detach "$pid" > "$all/$1.detach" 2>&1 || echo "the next detach failed"
	"$egpu" link 2>&1 | grep -q " $pid " && echo "something stayed attached"
	attach "$all/$1.last" || echo "the last attach failed"
	whole "$all/$1.last" || echo "the last attach counted in parts"
	kill -TERM "$pid"; wait "$pid" || echo "the program failed"
	grep -q 'wrong 0' "$all/$1.out" || echo "its results were wrong"
	rm -f "$all/$1.pid"
}
for k in $(seq 0 $((points - 1))); do
	one "$k" > "$all/$k.wrong" 2>&1 &
	[ $((k % 8)) = 7 ] && wait
done
wait
for k in $(seq 0 $((points - 1))); do
	[ ! -s "$all/$k.wrong" ]; status=$?
	[ $status = 0 ] || cat "$all/$k".{wrong,first,next,second,last,out} > "$all/err"
	ok $status "killed at call $((1 + k * of_attach / points)) of an attach, and at call $((1 + k * of_detach / points)) of a detach"
done
"$egpu" gc > "$all/err" 2>&1; ok $? "egpu gc"
[ -z "$(ls "$EGPU_DIR")" ]; ok $? "nothing is left"
echo "1..$test_count"
exit $test_failed
