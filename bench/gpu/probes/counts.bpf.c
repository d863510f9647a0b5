/* SPDX-License-Identifier: Apache-2.0 */
/* counts.bpf.c - executions and bytes of each access to global memory. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct site {
	__u64 executions, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct site);
} sites SEC(".maps");

SEC("gpu/mem")
int counts(struct egpu_mem *ctx)
{
	__u32 key = ctx->site;
	struct site *s;
	if (ctx->space != EGPU_SPACE_GLOBAL)
		return 0;
	s = bpf_map_lookup_elem(&sites, &key);
	if (s) {
		s->executions += 1;
		s->bytes += ctx->bytes;
	}
	return 0;
}
