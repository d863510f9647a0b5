#!/bin/sh
# Histograms: egpu_hist_add's buckets hold what they say, egpu draws them, and any map of numbers on request.
. "$(dirname "$0")/lib.sh"

cat > "$tmp/hist.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
EGPU_HIST(threads);
EGPU_HIST(edges);
struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 100); __type(key, __u64); __type(value, __u32); } warps SEC(".maps");
SEC("gpu/entry")
int count(struct egpu_entry *ctx)
{
	__u64 t = ctx->block.x * ctx->block_dim.x + ctx->thread.x, warp = ctx->warp;
	__u32 n = 1, *v = bpf_map_lookup_elem(&warps, &warp);
	egpu_hist_add(&threads, t);
	egpu_hist_add(&edges, t & 1 ? ~0ull >> (t % 64 - 1) : 1ull << t % 64);
	if (v)
		__sync_fetch_and_add(v, 1);
	else if (bpf_map_update_elem(&warps, &warp, &n, BPF_NOEXIST) && (v = bpf_map_lookup_elem(&warps, &warp)))
		__sync_fetch_and_add(v, 1);
	return 0;
}
char LICENSE[] SEC("license") = "Apache-2.0";
C
run "$egpu" run --softgpu=sm_90,sms=5 --json="$tmp/json" -o "$tmp/report" "$tmp/hist.bpf.c" -- "$samples/vecadd" 1000
is $status 0 "the program is unharmed"
# vecadd has blocks of 256: 1,024 threads, numbers 0 to 1,023.
is "$(json "$tmp/json" 'map { $_->{value} } @{$j->{maps}{threads}{entries}}[0 .. 12]')" "1 1 2 4 8 16 32 64 128 256 512 0 0" "each bucket holds its powers of two"
# Each of 64 remainders 16 times: even ones have bit r alone, of bucket r + 1, odd ones the low 65 - r bits, of bucket 65 - r.
is "$(json "$tmp/json" 'map { $_->{value} == ($_->{key} ? 16 : 0) ? () : "$_->{key}:$_->{value}" } @{$j->{maps}{edges}{entries}}')" "" "up to 2^64 - 1"
grep -A12 '^map threads' "$tmp/report" >"$tmp/part"
is "$(grep -c '|' "$tmp/part")" 11 "as many lines as buckets between the first and the last"
grep -Eq '^ +512 \.\. 1023 +512  \|\*{40}\|$' "$tmp/part"
ok $? "the largest count has the longest bar"
grep -Eq '^ +256 \.\. 511 +256  \|\*{20} {20}\|$' "$tmp/part"
ok $? "half of it half of that"
grep -Eq '^ +0 +1  \|\* {39}\|$' "$tmp/part"
ok $? "what is not zero shows"

"$egpu" run --softgpu -o "$tmp/report2" "$tmp/hist.bpf.c" -- sh -c "$samples/vecadd 1000; echo >$tmp/ready; sleep 30" >"$tmp/bg" 2>&1 &
loader=$!
i=0
while [ ! -e "$tmp/ready" ] && [ $i -lt 200 ]; do sleep 0.1; i=$((i + 1)); done
run "$egpu" map dump --session $loader --hist warps
is "$(grep -Ec '^ +[0-7] +128  \|\*{40}\|$' "$tmp/out")" 8 "map dump --hist: any map of numbers has bars"
run "$egpu" map dump --session $loader warps
is "$(grep -c '|' "$tmp/out")" 0 "and none where it is not asked for"
kill $loader
wait $loader
finish
