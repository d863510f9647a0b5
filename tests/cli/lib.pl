# What the tests in Perl share: `require` it. EGPU_SOURCE and EGPU_BUILD say where things are, EGPU_ON=--gpu runs them there.
use strict;
use warnings;
use File::Temp 'tempdir';
use JSON::PP;

our $source = $ENV{EGPU_SOURCE} // '.';
our $build = $ENV{EGPU_BUILD} // "$source/build";
our $here = "$source/tests/cli";
our $on = $ENV{EGPU_ON} // '--softgpu';
our $tmp = tempdir(CLEANUP => 1);
our ($n, $failed) = (0, 0);
mkdir "$tmp/shm";
$ENV{EGPU_DIR} = "$tmp/shm";

sub is {
	my ($got, $want, $what) = @_;
	$failed ||= $got ne $want;
	printf "%sok %d - %s\n", $got eq $want ? '' : 'not ', ++$n, $what;
	print "#   got:  $got\n#   want: $want\n" if $got ne $want;
}

sub slurp {
	open my $f, '<:raw', $_[0] or return '';
	local $/;
	return scalar <$f>;
}

sub spit {
	open my $f, '>', $_[0] or die;
	print $f $_[1];
	close $f;
}

1;
