#!/bin/sh
# A count that begins with the key is exact: lanes and warps that all find nothing, and all make the key, count one after the other.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
probe=$EGPU_SOURCE/tests/cli/probes/begins.bpf.c

sum() { # sum MAP [FIELD]
	json "$tmp/json" 'eval { my $s = 0; $s += ref $_->{value} ? $_->{value}{'"${2:-x}"'} : $_->{value} for @{$j->{maps}{'"$1"'}{entries}}; $s }'
}

for built in "clang v3" "clang-14 v2" "clang-19 v4"; do
	compiler=${built% *}
	command -v $compiler >/dev/null || continue
	object=$tmp/probe.bpf.o
	$compiler -O2 -g -target bpf -mcpu="${built#* }" -I"$EGPU_SOURCE/include" -idirafter "/usr/include/$(uname -m)-linux-gnu" -c "$probe" -o "$object"
	for n in 64 3000; do
		threads=$(((n + 255) / 256 * 256))
		run "$egpu" run $on --json="$tmp/json" -o "$tmp/report" "$object" -- "$samples/vecadd" $n
		is "$status $(sum by_kernel) $(sum by_site) $(sum by_lane) $(sum by_block)" "0 $threads $((2 * n)) $((2 * n)) $((2 * n))" \
			"$built, vecadd $n: by kernel, site, lane (per CPU), block (LRU)"
		is "$(sum sums runs) $(sum sums bytes) $(sum noexist) $(sum zeroed) $(sum by_warp) $(sum both)" "$n $((4 * n)) $n $((2 * n)) $threads $((2 * threads))" \
			"$built, vecadd $n: two sums, BPF_NOEXIST, zero first, by warp, two keys"
		[ "$(sum spilled)" -gt 0 ] && [ "$(sum spilled)" -le $((2 * n)) ]
		ok $? "$built, vecadd $n: an address that was spilled is not 0 where the program has looked"
		is "$(($(sum by_caller) + $(sum made)))" $n "$built, vecadd $n: what a caller is told of either way, not of both"
		is "$(sum one_to_one)" 224 "$built, vecadd $n: what is set without a look-up"
	done
done
run "$egpu" instrument -o "$tmp/probed.ptx" "$probe" "$samples/vecadd.ptx"
is $status 0 "instrument"
takes "$tmp/probed.ptx" sm_75 sm_80 sm_90
finish
