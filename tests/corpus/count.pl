#!/usr/bin/perl
# Counts the sites of each kernel of a PTX file from its text alone, sharing nothing with the parser:
# comments and strings go, functions are cut at their braces, statements at their semicolons.
#
#	count.pl FILE.ptx     ->  NAME load 3 store 1 atomic 0 exit 2 branch 1 barrier 0 call 0 done 3
use strict;
use warnings;

local $/;
open my $in, '<', $ARGV[0] or die "$ARGV[0]: $!\n";
my $text = <$in>;
$text =~ s{/\*.*?\*/}{ }gs;
$text =~ s{//[^\n]*}{}g;
$text =~ s{\.pragma\s*"[^"]*"\s*;}{ }g;
$text =~ s{"(?:\\.|[^"\\])*"}{""}g;
my %alias;
while ($text =~ /\.alias\s+([\w\$]+)\s*,\s*([\w\$]+)\s*;/g) { $alias{$1} = $2 }

my (%body, @kernels);
while ($text =~ /\.(entry|func)\b/g) {
	my $kind = $1;
	my $rest = substr $text, pos $text;
	$rest =~ s/^\s*\([^()]*\)// if $kind eq 'func';          # results
	$rest =~ s/^\s*(?:\.noreturn\s*)?([\w\$]+)// or next;
	my $name = $1;
	$rest =~ /^[^{;]*([{;])/s or next;
	next if $1 eq ';';
	my ($depth, $from) = (0, index $rest, '{');
	my $to = $from;
	for (; $to < length $rest; $to++) {
		my $c = substr $rest, $to, 1;
		$depth++ if $c eq '{';
		$depth-- if $c eq '}';
		last unless $depth;
	}
	$body{$name} = substr $rest, $from + 1, $to - $from - 1;
	push @kernels, $name if $kind eq 'entry';
}

sub statements { # guard, opcode, rest
	my @list;
	my $body = $_[0];
	$body =~ s/\.section[^{]*\{[^}]*\}//g;
	for my $s (split /;/, $body) {
		1 while $s =~ s/^\s*(?:[{}]|[\w\$]+\s*:(?!:))//; # braces of scopes, labels
		$s =~ s/^\s*\.loc[^\n]*\n//mg;
		1 while $s =~ s/^\s*(?:[{}]|[\w\$]+\s*:(?!:)|\.loc[^\n]*\n|\@\@DWARF[^\n]*\n)//;
		$s =~ /^\s*(\@!?[\w\$%]+\s+)?([a-z][\w:]*(?:\.[\w:]+)*)(.*)/s or next;
		push @list, [$1 // '', $2, $3 // ''];
	}
	return @list;
}

sub kind {
	my ($op) = @_;
	return '' if $op =~ /\.param\b/ || $op =~ /^(prefetch|discard|applypriority|mbarrier)/;
	return 'load' if $op =~ /^(ld|ldu|ldmatrix|tex|tld4|suld)\./ || $op =~ /^multimem\.ld_reduce/;
	return 'load' if $op =~ /^wmma\.load/ || $op =~ /^wgmma\.mma_async/ || $op =~ /^cp\.async\.c[ag]\./;
	return 'load' if $op =~ /^cp\.async\.bulk\.(tensor\.\dd\.)?shared::\w+\.global/;
	return 'store' if $op =~ /^(st|stmatrix|sust)\./ || $op =~ /^(multimem\.st|wmma\.store|tensormap\.replace)\b/;
	return 'store' if $op =~ /^cp\.async\.bulk\.(tensor\.\dd\.)?(global|shared::cluster)\.shared::cta/;
	return 'atomic' if $op =~ /^(atom|red|sured)\./ || $op =~ /^(multimem\.red|cp\.reduce\.async\.bulk)\b/;
	return '';
}

for my $kernel (@kernels) {
	my (%seen, %n);
	my @work = ($kernel);
	while (defined(my $f = shift @work)) {
		$f = $alias{$f} if !defined $body{$f} && defined $alias{$f};
		next if !defined $body{$f} || $seen{$f}++;
		my @list = statements($body{$f});
		for (@list) {
			my ($guard, $op, $rest) = @$_;
			my $kind = kind($op);
			$n{$kind}++ if $kind;
			$n{done}++ if $op =~ /^(ldu?)\./ && $kind || $op =~ /^multimem\.ld_reduce/;
			$n{exit}++ if $op eq 'exit' || ($op =~ /^ret\b/ && $f eq $kernel);
			$n{branch}++ if $guard && $op =~ /^bra\b/;
			$n{barrier}++ if $op =~ /^(bar|barrier)\./ || $op =~ /^mbarrier\.(arrive|test_wait|try_wait)/;
			next if $op !~ /^call\b/;
			$n{call}++;
			push @work, $1 if $rest =~ /^\s*(?:\([^()]*\)\s*,\s*)?([\w\$]+)/;
		}
		# Control may also reach the closing brace.
		next if $f ne $kernel;
		my $tail = $body{$f};
		$tail =~ s/\s+$//;
		my $last = $list[-1];
		my $label_last = $tail =~ /:\s*(?:\.loc[^\n]*\n?|\s)*$/;
		$n{exit}++ if $label_last || !$last || $last->[0] || $last->[1] !~ /^(ret|exit|bra|brx|trap)\b/;
	}
	print join(' ', $kernel, map { ($_, $n{$_} // 0) } qw(load store atomic exit branch barrier call done)), "\n";
}
