#!/bin/sh
# What a probe is expected to cost is said before it runs, with a range, in text and JSON; and it grows with what the probe does. How
# good the figure is on a GPU is in docs/performance.md.
. "$(dirname "$0")/lib.sh"
[ -x "$samples/vecadd" ] || skip_all "samples are not built"
for name in light heavy shared; do
	cat >"$tmp/$name.bpf.c" <<-EOF
	#include <egpu/probe.bpf.h>
	char LICENSE[] SEC("license") = "Apache-2.0";
	struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 64); __type(key, __u32); __type(value, __u64); } counts SEC(".maps");
	EOF
done
cat >>"$tmp/light.bpf.c" <<EOF
SEC("gpu/entry") int light(struct egpu_entry *ctx)
{
	__u32 key = 0;
	__u64 *v = bpf_map_lookup_elem(&counts, &key);
	if (v) *v += 1;
	return 0;
}
EOF
cat >>"$tmp/heavy.bpf.c" <<EOF
SEC("gpu/mem") int heavy(struct egpu_mem *ctx)
{
	__u32 key = (ctx->address >> 2) & 63;
	__u64 *v = bpf_map_lookup_elem(&counts, &key);
	if (v) *v += ctx->address;
	return 0;
}
EOF
cat >>"$tmp/shared.bpf.c" <<EOF
SEC("gpu/mem") int shared(struct egpu_mem *ctx)
{
	__u32 key = (ctx->address >> 2) & 63;
	__u64 *v;
	if (ctx->space != EGPU_SPACE_SHARED)
		return 0;
	v = bpf_map_lookup_elem(&counts, &key);
	if (v) *v += ctx->address;
	return 0;
}
EOF
for name in light heavy shared; do
	run "$egpu" run $on -v --json="$tmp/$name.json" "$tmp/$name.bpf.c" -- "$samples/vecadd" 1000
	is $status 0 "$name runs"
	is "$(json "$tmp/$name.json" 'my $e = $j->{kernels}[0]{estimate}; $e->{least} >= 1 && $e->{least} <= $e->{slowdown} && $e->{slowdown} <= $e->{most} ? 1 : 0')" \
		1 "$name: an estimate with its range"
	figure=$(json "$tmp/$name.json" 'my $e = $j->{kernels}[0]{estimate}; sprintf "%.2f times as long, as a rule between %.2f and %.2f", @$e{qw(slowdown least most)}')
	is "$(grep -c "^egpu: estimate: vecadd will take about $figure" "$tmp/err")" 1 "$name: -v says so, once"
	is "$(grep -n 'estimate:\|^coverage' "$tmp/err" | head -1 | grep -c estimate:)" 1 "$name: before the report"
	run "$egpu" instrument -v -k vecadd -o /dev/null "$tmp/$name.bpf.c" "$samples/vecadd.ptx"
	is "$(grep -c "estimate: $figure" "$tmp/err")" 1 "$name: egpu instrument -v says the same without a run"
	run "$egpu" run $on "$tmp/$name.bpf.c" -- "$samples/vecadd" 1000
	is "$(grep -c "estimate:" "$tmp/err")" 0 "$name: nothing is said without -v"
done
# What guards cost is up to the programs that come.
run "$egpu" run $on -v --live -k vecadd --json="$tmp/json" -- "$samples/vecadd" 1000
is "$status $(grep -c "estimate:" "$tmp/err") $(json "$tmp/json" '$j->{kernels}[0]{state}, $j->{kernels}[0]{estimate}')" "0 0 instrumented null" "of guards alone nothing is said"
# One warp in 8 pays an eighth of it.
run "$egpu" run $on -v --json="$tmp/part.json" --sample-warps 8 "$tmp/heavy.bpf.c" -- "$samples/vecadd" 1000
excess() { json "$tmp/$1.json" '1e6 * ($j->{kernels}[0]{estimate}{slowdown} - 1)'; }
is "$(perl -e 'my $d = $ARGV[0] - 8 * $ARGV[1]; print abs($d) < 0.05 * $ARGV[0] ? 1 : "@ARGV"' "$(excess heavy)" "$(excess part)")" 1 "one warp in 8: an eighth of what all take longer"
# The kernel of transpose that has a tile in shared memory.
for name in light heavy shared; do
	run "$egpu" run $on --json="$tmp/$name.json" "$tmp/$name.bpf.c" -- "$samples/transpose"
done
slow() { json "$tmp/$1.json" 'my ($m) = sort { $b <=> $a } map { $_->{estimate}{slowdown} } @{$j->{kernels}}; $m'; }
is "$(perl -e 'print $ARGV[0] < 1.1 && $ARGV[1] > $ARGV[0] && $ARGV[2] > 1.5 * $ARGV[1] - 0.5 ? 1 : "@ARGV"' "$(slow light)" "$(slow shared)" "$(slow heavy)")" 1 \
	"an entry counter costs little, each lane's additions at some accesses more, at all of them most"
finish
