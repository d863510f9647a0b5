/* SPDX-License-Identifier: Apache-2.0 */
/* passes.bpf.c - what can be counted in registers, in a word of each kind: accesses by site, threads that enter and leave. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct site {
	__u64 executions, bytes;
	__u32 small, odd;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct site);
} sites SEC(".maps");

__u64 entered, left;

SEC("gpu/mem")
int count(struct egpu_mem *ctx)
{
	__u32 key = ctx->site;
	struct site *s = bpf_map_lookup_elem(&sites, &key);
	if (s) {
		s->executions += 1;
		s->bytes += ctx->bytes;
		s->small -= 7;
		if (ctx->warp & 1)
			s->odd += 1;
	}
	return 0;
}

SEC("gpu/entry")
int enter(struct egpu_entry *ctx)
{
	entered++;
	return 0;
}

SEC("gpu/exit")
int leave(struct egpu_exit *ctx)
{
	left++;
	return 0;
}
