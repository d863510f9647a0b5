#!/bin/sh
# Hash maps of every kind under contention, and what the command shows of them: keys once, none lost, sums exact, on one multiprocessor and
# many, in order and in shuffled order. tests/device/maps.t does the same on a GPU, with more.
. "$(dirname "$0")/lib.sh"

. "$(dirname "$0")/maps.sh"

probe=$EGPU_SOURCE/tests/probes/maps.bpf.c

for device in sms=1,workers=1 sms=3,workers=4,seed=11 sms=132,workers=2,seed=3; do
	run "$egpu" run --softgpu=sm_90,$device --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 3000
	exact "$device" 1
done
run "$egpu" run --softgpu=sm_90,sms=4,workers=2,check --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 1000
is $status 0 "checked: the program is unharmed"
is "$(grep -c 'softgpu: check' "$tmp/err")" 0 "checked: no race in any of them"
says_report() { grep -Eq -- "$2" "$tmp/report"; ok $? "$1"; }
says_report "the report names each kind" '^map lru: LRU hash, at most 128 entries'
says_report "per-CPU hashes too" '^map cpu: per-CPU hash, at most 50 entries'
finish
