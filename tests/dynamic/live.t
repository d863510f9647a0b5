#!/bin/bash
# `egpu attach --live`: into a kernel that runs under egpu, and into a program that was started without it, whose kernels get guards
# at their next launch.
. "$(dirname "$0")/../cli/lib.sh"
target=$EGPU_BUILD/tests/dynamic/target_plain
driver=$EGPU_BUILD/src/softgpu
work=$tmp
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0

cat > "$work/loops.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 loops;
SEC("gpu.warp/block/queue") int loop(struct egpu_warp *ctx) { __sync_fetch_and_add(&loops, 1); return 0; }
C
cat > "$work/entries.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 threads;
SEC("gpu/entry/fill") int entry(struct egpu_entry *ctx) { __sync_fetch_and_add(&threads, 1); return 0; }
C
"$egpu" verify "$work/loops.bpf.c" > "$work/err" 2>&1 || { echo "1..0 # SKIP no clang for BPF"; exit 0; }

attach() { "$egpu" attach "$@" > "$work/err" 2>&1; }
number() { sed -n "s/^ *$1 = \([0-9]*\)\$/\1/p" "$work/err"; }

# A kernel that runs until it is told to stop.
mkfifo "$work/in"
EGPU_SAMPLE_SMALL=1 "$egpu" run --softgpu=sm_90,sms=2,strict --json="$work/report.json" --live -k queue -- "$EGPU_BUILD/samples/persistent" queue 600000 < "$work/in" \
	> "$work/out" 2> "$work/run" &
run=$!
exec 5> "$work/in"
echo $run > "$work/run.pid"
for _ in $(seq 500); do grep -qs rate "$work/out" && break; sleep 0.02; done
pid=$("$egpu" ps 2> /dev/null | sed -n 's/^ *\([0-9]*\) .* persistent$/\1/p')
[ -n "$pid" ]; ok $? "a kernel runs under egpu run --live"
attach --live --for 0.5 "$pid" "$work/loops.bpf.c"; ok $? "attach --live"
[ "$(number loops)" -gt 0 ]; ok $? "counts passes of the kernel that runs ($(number loops))"
kill -STOP "$pid"
attach --live --for 0.3 "$pid" "$work/loops.bpf.c" &
late=$!
sleep 0.8
kill -CONT "$pid"
wait $late; ok $? "the time of --for begins when the program is armed"
[ "$(number loops)" -gt 0 ]; ok $? "and it has counted ($(number loops))"
cat > "$work/plain.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 plain, atomics, most;
SEC("gpu/block/queue") int count(struct egpu_block *ctx)
{
	__u64 n = ctx->thread.x + 7;
	plain++;
	if (n > most)
		most = n;
	__sync_fetch_and_add(&atomics, 1);
	return 0;
}
C
attach --live --for 0.5 "$pid" "$work/plain.bpf.c"; ok $? "a program that adds by load and store"
[ "$(number plain)" -gt 1000 ] && [ "$(number plain)" = "$(number atomics)" ]; ok $? "loses nothing ($(number plain) of $(number atomics))"
[ "$(number most)" -ge 38 ]; ok $? "and keeps a greatest value ($(number most))"
cat > "$work/used.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 sum, last;
SEC("gpu/block/queue") int used(struct egpu_block *ctx) { last = ++sum; return 0; }
C
attach --live --for 0.1 "$pid" "$work/used.bpf.c"; status=$?
[ $status = 125 ] && grep -q "__sync_fetch_and_add" "$work/err"; ok $? "a sum that is used is refused with what to write"
attach --live -d "$pid" "$work/loops.bpf.c"; ok $? "it comes again, and stays"
for _ in $(seq 100); do "$egpu" link > "$work/err" 2>&1; grep -q "armed in 1 context" "$work/err" && break; sleep 0.02; done
grep -q "armed in 1 context for" "$work/err"; ok $? "egpu link says that it is armed"
[ "$(grep -c ' loop  *queue' "$work/err")" = 1 ]; ok $? "once"
id=$(sed -n 's/^\([0-9.]*\) .* loop  *queue.*/\1/p' "$work/err")
"$egpu" detach --link "$id" > "$work/err" 2>&1; ok $? "egpu detach --link"
! grep -q "still hold it" "$work/err"; ok $? "it is gone although the kernel runs on"
attach --live --for 0.3 "$pid" "$work/loops.bpf.c"; ok $? "the next attach"
[ "$(number loops)" -gt 0 ]; ok $? "counts too"
attach --live --for 0.2 "$pid" "$work/entries.bpf.c"; ok $? "a program for a place that is not passed is armed, and counts nothing"
[ "$(number threads)" = 0 ]; ok $? "nothing"
cat > "$work/ring.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 65536); } ring SEC(".maps");
struct event { __u64 number; __u32 sm, lane; };
__u64 passes;
SEC("gpu.warp/block/queue") int loop(struct egpu_warp *ctx)
{
	struct event e = { .number = __sync_fetch_and_add(&passes, 1), .sm = ctx->sm, .lane = ctx->lane };
	if (e.number < 5) {
		bpf_ringbuf_output(&ring, &e, sizeof(e), 0);
		bpf_printk("pass %llu, lane %u", e.number, e.lane);
	}
	return 0;
}
C
for seconds in 0.5 2 8; do # a busy machine gives the kernel few passes
	"$egpu" attach --live --for $seconds "$pid" "$work/ring.bpf.c" > "$work/records" 2> "$work/err"; status=$?
	cat "$work/records" >> "$work/err"
	[ "$(grep -c 'trace: pass [0-4], lane 0$' "$work/err")" -lt 5 ] || break
done
ok $status "a program with a ring buffer and bpf_printk"
[ "$(grep -c 'trace: pass [0-4], lane 0$' "$work/err")" = 5 ]; ok $? "its lines are shown while the kernel runs"
grep -q '^ *5 records, 80 bytes' "$work/err"; ok $? "and its records"
cat > "$work/params.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 seen;
SEC("gpu/exit/queue") int leave(struct egpu_exit *ctx) { seen = egpu_param(ctx, 0, __u64); return 0; }
C
attach --live --for 0.2 "$pid" "$work/params.bpf.c"; status=$?
[ $status = 125 ] && grep -q "parameter" "$work/err"; ok $? "the kernel's parameters are refused with the reason"
cat > "$work/large.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
struct many { __u64 n[1000]; };
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 10000); __type(key, __u32); __type(value, struct many); } large SEC(".maps");
SEC("gpu.warp/block/queue") int loop(struct egpu_warp *ctx) { __u32 k = ctx->sm; struct many *v = bpf_map_lookup_elem(&large, &k); if (v) __sync_fetch_and_add(v->n, 1); return 0; }
C
attach --live --for 0.3 "$pid" "$work/large.bpf.c"; status=$?
[ $status = 125 ] && grep -q "loop: map large takes 80000" "$work/err"; ok $? "a map of 80 MB does not come there, and egpu attach says so"
attach --live -d "$pid" "$work/large.bpf.c"; ok $? "it stays attached"
for _ in $(seq 100); do "$egpu" link > "$work/err" 2>&1; grep -q "pending for .* map large takes" "$work/err" && break; sleep 0.02; done
grep -q "map large takes 80000[0-9]* bytes on the device; maps of programs for kernels that run have 64 MiB together" "$work/err"; ok $? "egpu link says so, with the limit"
"$egpu" detach --link "$(sed -n 's/^\([0-9.]*\) .* loop  *queue.*/\1/p' "$work/err")" > "$work/out2" 2>&1; ok $? "and taken away"
exec 5>&-
wait $run; ok $? "the program ends well"
grep -q '^persistent: queue .* ok$' "$work/out"; ok $? "its results are its own"
rm -f "$work/run.pid"
grep -q '"skipped": "no guard: a loop of [0-9]* instructions without memory accesses, at most [0-9]* times' "$work/report.json"
ok $? "the report says which loop head has no guard, and why"

# A program that is not gone while somebody is inside it.
cat > "$work/long.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
__u64 runs;
static long step(__u32 i, void *ctx) { return i == 4000000000u; }
SEC("gpu.warp/block/queue") int inside(struct egpu_warp *ctx)
{
	if (ctx->block.x)
		return 0;
	__sync_fetch_and_add(&runs, 1);
	bpf_loop(8000000, step, 0, 0);
	return 0;
}
C
EGPU_SAMPLE_SMALL=1 EGPU_LIVE_TIER=interpreted EGPU_AGENT_LOG="$work/log" "$egpu" run --softgpu=sm_90,sms=2,strict --live -k queue -- "$EGPU_BUILD/samples/persistent" queue 600000 > "$work/out" 2> "$work/run" &
run=$!
echo $run > "$work/run.pid"
for _ in $(seq 500); do grep -qs rate "$work/out" && break; sleep 0.02; done
pid=$("$egpu" ps 2> /dev/null | sed -n 's/^ *\([0-9]*\) .* persistent$/\1/p')
attach --live -d --max-insns 100000000 "$pid" "$work/long.bpf.c"; ok $? "a program whose runs take long"
for _ in $(seq 200); do "$egpu" link 2>&1 | grep -q "armed in 1 context" && break; sleep 0.02; done
"$egpu" detach "$pid" > "$work/err" 2>&1; grep -q "still hold it" "$work/err"; ok $? "egpu detach says that it is not gone"
"$egpu" link > "$work/err" 2>&1
grep -q "going for .*: [1-9][0-9]* lanes have not come to its end" "$work/err"; ok $? "egpu link says why"
rests=$(grep -c 'others rest$' "$work/log") ended=$(grep -c 'others rest no more' "$work/log")
[ "$rests" -ge 1 ] && [ "$rests" -le 4 ] && [ "$ended" -ge $((rests - 1)) ]; ok $? "others rest for those inside, now and then ($rests times, $ended over)"
passes=$(grep -c rate "$work/out")
for _ in $(seq 100); do [ "$(grep -c rate "$work/out")" -gt $((passes + 4)) ] && break; sleep 0.02; done
tail -2 "$work/out" | grep -q 'rate [0-9]*[1-9]'; ok $? "and go on"
kill -9 "$pid" $run; wait $run 2> /dev/null
rm -f "$work/run.pid"

# What waits for room keeps nobody from leaving.
EGPU_SAMPLE_SMALL=1 EGPU_LIVE_TIER=interpreted EGPU_LIVE_ROOM=4096 "$egpu" run --softgpu=sm_90,sms=2,strict --live -k queue -- "$EGPU_BUILD/samples/persistent" queue 600000 > "$work/out" 2> "$work/run" &
run=$!
echo $run > "$work/run.pid"
for _ in $(seq 500); do grep -qs rate "$work/out" && break; sleep 0.02; done
read -r pid _ < "/proc/$run/task/$run/children"
for _ in 1 2 3 4 5 6 7 8 9 10; do
	attach --live -d "$pid" "$work/loops.bpf.c"
	sleep 0.2
	"$egpu" link 2>&1 | grep -q 'took the room' && break
done
"$egpu" link 2>&1 | grep -q 'pending for .*: .*took the room'; ok $? "a program waits for room"
first=$("$egpu" link 2>&1 | grep -B1 'armed in 1 context' | sed -n 's/^\([0-9.]*\) .* loop .*/\1/p' | head -1)
"$egpu" detach --link "$first" > "$work/err" 2>&1; ok $? "one that runs is detached"
! grep -q 'still hold' "$work/err"; ok $? "and is gone"
! "$egpu" link 2>&1 | grep -q "^$first "; ok $? "and is no more"
"$egpu" link 2>&1 | grep -q 'armed in 1 context'; ok $? "another stays"
kill -9 "$pid" $run; wait $run 2> /dev/null
rm -f "$work/run.pid"

# Inside a kernel programs see what they see at its launch.
fields=$(dirname "$0")/live_fields.bpf.c
sums() { sed -n '/^map sums/,/^map /p' "$1" | grep ' = '; }
"$egpu" run --softgpu=sm_90,sms=2,strict "$fields" -- "$EGPU_BUILD/samples/transpose" 64 > "$work/out" 2> "$work/spliced"; ok $? "programs for the next launch"
"$egpu" run --softgpu=sm_90,sms=2,strict --live=entry,exit,mem -k '*' "$fields" -- "$EGPU_BUILD/samples/transpose" 64 > "$work/out" 2> "$work/err"; ok $? "the same by guards"
[ "$(sums "$work/spliced" | wc -l)" -gt 50 ] && diff <(sums "$work/spliced") <(sums "$work/err") > "$work/out"; ok $? "every field of every context has the same sum"

# A program that knows nothing of egpu.
if [ -z "$EGPU_SANITIZED" ]; then
	LD_LIBRARY_PATH=$driver EGPU_SOFTGPU_QUIET=1 "$target" linked > "$work/plain.out" 2>&1 &
	pid=$!
	echo $pid > "$work/plain.pid"
	for _ in $(seq 200); do grep -qs running "$work/plain.out" && break; sleep 0.02; done
	attach --live --for 0.3 "$pid" "$work/entries.bpf.c"; status=$?
	[ $status = 125 ] && grep -q 'give -k KERNEL' "$work/err"; ok $? "without -k it is refused where there are no guards"
	attach --live -k fill --for 1 "$pid" "$work/entries.bpf.c"; ok $? "with it, guards come at the next launch"
	[ "$(number threads)" -gt 0 ]; ok $? "and the program into them ($(number threads) threads)"
	attach --for 0.5 "$pid" "$work/entries.bpf.c"; ok $? "one for the next launch has maps in the rows that the live one had"
	[ "$(number threads)" -gt 0 ]; ok $? "which are its own ($(number threads) threads)"
	"$egpu" detach "$pid" > "$work/err" 2>&1; ok $? "egpu detach takes the guards away"
	kill -TERM $pid; wait $pid; ok $? "the program ends well"
	grep -q 'wrong 0' "$work/plain.out"; ok $? "every step's results were right"
	rm -f "$work/plain.pid"
fi
echo "1..$test_count"
exit $test_failed
