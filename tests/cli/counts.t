#!/usr/bin/perl
# Each memory access of kernels/odd.ptx is counted twice: by egpu, through every form of a memory point, and by additions
# that this test writes into the PTX before each access, by a rule of its own. The buffers must not change.
use strict;
use warnings;
use File::Temp 'tempdir';
use JSON::PP;

my $source = $ENV{EGPU_SOURCE} // '.';
my $build = $ENV{EGPU_BUILD} // "$source/build";
my $here = "$source/tests/cli";
my $tmp = tempdir(CLEANUP => 1);
mkdir "$tmp/shm";
$ENV{EGPU_DIR} = "$tmp/shm";
my ($n, $failed) = (0, 0);

sub ok {
	my ($ok, $what) = @_;
	$failed ||= !$ok;
	printf "%sok %d - %s\n", $ok ? '' : 'not ', ++$n, $what;
}

sub is {
	my ($got, $want, $what) = @_;
	ok($got eq $want, $what);
	print "#   got:  $got\n#   want: $want\n" if $got ne $want;
}

sub slurp {
	open my $f, '<:raw', $_[0] or return '';
	local $/;
	return scalar <$f>;
}

if (system("cc -O1 -D_GNU_SOURCE -I$source/samples -I$source/include -o $tmp/runner $here/kernels/runner.c -ldl")) {
	print "1..0 # skip no C compiler\n";
	exit;
}

# One statement a line; accesses to parameters are no sites.
my (@text, @lines);
for (split /\n/, slurp("$here/kernels/odd.ptx")) {
	my $line = @text + 1 - @lines;
	if (/^\s*(\@!?[\w%\$]+\s+)?(ld|st|atom|red)\.\S+\s/ && !/\.param/) {
		push @text, ($1 // '') . 'red.global.add.u64 [counts+' . 8 * @lines . '], 1;';
		push @lines, $line;
	}
	push @text, $_;
}
s/^(\.address_size.*)/"$1\n.visible .global .align 8 .u64 counts[" . @lines . '];'/e for @text;
open my $f, '>', "$tmp/counted.ptx" or die;
print $f join("\n", @text), "\n";
close $f;

sub launch { # launch PTX OUT PROBE OPTIONS, ARGUMENTS: status
	my ($ptx, $out, $probe, $arguments) = @_;
	return system("$build/egpu run --softgpu --allow-empty -o $tmp/report $probe -- $tmp/runner $ptx $tmp/$out $tmp/counts $arguments >$tmp/out 2>&1");
}

for (['h_brx', 4, 33, 'b:65536 3'], ['h_vec', 1, 256, 'b:65536'], ['h_call', 1, 60, 'b:65536'], ['h_names$x', 1, 64, 'b:65536'],
	['h_empty', 3, 9, ''], ['h_ret', 3, 9, ''], ['h_loop', 1, 40, 'b:65536 5'], ['h_loop', 2, 1024, 'b:65536 0'], ['h_cpasync_bar', 1, 64, 'b:65536'])
{
	my ($kernel, $grid, $block, $arguments) = @$_;
	my $what = "$kernel, $grid x $block";
	my @sets = (
		launch("$tmp/counted.ptx", 'reference', '-k none memtrace', "'$kernel' $grid $block $arguments"),
		launch("$here/kernels/odd.ptx", 'plain', '-k none memtrace', "'$kernel' $grid $block $arguments"),
		launch("$here/kernels/odd.ptx", 'probed', "--json=$tmp/json $here/probes/sites.bpf.c", "'$kernel' $grid $block $arguments"));
	is("@sets", '0 0 0', "$what: runs");
	ok(slurp("$tmp/plain") eq slurp("$tmp/probed"), "$what: the probed kernel leaves the same bytes");
	my $j = decode_json(slurp("$tmp/json") || '{}');
	my $globals = $j->{maps}{'.bss'}{variables};
	is(join(' ', map { $globals->{$_} // 'none' } qw(entries exits warp_entries warp_exits)), join(' ', ($grid * $block) x 4),
		"$what: every thread enters and leaves once");
	my @want = split /\n/, slurp("$tmp/counts");
	my (%want, %got, @uneven);
	@want{@lines} = @want;
	my %record = map { $_->{key} => $_->{value} } @{$j->{maps}{records}{entries}};
	for my $s (@{$j->{sites}}) {
		next unless $s->{point} =~ /^(load|store|atomic)$/ && !$s->{skipped};
		my $r = $record{$s->{id}};
		$got{$s->{ptx_line}} += $r->{executions};
		push @uneven, $s->{ptx_line} if grep { $_ != $r->{executions} } @{$r}{qw(mem warp_lanes warp_mem_lanes)};
		push @uneven, $s->{ptx_line} if $r->{bytes} != $r->{executions} * $s->{bytes};
	}
	my $show = sub { my $h = shift; join ' ', map { "$_:" . ($h->{$_} // 'none') } sort { $a <=> $b } keys %$h };
	is($show->(\%got), $show->(\%want), "$what: executions of each line");
	is("@uneven", '', "$what: lanes of warps, bytes and all forms of a point agree");
}
print "1..$n\n";
exit $failed;
