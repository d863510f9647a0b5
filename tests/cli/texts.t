#!/bin/sh
# ptxas accepts every PTX text that stands in the binaries: kernels of egpu's own, which the software GPU may take more leniently.
. "$(dirname "$0")/lib.sh"
ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null)
[ -n "$ptxas" ] || skip_all "no ptxas"
cat >"$tmp/texts.pl" <<'P'
use strict;
my ($dir, @files) = @ARGV;
my $n = 0;
for my $file (@files) {
	open(my $in, '<:raw', $file) or die "$file: $!";
	local $/;
	for my $text (grep { /^\.version .*\.entry/s } split /\0/, <$in>) {
		# A format: version and target, and then numbers.
		if ($text =~ /%%/) {
			$text =~ s/^\.version %s\n\.target %s/.version 6.3\n.target sm_75/;
			$text =~ s/%u/4096/g;
			$text =~ s/%%/%/g;
		}
		open(my $out, '>', sprintf('%s/%02d.ptx', $dir, $n++)) or die;
		print $out $text;
	}
}
P
perl "$tmp/texts.pl" "$tmp" "$EGPU_BUILD"/src/agent/libegpu-agent.so "$egpu"
is "$(($(ls "$tmp"/*.ptx | wc -l) >= 4))" 1 "clock, local memory, doorbell, self-test: their texts are found"
for text in "$tmp"/*.ptx; do
	name=$(sed -n 's/.*\.entry \([A-Za-z0-9_]*\).*/\1/p' "$text" | head -1)
	run "$ptxas" -arch=sm_90 -o /dev/null "$text"
	is $status 0 "ptxas accepts $name"
done
finish
