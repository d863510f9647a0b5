# maps.sh - what must hold after tests/probes/maps.bpf.c, whose JSON is in $tmp/json. Sourced.
vars='my %v = %{$j->{maps}{".bss"}{variables}}; my %m = %{$j->{maps}};'
keys='my %n; $n{ref $_->{key} ? join ",", map { "$_=$_[0]{key}{$_}" } sort keys %{$_->{key}} : $_->{key}}++'
sum='my $s = 0; $s += $_->{value}'

exact() { # LABEL SCALE
	is $status 0 "$1: the program is unharmed"
	is "$(json "$tmp/json" "$vars"'$v{few_missed} + $v{cpu_missed} + $v{odd} + $v{lru_refused} + $v{lru_cpu_refused}')" 0 "$1: every operation is answered as it should be"
	is "$(json "$tmp/json" "$vars$sum"' for @{$m{few}{entries}}; $s - 3 * $v{few_added}')" 0 "$1: few keys, many additions: none is lost"
	is "$(json "$tmp/json" "$vars"'@{$m{churn}{entries}} - $v{inserted} + $v{deleted}')" 0 "$1: keys that came less those that went are there"
	is "$(json "$tmp/json" "$vars$keys"' for @{$m{churn}{entries}}; keys(%n) - @{$m{churn}{entries}}')" 0 "$1: each once"
	is "$(json "$tmp/json" "$vars"'my $bad = grep { $_->{key} != $_->{value} || $_->{key} >= 3001 * '$2' } @{$m{churn}{entries}}; $bad')" 0 "$1: with its own value"
	is "$(json "$tmp/json" "$vars"'$v{inserted} + $v{existed} + $v{full} + $v{deleted} + $v{missing} - $v{operations} / 12')" 0 "$1: every answer is counted"
	is "$(json "$tmp/json" "$vars"'$m{churn}{lost} - $v{full}')" 0 "$1: what did not fit is counted"
	is "$(json "$tmp/json" "$vars"'$v{own_made} > 1000 && $v{deleted} > 100 && $v{full} > 100 ? 1 : 0')" 1 "$1: slots were used again, and the table was full"
	is "$(json "$tmp/json" "$vars"'$v{own_lost} + $v{own_wrong} + $v{own_stuck} + @{$m{own}{entries}}')" 0 "$1: a key of one's own is there from insertion to deletion"
	is "$(json "$tmp/json" "$vars$sum"' for @{$m{cpu}{entries}}; $s - $v{cpu_added}')" 0 "$1: per-CPU values add up"
	is "$(json "$tmp/json" "$vars$keys"' for @{$m{cpu}{entries}}; keys(%n) - 47 + @{$m{cpu}{entries}} - 47')" 0 "$1: over 47 keys"
	is "$(json "$tmp/json" "$vars$keys"' for @{$m{lru}{entries}}; keys(%n) <= 128 * '$2' && keys(%n) == @{$m{lru}{entries}} && keys(%n) > 100 * '$2' ? 1 : 0')" 1 "$1: an LRU map is as full as it may be"
	is "$(json "$tmp/json" "$vars"'my $hot = grep { $_->{key} < 20 * '$2' } @{$m{lru}{entries}}; $hot >= 15 * '$2' ? 1 : 0')" 1 "$1: and keeps what is used"
	is "$(json "$tmp/json" "$vars"'my $n = @{$m{lru_cpu}{entries}}; $n <= 100 * '$2' && $n > 75 * '$2' ? 1 : 0')" 1 "$1: per-CPU LRU too"
}
