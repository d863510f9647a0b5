#!/bin/bash
# An unmodified libbpf loader under LD_PRELOAD=libegpu-syscall.so: its maps, programs and links are those of a session, and
# ring_buffer__poll consumes what kernels send.
loader=loader
. "$(dirname "$0")/lib.sh"

# What came, what was dropped on the device: all that the program counted.
exact() { # LABEL
	says "$1: whole records" '^records [0-9]+ sum [0-9]+ bad 0 '
	read -r _ records _ sum _ < <(grep '^records ' "$tmp/out")
	read -r _ threads _ dropped < <(grep '^threads ' "$tmp/out")
	is "$sum" "$records" "$1: with their contents"
	is $((records + dropped)) "$threads" "$1: every record came, or was told to be dropped"
	[ "$records" -gt 1000 ]
	ok $? "$1: there were some ($records)"
	is $((threads % 256)) 0 "$1: of whole launches"
}

start
run env EGPU_PID="$pid" LD_PRELOAD="$preload" "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 1 0 free
is $status 0 "by process: the loader ends well"
exact "by process"
echo "# $(tail -1 "$tmp/out")"
run env EGPU_SESSION="$(ls -d "$EGPU_DIR"/*)" LD_PRELOAD="$preload" "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 1 5000 free
is $status 0 "again, slowly, by session: the loader ends well"
exact "again, slowly, by session"
# Records that a loader has not taken: whoever looks sees them, by time, and leaves them there.
LD_PRELOAD="$preload" EGPU_PID="$pid" "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 20 2000000 > "$tmp/slow" 2>&1 &
loader_pid=$!
for _ in $(seq 100); do grep -qs ready "$tmp/slow" && break; sleep 0.02; done
for _ in $(seq 100); do
	run "$egpu" map dump --json --order=time events
	[ "$(json "$tmp/out" 'scalar @{$j->{waiting}} > 2000 ? 1 : 0' 2> /dev/null)" = 1 ] && break
	sleep 0.05
done
is "$(json "$tmp/out" 'my @w = @{$j->{waiting}}; my $n = 0; for (1 .. $#w) { $n++ if $w[$_]{ns} < $w[$_ - 1]{ns} } "$j->{order} $n " . ($w[0]{ns} == 0 && $w[-1]{ns} > 0 && $w[1]{data} =~ /^01000000000000..000000$|^0100000000000000......00$/ ? 1 : 0)')" \
	"time 0 1" "map dump --order=time: records that wait, in order, with their times"
run "$egpu" map dump events
says "map dump: a ring's records, as they arrived" '^  [0-9]+ records wait to be read, [0-9]+ bytes$' '^  [+-][0-9]+\.[0-9]{3} us  01000000'
run "$egpu" map dump --order=size events
is $status 125 "map dump: an order that is none"
kill -KILL $loader_pid
{ wait $loader_pid; } 2> /dev/null
LD_PRELOAD="$preload" EGPU_PID="$pid" "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 20 > "$tmp/killed" 2>&1 &
loader_pid=$!
for _ in $(seq 100); do grep -qs ready "$tmp/killed" && break; sleep 0.02; done
sleep 0.2
kill -KILL $loader_pid
{ wait $loader_pid; } 2> /dev/null
for _ in $(seq 30); do
	sleep 0.1
	run "$egpu" link
	grep -q events_of "$tmp/out" || break
done
! grep -q events_of "$tmp/out"
ok $? "the links of a killed loader are gone"
stop "the program under loaders"

run env LD_PRELOAD="$preload" EGPU_PID=1 "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 1
is $status 1 "a process that is in no session: the loader fails"
says "and a line says why" '^libegpu-syscall: '
run env LD_PRELOAD="$preload" "$loader" "$EGPU_BUILD/tests/loader/events.bpf.o" events 1
is $status 1 "no process named: the loader fails"
says "and is told what is missing" '^libegpu-syscall: EGPU_PID'
run env LD_PRELOAD="$preload" sh -c 'echo fine; exec ls "$0"' "$tmp"
is $status 0 "programs that load nothing are left alone"
ls -A "$EGPU_DIR" > "$tmp/left"
is "$(cat "$tmp/left")" "" "nothing is left in the session directory"
finish
