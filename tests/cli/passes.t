#!/usr/bin/perl
# Counts in code of every shape are exact: random kernels with loops in loops, that are left from their middle, by ways out or at the closing brace,
# branches by tables, scopes, line numbers, predicates, barriers, atomics that must not wait for a count. The same text with an addition written before
# each access says what is true. EGPU_SEED and EGPU_ROUNDS are for more of them.
use strict;
use warnings;
use FindBin;
use JSON::PP;
require "$FindBin::Bin/lib.pl";
our ($source, $build, $here, $tmp, $n, $failed);

my $kernels = 12;

# -- kernels -------------------------------------------------------------------------------

my ($state, @plain, @counted, @lines, $label, $uniform, $calm, $ends);
sub any { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $_[0] }
sub chance { return any(100) < $_[0] }
sub name { return "\$$_[0]" . $label++ }

sub put {
	push @plain, @_;
	push @counted, @_;
	put("\t.loc 1 7 3") if $_[-1] =~ /bra|brx|ret;|exit;/ && chance(30);
}

sub access {
	my ($guard, $text) = @_;
	push @counted, "\t${guard}red.global.add.u64 [counts+" . 8 * @lines . '], 1;', "\t$guard$text";
	push @plain, "\t$guard$text";
	push @lines, scalar @plain;
}

my @accesses = ('st.global.u32 [%rd2+4], %x;', 'ld.global.u32 %t, [%rd2+8];', 'st.global.u64 [%rd2+16], %rd3;', 'ld.global.v2.u32 {%t, %t2}, [%rd2];',
	'st.shared.u32 [%sh], %x;', 'ld.shared.u16 %h, [%sh+2];', 'st.local.u32 [%lo+4], %x;', 'red.global.add.u32 [%rd2], 1;', 'ld.u32 %t, [%rd2];');
my @loud = ('atom.global.add.u32 %t, [%rd2], 1;', 'ld.volatile.global.u32 %t, [%rd2];');

sub step { put("\tmad.lo.u32 %x, %x, 1664525, 1013904223;", "\tshr.u32 %y, %x, 11;") }
sub decide { step(); put("\tand.b32 %y, %y, " . (1, 3, 7)[any(3)] . ';', "\tsetp.eq.u32 $_[0], %y, 0;") }

sub straight {
	for (0 .. any(3)) {
		my $r = any(100);
		if ($r < 60) { access('', $accesses[any(scalar @accesses)]) }
		elsif ($r < 70) { decide('%q'); access(chance(50) ? '@%q ' : '@!%q ', $accesses[any(scalar @accesses)]) }
		elsif ($r < 74 && !$calm) { access('', $loud[any(scalar @loud)]) }
		elsif ($r < 80 && $uniform) { put("\tbar.sync 0;") }
		elsif ($r < 86) { put("\t{", "\t.reg .pred %q;", "\tsetp.ne.u32 %q, %x, 7;"); access('@%q ', 'st.global.u32 [%rd2], %x;'); put("\t}") }
		else { step() }
	}
}

sub loop {
	my ($depth, @around) = @_;
	my ($head, $out, $again, $k) = (name('H'), name('E'), name('C'), $label++);
	my $kind = any(3);
	put("\t.reg .b32 %i$k, %n$k;", "\t.reg .pred %pl$k;", "\tmov.u32 %i$k, 0;");
	step();
	put("\tand.b32 %n$k, %y, " . (0, 1, 3, 7)[any(4)] . ';', "$head:", "\tadd.u32 %i$k, %i$k, 1;");
	straight() if $kind == 1;
	put("\tsetp.gt.u32 %pl$k, %i$k, %n$k;", "\t\@%pl$k bra $out;") if $kind;
	body($depth + 1, [$kind ? $head : $again, $out], @around);
	if ($kind == 2) { decide('%p'); put("\t\@%p bra $head;"); straight() }
	put($kind ? "\tbra $head;" : ("$again:", "\tsetp.lt.u32 %pl$k, %i$k, %n$k;", "\t\@%pl$k bra $head;"), "$out:");
}

sub body {
	my ($depth, @around) = @_;
	for (0 .. any(3)) {
		straight();
		my $r = any(100);
		if ($r < 40 && $depth < 3) {
			loop($depth, @around);
		} elsif ($r < 58 && $depth < 4) {
			my ($else, $end) = (name('I'), name('J'));
			decide('%p');
			put("\t\@%p bra $else;");
			body($depth + 1, @around);
			put("\tbra $end;", "$else:");
			straight();
			put("$end:");
		} elsif ($r < 72 && @around) {
			decide('%p');
			put("\t\@" . (chance(50) ? '' : '!') . '%p bra ' . $around[any(scalar @around)][1] . ';');
		} elsif ($r < 78 && @around) {
			decide('%p');
			put("\t\@%p bra $around[0][0];");
		} elsif ($r < 84 && $ends && !$uniform) {
			$ends--;
			decide('%p');
			put("\t\@" . (chance(50) ? '' : '!') . '%p ' . (chance(50) ? 'ret;' : 'exit;'));
		} elsif ($r < 90) {
			my ($one, $two, $end, $table) = map { name($_) } qw(A B D T);
			step();
			put("\tand.b32 %y, %y, 1;", "\t{", "\t$table: .branchtargets $one, $two;", "\tbrx.idx %y, $table;", "\t}", "$one:");
			straight();
			put("\tbra $end;", "$two:");
			straight();
			put("$end:");
		}
	}
}

sub kernel {
	($uniform, $calm, $ends) = (chance(30), chance(80), any(2));
	put(".visible .entry $_[0](.param .u64 data)", '{', "\t.reg .b32 %x, %y, %t, %t2, %r<8>, %sh, %lo;", "\t.reg .b16 %h;", "\t.reg .b64 %rd<8>;", "\t.reg .pred %p, %q;",
		"\t.local .align 8 .b8 loc[16];", "\t.shared .align 4 .b8 shm[4096];", "\tld.param.u64 %rd1, [data];", "\tmov.u32 %r1, %tid.x;", "\tmov.u32 %r2, %tid.y;",
		"\tmov.u32 %r3, %ntid.x;", "\tmad.lo.u32 %r1, %r2, %r3, %r1;", "\tmov.u32 %r2, %ctaid.x;", "\tmad.lo.u32 %r4, %r2, 256, %r1;", "\tmul.wide.u32 %rd3, %r4, 64;",
		"\tadd.s64 %rd2, %rd1, %rd3;", "\tshl.b32 %r1, %r1, 2;", "\tmov.u32 %sh, shm;", "\tadd.u32 %sh, %sh, %r1;", "\tmov.u32 %lo, loc;",
		"\tadd.u32 %x, " . ($uniform ? '%r2' : '%r4') . ', ' . any(1000) . ';', "\tmul.lo.u32 %x, %x, 2654435761;");
	body(0);
	straight();
	my $how = any(4);
	if ($how == 0) {
		my $head = name('Z');
		put("\tmov.u32 %r6, 0;", "$head:", "\tadd.u32 %r6, %r6, 1;");
		straight();
		put("\tsetp.lt.u32 %p, %r6, 3;", "\t\@%p bra $head;");
	} elsif ($how > 1) {
		put($how == 2 ? "\tret;" : "\texit;");
	}
	put('}');
}

# -- runs ----------------------------------------------------------------------------------

if (system("cc -O1 -D_GNU_SOURCE -I$source/samples -I$source/include -o $tmp/runner $here/kernels/runner.c -ldl")) {
	print "1..0 # skip no C compiler\n";
	exit;
}
my $names = join ',', map { "k$_" } 0 .. $kernels - 1;

sub run { # run TEXT GRID BLOCK DEVICE OPTIONS: status
	my ($text, $grid, $block, $device, $options) = @_;
	return system("$build/egpu run --softgpu=$device --allow-empty -o $tmp/report $options -- " .
		"$tmp/runner $tmp/$text.ptx $tmp/$text.out $tmp/counts $names $grid $block b:65536 >$tmp/out 2>&1");
}

my @cases = (['2', '33', 'sm_90', '8.0'], ['1', '5x7', 'sm_75', '6.3'], ['1', '200', 'sm_90', '8.0']);
my $first = $ENV{EGPU_SEED} // 1;
for my $seed ($first .. $first + ($ENV{EGPU_ROUNDS} // @cases) - 1) {
	my ($grid, $block, $target, $version) = @{$cases[$seed % @cases]};
	($state, $label) = ($seed * 7919, 0);
	@plain = @counted = @lines = ();
	put(".version $version", ".target $target", '.address_size 64', '.file 1 "a.cu"', 'COUNTS');
	kernel("k$_") for 0 .. $kernels - 1;
	$_ = '.visible .global .align 8 .u64 counts[' . (@lines + 1) . '];' for $plain[4], $counted[4];
	for (['plain', \@plain], ['counted', \@counted]) {
		open my $f, '>', "$tmp/$_->[0].ptx" or die;
		print $f map { "$_\n" } @{$_->[1]};
		close $f;
	}
	my $threads = $kernels * $grid;
	$threads *= $_ for split /x/, $block;
	is(run('counted', $grid, $block, "$target,seed=$seed", "-k none $here/probes/passes.bpf.c"), 0, "$seed: runs");
	my (%want, @counts);
	@counts = split /\n/, slurp("$tmp/counts");
	$counts[$_] and $want{$lines[$_]} = $counts[$_] for 0 .. $#lines;
	my $truth = join ' ', map { "$_:$want{$_}" } sort { $a <=> $b } keys %want;
	for my $how ('', '--sample-warps 1') {
		my $what = $how ? "$seed, chosen warps" : "$seed";
		is(run('plain', $grid, $block, "$target,seed=$seed", "$how --json=$tmp/json $here/probes/passes.bpf.c"), 0, "$what: runs probed");
		my $j = decode_json(slurp("$tmp/json") || '{}');
		my %record = map { $_->{key} => $_->{value} } @{$j->{maps}{sites}{entries}};
		my (%got, @uneven);
		for my $s (grep { $_->{point} =~ /^(load|store|atomic)$/ } @{$j->{sites}}) {
			my $r = $record{$s->{id}} or next;
			$got{$s->{ptx_line}} += $r->{executions};
			push @uneven, $s->{ptx_line} if $r->{bytes} != $s->{bytes} * $r->{executions} || $r->{small} != -7 * $r->{executions} % 2 ** 32 || $r->{odd} > $r->{executions};
		}
		is(join(' ', map { "$_:$got{$_}" } sort { $a <=> $b } grep { $got{$_} } keys %got), $truth, "$what: executions of each access");
		is("@uneven", '', "$what: and the words beside");
		is(slurp("$tmp/plain.out") eq slurp("$tmp/counted.out") ? 'the same' : 'another', 'the same', "$what: output");
		my $g = $j->{maps}{'.bss'}{variables};
		is("$g->{entered} $g->{left}", "$threads $threads", "$what: threads that enter and leave");
	}
	# Beside warps that run the version without programs, before the same barriers.
	next unless $seed == $first || $ENV{EGPU_ROUNDS};
	is(run('plain', $grid, $block, "$target,seed=$seed", "--sample-warps 3 --seed $seed --json=$tmp/json $here/probes/passes.bpf.c"), 0, "$seed, some warps: runs probed");
	is(slurp("$tmp/plain.out") eq slurp("$tmp/counted.out") ? 'the same' : 'another', 'the same', "$seed, some warps: output");
	my @entries = @{decode_json(slurp("$tmp/json") || '{}')->{maps}{sites}{entries}};
	my @whole = grep { $_->{value}{executions} } @entries;
	is(@whole > 5 && !grep({ $_->{value}{executions} % 3 } @whole) ? 'whole' : 'part', 'whole', "$seed, some warps: each counts three times");
}
print "1..$n\n";
exit $failed;
