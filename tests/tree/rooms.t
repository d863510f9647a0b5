#!/usr/bin/perl
# docs/hacking.md is the map: it names every room of the tree, every directory of tests and benchmarks, and every benchmark; what it names is there.
use strict;
use warnings;

chdir $ENV{EGPU_SOURCE} if $ENV{EGPU_SOURCE};
open my $f, '<', 'docs/hacking.md' or die "docs/hacking.md: $!";
my $map = do { local $/; <$f> };
my @rooms = grep { -d && glob("$_/*") } glob('src/* tests/* bench/* include/* samples scripts tools .ci');
my @missing = grep { my $room = $_; $map !~ m{\Q$room\E\b} && $room ne 'tools' || ($room eq 'tools' && $map !~ m{`tools/`}) } @rooms;
open my $built, '<', 'bench/meson.build' or die;
push @missing, grep { $map !~ /\b$_\b/ && $_ !~ /^bench_(poll|gpu)/ } map { /executable\('(\w+)'/ ? $1 : () } <$built>;
my @gone = grep { !-e } $map =~ m{`((?:src|tests|bench|samples|scripts|include|docs)/[\w./-]+)`}g;
print "1..2\n";
print @missing ? 'not ' : '', 'ok 1 - ', scalar @rooms, " rooms are named\n";
print "#   $_ is not\n" for @missing;
print @gone ? 'not ' : '', "ok 2 - what is named is there\n";
print "#   $_ is not\n" for @gone;
exit(@missing || @gone);
