// SPDX-License-Identifier: Apache-2.0
/* A hash map that many lanes fill at once: every lane must land in the one slot of its key. */
#include <egpu/probe.bpf.h>

struct block {
	__u32 x, y, z;
};

struct block_stat {
	__u64 runs;
	__u64 lanes;
	__u32 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct block);
	__type(value, struct block_stat);
} by_block SEC(".maps");

/* Smaller than its number of keys. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u64);
	__type(value, __u32);
} crowded SEC(".maps");

__u64 refused, updated, failed;

SEC("gpu/entry")
int blocks(struct egpu_entry *ctx)
{
	struct block key = { .x = ctx->block.x % 64, .y = 7 };
	struct block_stat *s = bpf_map_lookup_elem(&by_block, &key);
	if (!s) {
		struct block_stat zero = {};
		long err = bpf_map_update_elem(&by_block, &key, &zero, BPF_NOEXIST);
		if (err && err != -17)
			failed++;
		s = bpf_map_lookup_elem(&by_block, &key);
	}
	if (!s) {
		failed++;
		return 0;
	}
	s->runs++;
	s->lanes += ctx->lane;
	s->last = 5;
	__u64 wide = ctx->thread.x % 40;
	__u32 one = 1;
	if (bpf_map_update_elem(&crowded, &wide, &one, BPF_ANY))
		refused++;
	else
		updated++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
