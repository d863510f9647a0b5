#!/usr/bin/perl
# --sample-warps: one warp in N is chosen, and what it adds counts N times. Over launches and seeds the sums are those of all warps, for
# every part of a launch by itself and in every kind of map; what is not added is said to be of the chosen warps alone. One warp in one is
# exact.
use strict;
use warnings;
use File::Temp 'tempdir';
use JSON::PP;

my $source = $ENV{EGPU_SOURCE} // '.';
my $build = $ENV{EGPU_BUILD} // "$source/build";
my $on = $ENV{EGPU_ON} // '--softgpu';
my $tmp = tempdir(CLEANUP => 1);
mkdir "$tmp/shm";
$ENV{EGPU_DIR} = "$tmp/shm";
$ENV{EGPU_CACHE} = "$tmp/cache";
my ($n, $failed) = (0, 0);
my $probe = "$source/tests/cli/probes/sample.bpf.c";
my ($blocks, $warps, $threads) = (196, 8, 196 * 256);

sub ok {
	my ($ok, $what) = @_;
	$failed ||= !$ok;
	printf "%sok %d - %s\n", $ok ? '' : 'not ', ++$n, $what;
}

sub slurp {
	open my $f, '<:raw', $_[0] or return '';
	local $/;
	return scalar <$f>;
}

my $text;
sub run { # run OPTIONS...: the report
	my $status = system("$build/egpu run $on --json=$tmp/json @_ -- $build/samples/vecadd $threads >$tmp/out 2>$tmp/err");
	$text = slurp("$tmp/err");
	return { status => $status >> 8, %{$status ? {} : decode_json(slurp("$tmp/json"))} };
}

sub values_of { # values_of MAP: by key
	my %v = map { $_->{key} => $_->{value} } @{$_[0]{entries}};
	return \%v;
}

# The parts of a launch: what was counted, and how many warps there are.
sub parts {
	my $maps = shift->{maps};
	my ($w, $b, $k) = map { values_of($maps->{$_}) } qw(by_warp by_block by_key);
	my @parts = map { [$w->{$_} // 0, $blocks] } 0 .. 7;
	push @parts, map { [$b->{$_} // 0, $warps * int(($blocks + 15 - $_) / 16)] } 0 .. 15;
	push @parts, map { [($k->{$_} // {threads => 0})->{threads}, $warps * int(($blocks + 6 - $_) / 7)] } 0 .. 6;
	push @parts, [values_of($maps->{by_launch})->{1} // 0, $blocks * $warps];
	push @parts, [$maps->{'.bss'}{variables}{bytes} / 4, $blocks * $warps];
	return @parts;
}

my $r = run('--sample-warps 1', $probe);
ok($r->{status} == 0 && !grep({ $_->[0] != 32 * $_->[1] } parts($r)), 'one warp in 1: every part is exact');
ok($r->{kernels}[0]{sampling}{one_warp_in} == 1 && $r->{kernels}[0]{sampling}{warps} == $blocks * $warps, 'and is reported');

# Of n warps one in N, each N times: a standard deviation of sqrt(n * (N - 1)) warps.
for my $N (3, 37) {
	my (@sum, $whole, $squares, $far);
	my $seeds = 6;
	for my $seed (1 .. $seeds) {
		$r = run("--sample-warps $N --seed $seed --set with_records=1", $probe);
		my @p = parts($r);
		for my $i (0 .. $#p) {
			my $off = $p[$i][0] / 32 - $p[$i][1];
			$whole ||= $p[$i][0] % (32 * $N);
			$sum[$i] += $off;
			$squares += $off ** 2 / ($p[$i][1] * ($N - 1)) / @p / $seeds;
			$far ||= $off ** 2 > 36 * $p[$i][1] * ($N - 1);
		}
	}
	my @p = parts($r);
	my @z = map { $sum[$_] / sqrt($seeds * $p[$_][1] * ($N - 1)) } 0 .. $#p;
	printf "# one in %d: worst mean %.2f standard errors off, squares %.2f of what is expected\n", $N, (sort { $b <=> $a } map { abs } @z)[0], $squares;
	ok(!$whole, "one in $N: whole warps, $N times");
	ok(!$far && !grep({ abs > 4.5 } @z), 'each part of the launch is near its truth, and the mean over seeds is nearer');
	ok($squares > 0.6 && $squares < 1.6, 'by as much as chance allows, no less and no more');
	my $maps = $r->{maps};
	my $chosen = $maps->{'.bss'}{variables}{bytes} / 4 / $N;
	ok($maps->{records}{records} == $chosen, 'records are those of the chosen warps');
	ok($r->{kernels}[0]{sampling}{one_warp_in} == $N && $r->{filter}{sample_warps} == $N && $r->{filter}{seed} == $seeds, 'N and the seed are reported');
	ok(join(' ', map { $maps->{$_}{sampled} // 'null' } qw(by_warp by_block by_key .bss .bss.last records)) eq
		'scaled scaled scaled scaled not scaled not scaled', 'what is scaled and what is not, in JSON');
	ok($text =~ /sampled: one warp in $N of vecadd/ && $text =~ /map by_key.*\n  \(estimates for all warps\)/ &&
		$text =~ /map records.*\n  \(of chosen warps alone\)/ && $text =~ /one warp in $N \(seed $seeds\)/, 'and in the text');
}

# What a map that is full refuses counts as what it takes.
for my $N (1, 5) {
	$r = run("--sample-warps $N --seed 4", "$source/tests/cli/probes/lost.bpf.c");
	my %all = map { my $of = $r->{maps}{$_}; my $sum = $of->{lost}; $sum += ref $_->{value} ? $_->{value}{n} : $_->{value} for @{$of->{entries}}; ($_ => $sum) } qw(narrow called blocks);
	my ($by_thread, $by_block) = map { $r->{maps}{'.bss'}{variables}{$_} // 0 } qw(threads entered);
	ok($by_thread && !grep({ !$r->{maps}{$_}{lost} } keys %all) && $by_thread % (32 * $N) == 0 && ($N > 1 || $by_thread == $threads),
		"full maps, one in $N: all of them lose some of $by_thread");
	ok($all{narrow} == $by_thread && $all{called} == $by_thread, "of each thread what is had and what is lost, $all{narrow} and $all{called}, are all that was tried");
	ok($all{blocks} == $by_block, "and of each block, $all{blocks} of $by_block");
}

# A limit that nothing exceeds: the same numbers as without.
$r = run('--max-overhead 1000000', $probe);
ok(!grep({ $_->[0] != 32 * $_->[1] } parts($r)), 'a limit that is kept: a launch is counted exactly');
ok($r->{kernels}[0]{sampling}{one_warp_in} == 1 && $r->{filter}{max_overhead_percent} == 1000000, 'and is reported');

# A kernel that calls functions, which call themselves: a warp is chosen in all of them or in none.
if (system("cc -O1 -D_GNU_SOURCE -I$source/samples -I$source/include -o $tmp/runner $source/tests/cli/kernels/runner.c -ldl") == 0) {
	my %all;
	for my $N (1, 5) {
		my $status = system("$build/egpu run $on --json=$tmp/json --sample-warps $N --seed 3 -k h_call $source/tests/cli/probes/chosen.bpf.c -- " .
			"$tmp/runner $source/tests/cli/kernels/odd.ptx $tmp/o $tmp/c h_call 200 60 b:65536 >$tmp/out 2>$tmp/err");
		$r = $status ? {} : decode_json(slurp("$tmp/json"));
		my ($enter, $store) = map { values_of($r->{maps}{$_}) } qw(enters stored);
		$all{$N} = { map { $_ => $store->{$_} } grep { $enter->{$_} } keys %$enter };
		my @odd = grep { !$enter->{$_} != !$store->{$_} } 0 .. 6399;
		ok(!$status && !@odd && keys %{$all{$N}} > 40, "calls, one in $N: the same warps in the kernel and in its functions, " . keys(%{$all{$N}}) . ' of 400');
	}
	ok(!grep({ $all{5}{$_} != 5 * $all{1}{$_} } keys %{$all{5}}), 'and all that they do there counts N times');
	ok(keys(%{$all{1}}) == 400 && keys(%{$all{5}}) < 130, 'about one in N');
}

# Loops, whose passes are counted in a register in all warps: what comes of it counts in the chosen ones.
{
	my %stored;
	for my $N (0, 1, 4) {
		my $how = $N ? "--sample-warps $N --seed 2" : '';
		my $status = system("$build/egpu run $on --json=$tmp/json $how $source/tests/cli/probes/chosen.bpf.c -- $build/samples/reduce 200000 >$tmp/out 2>$tmp/err");
		$stored{$N} = $status ? {} : values_of(decode_json(slurp("$tmp/json"))->{maps}{stored});
		$stored{$N} = { map { $_ => $stored{$N}{$_} } grep { $stored{$N}{$_} } keys %{$stored{$N}} };
	}
	my @keys = sort keys %{$stored{0}};
	ok(@keys > 60 && "@keys" eq join(' ', sort keys %{$stored{1}}) && !grep({ $stored{0}{$_} != $stored{1}{$_} } @keys), 'loops: one warp in one counts all');
	my @some = keys %{$stored{4}};
	ok(@some > @keys / 8 && @some < @keys / 2 && !grep({ $stored{4}{$_} != 4 * ($stored{0}{$_} // 0) } @some), @some . ' of ' . @keys . ' warps count four times');
}

# A graph that is launched again and again: other warps each time.
if (-x "$build/tests/programs/graphs") {
	my $maps = "$source/tests/cli/probes/chosen.bpf.c";
	my %seen;
	for my $N (1, 3) {
		my $status = system("$build/egpu run $on --json=$tmp/json --sample-warps $N $maps -- $build/tests/programs/graphs >$tmp/out 2>$tmp/err");
		$r = $status ? {} : decode_json(slurp("$tmp/json"));
		my $sum = 0;
		$sum += $_ for values %{values_of($r->{maps}{enters})};
		$seen{$N} = [$sum / 32, scalar(grep { $_ } values %{values_of($r->{maps}{enters})})];
		ok(!$status && $r->{kernels}[0]{sampling}{warps} == 14 * 32 && $sum % (32 * $N) == 0, "graphs, one in $N: " . $sum / 32 . ' warps of 448');
	}
	my $off = $seen{3}[0] - 448;
	ok($seen{1}[0] == 448 && $off ** 2 < 25 * 448 * 2, 'the sum is near that of all');
	ok($seen{3}[1] > 20, 'in ' . $seen{3}[1] . ' places of 32: not in the same third each time');
}

# Without either the programs do not know of it.
$r = run('', $probe);
ok(!defined $r->{kernels}[0]{sampling} && !exists $r->{maps}{by_warp}{sampled} && $text !~ /estimate[^d]/, 'nothing is said where nothing is sampled');

for (['--sample-warps 0'], ['--sample-warps 65537'], ['--sample-warps x'], ['--seed 1'], ['--sample-warps 2 --max-overhead 5'],
	['--live -k vecadd --sample-warps 2'], ['--live -k vecadd --max-overhead 2']) {
	ok(run($_->[0], $probe)->{status} == 125, "$_->[0]: refused");
}
print "1..$n\n";
exit $failed;
