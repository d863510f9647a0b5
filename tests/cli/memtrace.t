#!/bin/sh
# The demo job: exact executions and bytes at every site, sectors against their ideal, results untouched.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"

for n in 1 31 1000003; do
	run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" memtrace -- "$samples/vecadd" $n "$tmp/probed"
	is $status 0 "vecadd $n: status 0"
	is "$(json "$tmp/json" 'scalar @{$j->{tool}{sites}}')" 3 "vecadd $n: three sites"
	is "$(json "$tmp/json" 'map { "$_->{op}:$_->{executions}:$_->{bytes}" } sort { $a->{ptx_line} <=> $b->{ptx_line} } @{$j->{tool}{sites}}')" \
		"load:$n:$((4 * n)) load:$n:$((4 * n)) store:$n:$((4 * n))" "vecadd $n: exactly n executions, 4n bytes"
	is "$(json "$tmp/json" 'map { $_->{requests} } @{$j->{tool}{sites}}')" \
		"$(for i in 1 2 3; do printf '%s ' $(((n + 31) / 32)); done | sed 's/ $//')" "vecadd $n: one request a warp"
	is "$(json "$tmp/json" 'map { $_->{wasted_bytes} } @{$j->{tool}{sites}}')" "0 0 0" "vecadd $n: nothing is wasted"
	is "$(json "$tmp/json" '$j->{coverage}{launches}, $j->{coverage}{launches_instrumented}')" "1 1" "vecadd $n: its launch was instrumented"
	if [ "$on" = --softgpu ]; then
		LD_LIBRARY_PATH=$("$EGPU_SOURCE/tests/cli/softgpu-dir" "$EGPU_BUILD") "$samples/vecadd" $n "$tmp/plain" >"$tmp/plain.out"
	else
		"$samples/vecadd" $n "$tmp/plain" >"$tmp/plain.out"
	fi
	cmp "$tmp/plain" "$tmp/probed" >&2
	ok $? "vecadd $n: output buffers equal those of a run without egpu"
	cmp "$tmp/plain.out" "$tmp/out" >&2
	ok $? "vecadd $n: standard output is the program's own"
done

run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" memtrace -- "$samples/strided"
is $status 0 "strided: status 0"
is "$(json "$tmp/json" 'my %k; for (@{$j->{tool}{sites}}) { next unless $_->{op} eq "load"; $k{$_->{sectors} / $_->{requests}} = 1 } sort { $a <=> $b } keys %k')" \
	"4 32" "strided: 32 sectors a request where unit stride has 4"
is "$(json "$tmp/json" '$j->{tool}{sites}[0]{sectors} / $j->{tool}{sites}[0]{requests}')" 32 "strided: the worst site comes first"
cp "$tmp/report" "$tmp/out"
says "strided: the report opens with coverage and advises" '^coverage: ' 'SECTORS/REQ' 'Worst, load in .*: every lane touches a sector of its own'

ls -A "$EGPU_DIR" >"$tmp/left"
is "$(cat "$tmp/left")" "" "nothing is left in the session directory"
finish
