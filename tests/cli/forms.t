#!/bin/sh
# Updates of shared memory are exact in whatever form compilers leave them: each instruction by instruction, by arithmetic.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/forms.bpf.c

value() { # value EXPRESSION: of the globals
	json "$tmp/json" 'eval { my ($g) = map { $_->{variables} } grep { $_->{type} eq "globals" && $_->{variables}{moved} } values %{$j->{maps}}; '"$1"' }'
}

for options in "" "--sample-warps=1"; do
	run "$egpu" run $on $options --json="$tmp/json" -o "$tmp/report" ${EGPU_FORMS:-"$probe"} -- "$samples/vecadd" 320
	is $status 0 "runs${options:+ with $options}"
	is "$(value 'join " ", map { ($_->{half}, $_->{sum}) } @{$g->{moved}}[0, 1]')" "320 320 320 320" "a base that is moved, and a copy of it"
	is "$(value 'join " ", map { $_->{sum} } @{$g->{ways}}[0, 1]')" "960 18446744073709551296" "a load on each way, one store"
	is "$(value 'join " ", map { $_->{most} } @{$g->{far}}[0, 1]')" "640 320" "a way that lies behind the rest"
	is "$(value '$g->{far}[0]{sum}')" 640 "what follows the one store"
	is "$(value '$g->{other}[0]{most}')" 31 "a greatest value, its base moved, behind another condition"
	is "$(value 'join " ", map { $g->{kept}[0]{$_} } "most", "sum"')" "31 0" "a greatest value that is used as well"
	is "$(value '$g->{common}[0]{most}')" 94 "one store for two greatest values"
	is "$(value 'join " ", @{$g->{passes}}')" "320 320" "lanes in different passes of a loop"
	is "$(value '$g->{fields}[0]{sum}')" 6400 "one load of one of two fields"
	is "$(value '$g->{aside}[1]{sum}')" 640 "an address on the stack beside an array"
	is "$(json "$tmp/json" 'join " ", map { my $m = $j->{maps}{$_}; map { $_->{value} } sort { $a->{key} <=> $b->{key} } @{$m->{entries}} } "first", "second"')" \
		"160 320 480 640 320 320 320 320" "two counts that begin with their keys, their first values in one place"
done
run "$egpu" instrument -o "$tmp/probed.ptx" ${EGPU_FORMS:-"$probe"} "$samples/vecadd.ptx"
is $status 0 "instrument"
is "$(grep -c 'st\.global\.u' "$tmp/probed.ptx")" 0 "nothing is stored otherwise"
takes "$tmp/probed.ptx" sm_75 sm_90
finish
