#!/bin/sh
# --max-overhead on the command line and in the report; what it does is the agent's test.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/streams" ] || skip_all "samples are not built"
run "$egpu" run $on --json="$tmp/json" --max-overhead 10% memtrace -- "$samples/streams" 2000 200
is $status 0 "a limit of 10 %"
is "$(json "$tmp/json" '$j->{kernels}[0]{launches}, $j->{kernels}[0]{launches_instrumented} <= 351, $j->{filter}{max_overhead_percent}')" "401 1 10" \
	"at least one launch in eight runs without"
says "the report says what was asked" 'at most 10% slower'
run "$egpu" run $on --json="$tmp/json" --max-overhead 100000 memtrace -- "$samples/streams" 2000 200
is "$(json "$tmp/json" 'my $k = $j->{kernels}[0]; $k->{sampling}{one_warp_in}, $k->{sampling}{given_up} ? 1 : 0, $k->{launches_instrumented} >= 350 && $k->{launches_instrumented} <= 351')" "1 0 1" \
	"a limit that is kept: all but the eighth that is compared with"
is "$(json "$tmp/json" 'my $n = 0; $n += $_->{executions} for grep { $_->{op} eq "store" } @{$j->{tool}{sites}}; abs($n - 2000 * 401) <= 2000')" \
	1 "counts are those of all launches, but perhaps the last: others stand for those that are compared with"
for bad in "-1%" "0" "x" "5percent"; do
	run "$egpu" run $on --max-overhead="$bad" memtrace -- "$samples/streams"
	is $status 125 "--max-overhead=$bad: refused"
done
finish
