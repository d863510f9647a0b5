#!/bin/sh
# A device fault: the report names it and the launches that may have caused it.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/fault" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/launches.bpf.c
run "$egpu" run $on --json="$tmp/json" "$probe" -- "$samples/fault"
is $status 0 "the program sees its fault"
says "the report names fault, call and launch" 'device fault in process [0-9]+: illegal address \(error 700\), seen by cuCtxSynchronize' \
	'launch 1, not seen to end: fault, 1 x 1 x 1 blocks of 64 x 1 x 1 threads, stream 0, probed'
is "$(json "$tmp/json" 'my $f = $j->{faults}; scalar @$f, $f->[0]{error}, $f->[0]{seen_by}, scalar @{$f->[0]{launches}}, $f->[0]{launches}[0]{kernel}, $f->[0]{launches}[0]{block}[0]')" \
	"1 700 cuCtxSynchronize 1 fault 64" "the same in JSON"
run "$egpu" run $on --json="$tmp/json" -k nothing --allow-empty "$probe" -- "$samples/fault"
says "the same where nothing is probed" 'illegal address' 'blocks of 64 x 1 x 1 threads, stream 0$'
run "$egpu" run $on --json="$tmp/json" "$probe" -- "$samples/fault" 0
is "$(json "$tmp/json" 'scalar @{$j->{faults}}')" 0 "no fault: none is reported"
finish
