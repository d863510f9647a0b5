/* SPDX-License-Identifier: Apache-2.0 */
/* memtrace.bpf.c - counts what each memory instruction asks of memory: once per warp and access. */
#include <egpu/probe.bpf.h>

#include "memtrace.h"

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MEMTRACE_SITES);
	__type(key, __u32);
	__type(value, struct memtrace_site);
} memtrace_sites SEC(".maps");

__u64 not_recorded; /* requests at sites whose id is beyond the map */

SEC("gpu.warp/mem")
int memtrace(struct egpu_warp_mem *ctx)
{
	__u32 site = ctx->site;
	struct memtrace_site *s = bpf_map_lookup_elem(&memtrace_sites, &site);
	if (!s) {
		__sync_fetch_and_add(&not_recorded, 1);
		return 0;
	}
	__sync_fetch_and_add(&s->executions, ctx->lanes);
	__sync_fetch_and_add(&s->requests, 1);
	/* Shared, const and param accesses do not move sectors. */
	if (ctx->space == EGPU_SPACE_GLOBAL || ctx->space == EGPU_SPACE_LOCAL) {
		__sync_fetch_and_add(&s->sectors, ctx->sectors);
		__sync_fetch_and_add(&s->ideal_sectors, (ctx->distinct_bytes + 31) / 32);
	}
	return 0;
}
