/* SPDX-License-Identifier: Apache-2.0 */
/* chosen.bpf.c - lanes by warp: where the kernel begins, and at each store, also in the functions it calls. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} enters SEC(".maps"), stored SEC(".maps");

static __always_inline void count(void *map, __u32 block, __u32 warp)
{
	__u32 key = block * 32 + warp;
	__u64 *v = bpf_map_lookup_elem(map, &key);
	if (v)
		*v += 1;
}

SEC("gpu/entry")
int enter(struct egpu_entry *ctx)
{
	count(&enters, ctx->block.x, ctx->warp);
	return 0;
}

SEC("gpu/mem")
int store(struct egpu_mem *ctx)
{
	count(&stored, ctx->block.x, ctx->warp);
	return 0;
}
