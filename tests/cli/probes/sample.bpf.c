/* SPDX-License-Identifier: Apache-2.0 */
/* sample.bpf.c - what is added, by the structure of a launch, in each kind of map; and what cannot be scaled. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} by_warp SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u32);
} by_block SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} by_launch SEC(".maps");

struct pair {
	__u64 threads, blocks_seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct pair);
} by_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

__u64 bytes;
__u64 last SEC(".bss.last"); /* a global that is written */
const volatile __u32 with_records = 0;

SEC("gpu/entry")
int enter(struct egpu_entry *ctx)
{
	__u32 key = ctx->warp & 31, block = ctx->block.x & 15, k = ctx->block.x % 7, l = ctx->launch < 3 ? ctx->launch : 3;
	__u64 *launch = bpf_map_lookup_elem(&by_launch, &l);
	__u64 *warp = bpf_map_lookup_elem(&by_warp, &key);
	__u32 *b = bpf_map_lookup_elem(&by_block, &block);
	struct pair first = { 1, 0 }, *p;
	if (warp)
		*warp += 1;
	if (launch)
		*launch += 1;
	if (b)
		__sync_fetch_and_add(b, 1);
	p = bpf_map_lookup_elem(&by_key, &k);
	if (!p && !bpf_map_update_elem(&by_key, &k, &first, BPF_NOEXIST))
		return 0;
	p = bpf_map_lookup_elem(&by_key, &k);
	if (p)
		p->threads += 1;
	return 0;
}

SEC("gpu/store")
int stores(struct egpu_mem *ctx)
{
	__sync_fetch_and_add(&bytes, ctx->bytes);
	last = ctx->address;
	return 0;
}

SEC("gpu/exit")
int leave(struct egpu_exit *ctx)
{
	__u32 block = ctx->block.x;
	if (with_records)
		bpf_ringbuf_output(&records, &block, sizeof(block), 0);
	return 0;
}
