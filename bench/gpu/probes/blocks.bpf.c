/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.bpf.c - how often each basic block is entered, by each thread. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

SEC("gpu/block")
int blocks_entered(struct egpu_block *ctx)
{
	__u32 key = ctx->site;
	__u64 *v = bpf_map_lookup_elem(&blocks, &key);
	if (v)
		*v += 1;
	return 0;
}
