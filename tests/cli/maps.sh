# maps.sh - what must hold after tests/probes/maps.bpf.c, whose JSON is in $tmp/json. Sourced.
exact() { # LABEL SCALE
	is $status 0 "$1: the program is unharmed"
	perl -MJSON::PP -e '
		my $scale = shift;
		local $/;
		my $j = decode_json(<STDIN>);
		my %m = %{$j->{maps}};
		my %v = %{$m{".bss"}{variables}};
		sub entries { return @{$m{$_[0]}{entries}} }
		sub sum { my $s = 0; $s += $_->{value} for entries(@_); return $s }
		sub once { my %n; $n{$_->{key}}++ for entries(@_); return keys %n }
		sub check { print "$_[1]\t$_[2]\t$_[0]\n" }
		sub holds { check($_[0], $_[1] ? 1 : 0, 1) }
		check("every operation is answered as it should be", $v{few_missed} + $v{cpu_missed} + $v{odd} + $v{lru_refused} + $v{lru_cpu_refused}, 0);
		check("few keys, many additions: none is lost", sum("few"), 3 * $v{few_added});
		check("keys that came less those that went are there", scalar(entries("churn")), $v{inserted} - $v{deleted});
		check("each once", scalar(once("churn")), scalar(entries("churn")));
		check("with its own value", scalar(grep { $_->{key} != $_->{value} || $_->{key} >= 3001 * $scale } entries("churn")), 0);
		check("every answer is counted", 12 * ($v{inserted} + $v{existed} + $v{full} + $v{deleted} + $v{missing}), $v{operations});
		check("what did not fit is counted", $m{churn}{lost}, $v{full});
		holds("slots were used again, and the table was full", $v{own_made} > 1000 && $v{deleted} > 100 && $v{full} > 100);
		check("a key of its own is there from insertion to deletion", $v{own_lost} + $v{own_wrong} + $v{own_stuck} + entries("own"), 0);
		check("per-CPU values add up", sum("cpu"), $v{cpu_added});
		check("over 47 keys, each once", entries("cpu") . " " . once("cpu"), "47 47");
		check("the keys of an LRU map, each once", scalar(once("lru")), scalar(entries("lru")));
		holds("as many as it may have, about", entries("lru") <= 128 * $scale && entries("lru") > 100 * $scale);
		# Those that are put back while a hundred thousand threads take others out are not there.
		holds("among them most that are used", 10 * $scale <= grep { $_->{key} < 20 * $scale } entries("lru"));
		holds("a per-CPU LRU map is as full", entries("lru_cpu") <= 100 * $scale && entries("lru_cpu") > 75 * $scale);
		check("operations", $v{operations}, $v{operations});
	' "$2" <"$tmp/json" >"$tmp/checks" 2>"$tmp/checks.err"
	is "$(grep -c . "$tmp/checks")" 16 "$1: the answers can be read"
	while IFS="$(printf '\t')" read -r got want what; do
		is "$got" "$want" "$1: $what"
	done <"$tmp/checks"
}
