#!/bin/sh
# GPU time: every kernel is timed, probed or not; the report says which share was probed.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/strided" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/launches.bpf.c
run "$egpu" run $on --json="$tmp/json" -k unit "$probe" -- "$samples/strided"
is $status 0 "one of two kernels is probed"
says "the second line is the share" '^  [0-9.]+% of GPU time probed: [0-9.]+ of [0-9.]+ ms, estimated from [0-9]+ timed launch'
says "what was not selected has its share" '^  1 kernel not selected by any pattern \([0-9.]+% of GPU time\)$'
is "$(json "$tmp/json" 'my %k = map { $_->{name} => $_ } @{$j->{kernels}}; my $c = $j->{coverage}; $k{unit}{gpu_time_ns} > 0, $k{strided}{gpu_time_ns} > 0, $c->{gpu_time_ns} == $k{unit}{gpu_time_ns} + $k{strided}{gpu_time_ns}, $c->{gpu_time_probed_ns} == $k{unit}{gpu_time_ns}')" \
	"1 1 1 1" "times in JSON add up"
# 41 launches of one kernel: a few are timed, the estimate is for all.
run "$egpu" run $on --json="$tmp/json" --launches 10 "$probe" -- "$samples/streams" 100000
is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; $k->{launches}, $k->{launches_timed} >= 5 && $k->{launches_timed} <= 41, $j->{coverage}{gpu_time_probed_ns} > 0 && $j->{coverage}{gpu_time_probed_ns} < $k->{gpu_time_ns}')" \
	"41 1 1" "launches left out count as not probed"
run "$egpu" run $on --json="$tmp/json" --no-time "$probe" -- "$samples/streams" 100
is "$(json "$tmp/json" '$j->{coverage}{gpu_time_ns}, $j->{kernels}[0]{launches_timed}')" "0 0" "--no-time"
! grep -q 'GPU time' "$tmp/err"
ok $? "--no-time: nothing is said of it"
finish
