#!/bin/sh
# Hash maps of every kind under contention, and what the command shows of them: keys once, none lost, sums exact, on one multiprocessor and
# many, in order and in shuffled order. tests/device/maps.t does the same on a GPU, with more.
. "$(dirname "$0")/lib.sh"

. "$(dirname "$0")/maps.sh"

probe=$EGPU_SOURCE/tests/probes/maps.bpf.c

for device in sms=1,workers=1 sms=3,workers=4,seed=11 sms=132,workers=2,seed=3; do
	run "$egpu" run --softgpu=sm_90,$device --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 3000
	exact "$device" 1
done
run "$egpu" run --softgpu=sm_90,sms=4,workers=2,check --json="$tmp/json" -o "$tmp/report" "$probe" -- "$samples/vecadd" 1000
is $status 0 "checked: the program is unharmed"
is "$(grep -c 'softgpu: check' "$tmp/err")" 0 "checked: no race in any of them"
says_report() { grep -Eq -- "$2" "$tmp/report"; ok $? "$1"; }
says_report "the report names each kind" '^map lru: LRU hash, at most 128 entries'
says_report "per-CPU hashes too" '^map cpu: per-CPU hash, at most 50 entries'
# Every element is walked, a deleted one is not.
cat > "$tmp/each.bpf.c" <<'C'
#include <egpu/probe.bpf.h>
#define MAP(type_) struct { __uint(type, BPF_MAP_TYPE_##type_); __uint(max_entries, 64); __type(key, __u64); __type(value, __u64); }
MAP(LRU_HASH) lru SEC(".maps");
MAP(PERCPU_HASH) cpu SEC(".maps");
__u64 keys[2], values[2];
static long add(__u32 which, __u64 *key, __u64 *value)
{
	__sync_fetch_and_add(&keys[which], *key);
	__sync_fetch_and_add(&values[which], *value);
	return 0;
}
static long add_lru(void *map, __u64 *key, __u64 *value, void *ctx) { return add(0, key, value); }
static long add_cpu(void *map, __u64 *key, __u64 *value, void *ctx) { return add(1, key, value); }
SEC("gpu/entry")
int each(struct egpu_entry *ctx)
{
	__u64 three = 3;
	if (ctx->block.x || ctx->thread.x)
		return 0;
	for (__u64 k = 0; k < 10; k++) {
		__u64 v = 100 + k;
		bpf_map_update_elem(&lru, &k, &v, 0);
		bpf_map_update_elem(&cpu, &k, &v, 0);
	}
	bpf_map_delete_elem(&lru, &three);
	bpf_map_delete_elem(&cpu, &three);
	bpf_for_each_map_elem(&lru, add_lru, 0, 0);
	bpf_for_each_map_elem(&cpu, add_cpu, 0, 0);
	return 0;
}
char LICENSE[] SEC("license") = "Apache-2.0";
C
run "$egpu" run --softgpu=sm_90,sms=7 --json="$tmp/json" -o "$tmp/report" "$tmp/each.bpf.c" -- "$samples/vecadd" 600
is "$(json "$tmp/json" 'my $v = $j->{maps}{".bss"}{variables}; (@{$v->{keys}}, @{$v->{values}})')" "42 42 942 942" "for_each walks LRU and per-CPU hashes"
is "$(json "$tmp/json" 'join "", map { my $m = $_; map { "$_->{key}:$_->{value} " } @{$j->{maps}{$m}{entries}} } "lru", "cpu"')" \
	"$(for i in 1 2; do for k in 0 1 2 4 5 6 7 8 9; do printf '%s:%s ' $k $((100 + k)); done; done)" "and the reader finds the same"
finish
