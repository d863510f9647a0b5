#!/usr/bin/perl
# Least and greatest values, bits and sums are exact with one block, a block a multiprocessor, and 10,000 blocks: in global variables and arrays, which
# have a replica on each multiprocessor, in a hash, in variables that the program also reads, from one thread of a block, and however clang writes
# them. The truth is a model in C that shares the numbers with the probe.
#
# EGPU_ON=--gpu runs it there; EGPU_EXTREMES names the compiled probe, where there is no clang.
use strict;
use warnings;
use FindBin;
use JSON::PP;
require "$FindBin::Bin/lib.pl";
our ($source, $build, $here, $on, $tmp, $n, $failed);

my $probes = "$here/probes";
my $probe = $ENV{EGPU_EXTREMES} // "$probes/extremes.bpf.c";
$ENV{EGPU_CACHE} = "$tmp/cache";

if (system("cc -O2 -o $tmp/model $probes/extremes_model.c") ||
	system("cc -O1 -D_GNU_SOURCE -I$source/samples -I$source/include -o $tmp/runner $source/tests/cli/kernels/runner.c -ldl")) {
	print "1..0 # skip no C compiler\n";
	exit;
}

my @fields = qw(least most sleast smost least32 most32 sleast32 smost32 bits common flips sum bits32 common32 flips32 n);

sub row {
	my ($name, $key, $v) = @_;
	return ref $v ? "$name $key: " . join ' ', map { $v->{$_} // 'none' } @fields : "$name $key: none";
}

sub run {
	my ($blocks, $threads, $target, $sms) = @_;
	my $what = "$blocks blocks of $threads, $target" . ($sms ? ", $sms multiprocessors" : '');
	my $where = $on eq '--gpu' ? $on : "--softgpu=sm_90,sms=$sms";
	my $ptx = slurp("$source/tests/cli/kernels/extremes.ptx");
	$ptx =~ s/\.target sm_90/.target $target/;
	$ptx =~ s/\.version 8\.0/.version 6.3/ if $target ne 'sm_90';
	spit("$tmp/give.ptx", $ptx);
	my $command = "$tmp/runner $tmp/give.ptx /dev/null /dev/null give $blocks $threads b:4096 >&2 && " .
		'for f in "$EGPU_SESSION"/map-[0-9].*.0; do od -A n -t u4 -j 4116 -N 4 "$f"; done';
	is(system("$build/egpu run $where -o $tmp/report --json=$tmp/json $probe -- sh -c '$command' >$tmp/out 2>$tmp/err"), 0, "$what: runs");
	my @replicas = sort { $a <=> $b } split ' ', slurp("$tmp/out");
	is("@replicas", join(' ', 1, 1, $sms, $sms), "$what: replicas of .bss, hash, array, .data") if $on ne '--gpu';
	my $json = JSON::PP->new->allow_bignum;
	my $maps = $json->decode(slurp("$tmp/json") || '{}')->{maps};
	my ($v) = map { $_->{variables} } @{$maps}{grep { /data$/ } keys %$maps};
	my @got = (row('all', 0, $v->{all}), row('blocks', 0, $v->{blocks}), row('chosen', 0, $v->{chosen}));
	push @got, map { row('keyed', $_->{key}, $_->{value}) } @{$maps->{keyed}{entries}};
	push @got, map { row('hashed', $_->{key}, $_->{value}) } sort { $a->{key} <=> $b->{key} } @{$maps->{hashed}{entries}};
	my @want = split /\n/, `$tmp/model $blocks $threads`;
	is($got[$_] // 'none', $want[$_], "$what: " . ($want[$_] =~ /^(\w+ \d+)/)[0]) for 0 .. $#want;
	is(scalar @got, scalar @want, "$what: nothing else");
	my ($b) = map { $_->{variables} } @{$maps}{grep { /bss$/ } keys %$maps};
	is($b->{record_of_u64}, (split / /, $want[0])[3], "$what: a greatest value that is read too");
	is($b->{record_of_thread} >= 1 ? 'some' : 'none', 'some', "$what: and what is done where it is one");
	is($b->{least_of_0}, 0, "$what: what is smaller stays");
}

run(1, 33, 'sm_90', 132);
run(132, 256, 'sm_90', 132);
run(10000, 5, 'sm_90', 132);
run(77, 96, 'sm_75', 3);
run(77, 40, 'sm_60', 1);
print "1..$n\n";
exit $failed;
