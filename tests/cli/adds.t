#!/usr/bin/perl
# Programs that only add are exact however their additions are put together: in one thread of a block, several words in one instruction, several
# sites' by a lane each, behind the loads of a block, those of a loop where threads leave it. Blocks of one to three dimensions, parts of warps,
# threads that leave early, lanes alone. The truth is arithmetic, and additions that this test writes into the PTX before each access.
#
# EGPU_ON=--gpu runs it there; EGPU_ADDS names the compiled probe, where there is no clang.
use strict;
use warnings;
use FindBin;
use JSON::PP;
require "$FindBin::Bin/lib.pl";
our ($source, $build, $here, $on, $tmp, $n, $failed);

my $probe = $ENV{EGPU_ADDS} // "$here/probes/adds.bpf.c";

if (system("cc -O1 -D_GNU_SOURCE -I$source/samples -I$source/include -o $tmp/runner $here/kernels/runner.c -ldl")) {
	print "1..0 # skip no C compiler\n";
	exit;
}

# The kernels of a file with an addition before each access, and the lines of those.
sub counted {
	my ($file) = @_;
	my (@text, @lines);
	for (split /\n/, slurp("$here/kernels/$file.ptx")) {
		my $line = @text + 1 - @lines;
		if (/^\s*(\@!?[\w%\$]+\s+)?(ld|st|atom|red)\.\S+\s/ && !/\.param/) {
			push @text, ($1 // '') . 'red.global.add.u64 [counts+' . 8 * @lines . '], 1;';
			push @lines, $line;
		}
		push @text, $_;
	}
	s/^(\.address_size.*)/"$1\n.visible .global .align 8 .u64 counts[" . @lines . '];'/e for @text;
	spit("$tmp/counted.ptx", join("\n", @text) . "\n");
	return @lines;
}

sub product { my $p = 1; $p *= $_ for @_; return $p }
sub show { my $h = shift; return join ' ', map { "$_:$h->{$_}" } sort { $a <=> $b } grep { $h->{$_} } keys %$h }

for (['4', '33', 'sm_90', 'shapes'], ['3x2x2', '5x3x2', 'sm_90', 'shapes'], ['1', '1', 'sm_90', 'shapes'], ['2x3', '32x8', 'sm_75', 'shapes'],
	['7', '1x1x64', 'sm_90', 'shapes'], ['5x1x3', '1x33', 'sm_60', 'shapes'], ['5', '77', 'sm_90', 'rounds'], ['2x2', '32x3', 'sm_75', 'rounds'],
	['3', '50x2', 'sm_90', 'turns']) {
	my ($grid, $block, $target, $kernel) = @$_;
	my ($what, @grid) = ("$kernel, $grid x $block, $target", (split(/x/, $grid), 1, 1)[0 .. 2]);
	my $file = $kernel eq 'turns' ? 'rounds' : $kernel;
	my @lines = counted($file);
	my $threads = product(@grid) * product(split /x/, $block);
	my $ptx = slurp("$here/kernels/$file.ptx");
	$ptx =~ s/\.target sm_90/.target $target/;
	$ptx =~ s/\.version 8\.0/.version 6.3/ if $target ne 'sm_90';
	spit("$tmp/shapes.ptx", $ptx);
	my @status = map { my ($name, $options) = @$_;
		system("$build/egpu run $on --allow-empty -o $tmp/report $options -- $tmp/runner $tmp/$name.ptx $tmp/$name.out $tmp/$name.counts $kernel $grid $block b:65536 >$tmp/out 2>&1")
	} (['counted', '-k none memtrace'], ['shapes', "--json=$tmp/json $probe"]);
	is("@status", '0 0', "$what: runs");
	is(slurp("$tmp/shapes.out") eq slurp("$tmp/counted.out") ? 'the same' : 'another', 'the same', "$what: output");
	my $j = decode_json(slurp("$tmp/json") || '{}');
	my $maps = $j->{maps};
	my $globals = $maps->{'.bss'}{variables};
	is(join(' ', map { $globals->{$_} // 'none' } qw(threads sixes odd)), join(' ', $threads, 6 * $threads, $threads / $grid[2] * int($grid[2] / 2)),
		"$what: threads that enter");
	my %places = map { $_->{key} => "@{$_->{value}}" } @{$maps->{places}{entries}};
	is(join(', ', map { $places{$_} // 'none' } 0 .. $grid[0] - 1), join(', ', ($threads / $grid[0] . ' ' . $threads / $grid[0] * ($grid[1] + 1) / 2) x $grid[0]),
		"$what: by the block's place");
	my %columns = map { $_->{key} => $_->{value} } @{$maps->{columns}{entries}};
	is(show(\%columns), join(' ', map { "$_:" . $threads / $grid[1] } 0 .. $grid[1] - 1), "$what: in a hash");
	my @few = map { $_->{value} } @{$maps->{few}{entries}};
	my $kept = $grid[0] < 2 ? $grid[0] : 2;
	is("@few", join(' ', ($threads / $grid[0]) x $kept), "$what: in a full hash, what fits");
	is($j->{coverage}{insertions_refused} // 'none', $threads / $grid[0] * ($grid[0] - $kept), "$what: and what does not is counted");
	my %want;
	@want{@lines} = split /\n/, slurp("$tmp/counted.counts");
	my %record = map { $_->{key} => $_->{value} } @{$maps->{sites}{entries}};
	my (%got, @uneven);
	for my $s (grep { $_->{point} =~ /^(load|store|atomic)$/ } @{$j->{sites}}) {
		my $r = $record{$s->{id}} or next;
		$got{$s->{ptx_line}} += $r->{executions};
		push @uneven, $s->{ptx_line} if "$r->{bytes} $r->{thrice} $r->{lanes}" ne join ' ', map { $_ * $r->{executions} } $s->{bytes}, 3, 1;
	}
	is(show(\%got), show(\%want), "$what: executions of each access");
	is("@uneven", '', "$what: and the words beside");
}
# Otherwise all of this would show nothing.
for (['enter', 'others:'], ['column', 'others:'], ['overfull', 'others:'], ['enter', "\nanywhere 1\n"], ['count', "\nanywhere 1\n"],
	['count', "\nrepeat [0-9]+\n"]) {
	is(`$build/egpu translate -p $$_[0] $probe` =~ /$$_[1]/ ? 'it is' : 'it is not', 'it is', "$$_[0] is a program that may run so");
}
print "1..$n\n";
exit $failed;
