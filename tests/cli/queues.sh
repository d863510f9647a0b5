# queues.sh - what must hold after tests/probes/queues.bpf.c, whose JSON is in $tmp/json. Sourced.
exact() { # LABEL
	is $status 0 "$1: the program is unharmed"
	perl -MJSON::PP -e '
		local $/;
		my $j = decode_json(<STDIN>);
		my %m = %{$j->{maps}};
		my %v = %{$m{".bss"}{variables}};
		my @names = qw(queue stack few pile last top);
		my @size = map { $m{$_}{max_entries} } @names;
		sub left { return map { my ($id, $check) = unpack("QQ", pack("H*", $_)); { id => $id, check => $check } } @{$m{$names[$_[0]]}{values}} }
		sub wrong { my $n = 0; for my $k (0 .. 5) { $n++ unless $_[0]->($k) } return $n }
		sub check { print "$_[1]\t$_[2]\t$_[0]\n" }
		my $busy = eval { my $n = 0; $n += $_ for map { @{$v{$_}} } qw(busy busy_push); $n };
		print STDERR "busy: push @{$v{busy_push}} pop @{$v{busy}} peek $v{peek_busy}\n";
		check("every operation is answered as it should be", $v{odd}, 0);
		check("none gives up, or few", ($busy + $v{peek_busy}) * 1000 <= $v{operations} ? 1 : 0, 1);
		check("every answer is counted", eval { my $n = 0; $n += $_ for map { @{$v{$_}} } qw(pushed refused popped empty busy busy_push); $n }, $v{operations});
		check("no value is torn, none is popped twice", $v{torn} + $v{twice}, 0);
		check("what was pushed was popped or is left", wrong(sub { my $k = shift; $k > 3 || $v{pushed}[$k] == $v{popped}[$k] + left($k) }), 0);
		check("each value once", wrong(sub { my $k = shift; my $s = $v{popped_sum}[$k]; use integer; $s += $_->{id} * $_->{id} for left($k); $k > 3 || $s == $v{pushed_sum}[$k] }), 0);
		check("a map that loses its oldest refuses nothing, and has room for the newest", wrong(sub { my $k = shift;
			$k < 4 || !$v{refused}[$k] && $v{pushed}[$k] >= $v{popped}[$k] + left($k) }), 0);
		check("never more than there may be", wrong(sub { my $k = shift; left($k) <= $size[$k] }), 0);
		check("what did not fit is counted", wrong(sub { my $k = shift; $m{$names[$k]}{lost} == $v{refused}[$k] + $v{busy_push}[$k] }), 0);
		check("small maps were full and empty", ($v{refused}[2] > 100 && $v{refused}[3] > 100 && $v{empty}[2] > 100 && $v{empty}[3] > 100) ? 1 : 0, 1);
		check("values were seen that stayed", $v{peeked} > 100 ? 1 : 0, 1);
		check("what a Bloom filter was given is in it", $v{bloom_missed}, 0);
		check("and little else", $v{bloom_false} * 50 < $v{bloom_asked} ? 1 : 0, 1);
		check("operations", $v{operations}, $v{operations});
	' <"$tmp/json" >"$tmp/checks" 2>"$tmp/checks.err"
	is "$(grep -c . "$tmp/checks")" 14 "$1: the answers can be read"
	while IFS="$(printf '\t')" read -r got want what; do
		is "$got" "$want" "$1: $what"
	done <"$tmp/checks"
}
