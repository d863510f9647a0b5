#!/bin/sh
# Kernels full of products and sums (floats.c in PTX, programs/floats.cu by nvcc), probed at every point: what they compute is bit by
# bit what the driver makes of the unprobed PTX, or egpu says of the kernel that the last bit may differ. Of those of which it does not
# say so the machine code has no product that was fused and is no longer.
#
# EGPU_ON=--softgpu runs all but the machine code without a GPU; EGPU_POINTS names the points to try, EGPU_CODE those
# whose machine code is looked at.
: "${EGPU_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${EGPU_BUILD:=$EGPU_SOURCE/build}"
: "${EGPU_ON:=--gpu}"
PATH=$PATH:/usr/local/cuda/bin
d=$EGPU_BUILD/tests/device
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/shm"
EGPU_DIR=$tmp/shm EGPU_CACHE=$tmp/cache
export EGPU_DIR EGPU_CACHE
n=0
ok() { # ok STATUS DESCRIPTION
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}

cu=
if command -v nvcc >/dev/null && nvcc -O3 -arch=sm_90 -ptx -o "$tmp/cu.ptx" "$EGPU_SOURCE/tests/device/programs/floats.cu" >"$tmp/nvcc" 2>&1; then
	cu=$tmp/cu.ptx
fi
"$d/floats" --ptx >"$tmp/all.ptx"

# -- bits --
library_path=
[ "$EGPU_ON" = --softgpu ] && library_path=$EGPU_BUILD/src/softgpu
LD_LIBRARY_PATH=$library_path:${LD_LIBRARY_PATH:-} "$d/floats" --run "$tmp/plain" $cu 2>"$tmp/err"
ok $? "$(wc -l <"$tmp/plain") kernels run unprobed"
cat >"$tmp/compare.pl" <<'P'
use strict; use warnings; use JSON::PP;
my ($json, $plain, $probed, $all) = @ARGV;
sub lines { my %h; open my $f, '<', $_[0] or return (); while (<$f>) { my ($k, $v) = split ' ', $_, 2; $h{$k} = $v } %h }
my %plain = lines($plain); my %probed = lines($probed);
open my $f, '<', $json or die "$json: $!\n"; local $/;
my $j = decode_json(<$f>);
my (%flag, $bad); my ($differ, $flagged, $instrumented) = (0, 0, 0);
for my $k (@{$j->{kernels}}) {
	$flag{$k->{name}} = $k->{last_bit_may_differ};
	$instrumented++ if $k->{state} eq 'instrumented';
	$bad++, print "# $k->{name}: $k->{state}: ", $k->{reason} // '', "\n" if $k->{state} ne 'instrumented';
}
for my $k (sort keys %plain) {
	$flagged++ if $flag{$k};
	next if ($probed{$k} // '') eq $plain{$k};
	$differ++;
	$bad++, print "# $k: other bits, and nothing said\n" unless $flag{$k} && $probed{$k};
}
print "# differ: ", join(' ', grep { ($probed{$_} // '') ne $plain{$_} } sort keys %plain), "\n" if $differ;
print "# named: ", join(' ', grep { $flag{$_} } sort keys %plain), "\n" if $flagged;
print "$instrumented instrumented, $flagged named, $differ of them with other bits\n";
exit !!$bad;
P
points=${EGPU_POINTS:-$(cd "$d" && ls ./*.bpf.o)}
for o in $points; do
	p=$(basename "$o" .bpf.o)
	timeout 120 "$EGPU_BUILD/egpu" run "$EGPU_ON" --allow-empty --json="$tmp/json" -o "$tmp/report" "$d/$p.bpf.o" -- \
		"$d/floats" --run "$tmp/probed" $cu >"$tmp/out" 2>"$tmp/err"
	ok $? "$p: the kernels run"
	sed 's/^/# /' "$tmp/err" | head -5
	perl "$tmp/compare.pl" "$tmp/json" "$tmp/plain" "$tmp/probed" >"$tmp/said"
	status=$?
	ok $status "$p: $(tail -1 "$tmp/said")"
	sed '$d' "$tmp/said"
done

# -- machine code --
if ! command -v cuobjdump >/dev/null || ! command -v nvdisasm >/dev/null || ! command -v ptxas >/dev/null; then
	n=$((n + 1))
	echo "ok $n - machine code # skip no ptxas, cuobjdump and nvdisasm"
else
	# count FILE.sass KERNEL: its fused operations and its products
	count() {
		awk -v k="$2" '/Function :/ { on = $3 == k } on && / [DF]FMA[ .]/ { f++ } on && / [DF]MUL[ .]/ { m++ }
			END { print k, f + 0, m + 0 }' "$1"
	}
	ptxas -arch=sm_90 "$tmp/all.ptx" -o "$tmp/all.cubin" && cuobjdump -sass "$tmp/all.cubin" >"$tmp/all.sass"
	for p in ${EGPU_CODE:-mem mem_thread load_done block insn_mov branch insn_add warp_mem}; do
		mkdir "$tmp/$p"
		"$EGPU_BUILD/egpu" instrument -v -k '/_f(32|32ftz|64)$/' "$d/$p.bpf.o" "$tmp/all.ptx" -o "$tmp/$p" 2>"$tmp/$p.said"
		for k in "$tmp/$p"/*.ptx; do
			echo "$k"
		done | xargs -P "$(nproc)" -I @ sh -c 'ptxas -arch=sm_90 @ -o @.cubin 2>/dev/null && cuobjdump -sass @.cubin >@.sass'
		for k in "$tmp/$p"/*.ptx; do
			name=$(basename "$k" .ptx)
			count "$k.sass" "$name"
			count "$tmp/all.sass" "$name" >>"$tmp/$p.before"
		done >"$tmp/$p.after"
		sed -n 's/^\([^ :]*\): .*last bit may differ.*/\1/p' "$tmp/$p.said" | sort >"$tmp/$p.named"
		# A loop that is not unrolled has fewer of everything: what counts is that nothing is left unfused that was not.
		awk -v named="$tmp/$p.named" 'BEGIN { while ((getline k < named) > 0) flag[k] = 1 }
			FNR == NR { fused[$1] = $2; products[$1] = $3; next }
			{ all++; worse = ($3 > products[$1] || (fused[$1] && !$2)) }
			flag[$1] { print "# named " $1 ": fused " fused[$1] " -> " $2 ", products " products[$1] " -> " $3; n++; split_ += worse }
			!flag[$1] && worse { print "# parted, and nothing said: " $1 ": fused " fused[$1] " -> " $2 ", products " products[$1] " -> " $3; bad = 1 }
			END { print all " kernels, " n + 0 " named, " split_ + 0 " of them with a product parted from its sum"; exit bad || !all }' \
			"$tmp/$p.before" "$tmp/$p.after" >"$tmp/said"
		status=$?
		ok $status "$p, machine code: $(tail -1 "$tmp/said")"
		sed '$d' "$tmp/said"
	done
fi
echo "1..$n"
