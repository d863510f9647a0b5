#!/usr/bin/perl
# Dependencies point down, floor by floor: reads every #include "room/..." under src and tools and fails on a back edge.
use strict;
use warnings;

chdir $ENV{EGPU_SOURCE} if $ENV{EGPU_SOURCE};
my %floor = (
	base => 1,
	bpf => 2, ptx => 2, map => 2, cuda => 2,
	verifier => 3, cpu => 3, softgpu => 3,
	translate => 4, live => 4, syscall => 4.5, # the user-space bpf(2) calls the translator
	instrument => 5, inject => 5,
	agent => 6, cli => 6,
);
# Within a floor only these edges exist (floor 2 is a chain: maps and fragments are made of programs).
my %beside = map { $_ => 1 } qw(map>bpf cpu>verifier cli>tools);
# The agent carries no verifier, translator or libbpf.
my %never = map { $_ => 1 } qw(agent>verifier agent>translate agent>syscall agent>cpu agent>softgpu agent>cli
	cli>agent softgpu>agent instrument>verifier instrument>translate instrument>syscall instrument>softgpu);

my (@bad, $edges, $files);
for my $path (split /\n/, `find src tools -name '*.[ch]' | sort`) {
	my ($room) = $path =~ m{^src/([^/]+)/};
	$room //= 'cli'; # tools are part of the command
	$files++;
	open my $f, '<', $path or die "$path: $!";
	while (<$f>) {
		next unless m{^\s*#\s*include\s+"([^/"]+)/};
		my $to = $1;
		next if $to eq $room || $to eq 'egpu' || $to eq 'tools';
		$edges++;
		if (!defined $floor{$to}) {
			push @bad, "$path:$.: unknown room $to";
		} elsif ($never{"$room>$to"} || $floor{$to} > $floor{$room} || ($floor{$to} == $floor{$room} && !$beside{"$room>$to"})) {
			push @bad, "$path:$.: $room must not include $to";
		}
	}
}
print "1..2\n";
print $files && $edges ? "" : "not ", "ok 1 - read $files files with $edges includes between rooms\n";
print @bad ? "not " : "", "ok 2 - no include points up or sideways\n";
print "#   $_\n" for @bad;
exit !!@bad;
