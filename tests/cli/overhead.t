#!/bin/sh
# --max-overhead on the command line and in the report; what it does is the agent's test.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/streams" ] || skip_all "samples are not built"
run "$egpu" run $on --json="$tmp/json" --max-overhead 10% memtrace -- "$samples/streams" 2000 200
is $status 0 "a limit of 10 %"
is "$(json "$tmp/json" '$j->{kernels}[0]{launches}, $j->{kernels}[0]{launches_instrumented} <= 351, $j->{filter}{max_overhead_percent}')" "401 1 10" \
	"at least one launch in eight runs without"
says "the report says what was asked" 'at most 10% slower'
is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; my $n = 0; $n += $_->{executions} for grep { $_->{op} eq "store" } @{$j->{tool}{sites}}; $n - 2000 * $k->{launches_instrumented}')" \
	0 "counts are those of the probed launches"
run "$egpu" run $on --json="$tmp/json" --max-overhead 100000 memtrace -- "$samples/streams" 2000 200
is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; $k->{one_launch_in}, $k->{launches_instrumented} == 351')" "1 1" \
	"a limit that is kept: all but the eighth that is compared with"
for bad in "-1%" "0" "x" "5percent"; do
	run "$egpu" run $on --max-overhead="$bad" memtrace -- "$samples/streams"
	is $status 125 "--max-overhead=$bad: refused"
done
finish
