#!/usr/bin/perl
# The README's examples are real: every ```console block is run from a directory that looks like the source tree, and
# its output compared; every ```c block whose first line names a file is that file.
use strict;
use warnings;
use Cwd 'abs_path';
use File::Temp 'tempdir';

my $source = $ENV{EGPU_SOURCE} // '.';
my $build = $ENV{EGPU_BUILD} // "$source/build";
my $tmp = tempdir(CLEANUP => 1);
mkdir "$tmp/shm";
$ENV{EGPU_DIR} = "$tmp/shm";
$ENV{EGPU_CACHE} = "$tmp/cache";
symlink abs_path($build), "$tmp/build" or die;
symlink abs_path("$source/include"), "$tmp/include" or die;
my ($clang) = (`clang --version 2>/dev/null` // '') =~ /version (\d+)/;
my ($n, $failed) = (0, 0);

sub result {
	my ($ok, $what) = @_;
	$failed ||= !$ok;
	printf "%sok %d - %s\n", $ok ? '' : 'not ', ++$n, $what;
}

for my $page (@ARGV ? @ARGV : ("$source/README.md", glob("$source/docs/*.md"))) {
	open my $f, '<', $page or die "$page: $!";
	my $text = do { local $/; <$f> };
	(my $name = $page) =~ s{^\Q$source\E/}{};
	while ($text =~ /^```c\n(.*?)^```$/msg) {
		my $code = $1;
		next unless $code =~ m{^/\* ([\w.-]+\.c)[:\s]};
		open my $out, '>', "$tmp/$1" or die;
		print $out $code;
	}
	while ($text =~ /^```console\n(.*?)^```$/msg) {
		for my $part (split /^(?=\$ )/m, $1) {
			my ($command, $want) = $part =~ /^\$ ([^\n]*)\n(.*)/s or next;
			my $got = `cd '$tmp' && ($command) 2>&1`;
			if ($got ne $want && ($clang // 0) != 14 && $want =~ /sites|OPCODE|PTX/) {
				# Another compiler may place its loads elsewhere; what was counted must agree.
				s/(ld|st)\.\S+//g, s/ +/ /g for $got, $want;
			}
			# Times are never the same.
			s/([\d.]+% of GPU time probed:) [\d.]+ of [\d.]+ ms/$1 T of T ms/ for $got, $want;
			result($got eq $want, "$name: $command");
			next if $got eq $want;
			print map { "#   got:  $_\n" } split /\n/, $got;
			print map { "#   want: $_\n" } split /\n/, $want;
		}
	}
}
print "1..$n\n";
exit $failed;
