/* SPDX-License-Identifier: Apache-2.0 */
/* adds.bpf.c - programs that only add, in the forms that the translator makes cheap. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct site {
	__u64 executions, bytes, thrice, lanes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct site);
} sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64[2]);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} columns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} few SEC(".maps");

__u64 threads, sixes, odd;

SEC("gpu/entry")
int enter(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x & 15;
	__u64 *v = bpf_map_lookup_elem(&places, &key);
	if (v) {
		v[0] += 1;
		__sync_fetch_and_add(&v[1], ctx->block.y + 1);
	}
	if (ctx->block.z & 1)
		odd++;
	threads++;
	sixes += 6;
	return 0;
}

SEC("gpu/entry")
int column(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.y;
	__u64 zero = 0, *v;
	bpf_map_update_elem(&columns, &key, &zero, BPF_NOEXIST);
	v = bpf_map_lookup_elem(&columns, &key);
	if (v)
		*v += 1;
	return 0;
}

SEC("gpu/entry")
int overfull(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x;
	__u64 zero = 0, *v;
	bpf_map_update_elem(&few, &key, &zero, BPF_NOEXIST);
	v = bpf_map_lookup_elem(&few, &key);
	if (v)
		*v += 1;
	return 0;
}

SEC("gpu/mem")
int count(struct egpu_mem *ctx)
{
	__u32 key = ctx->site;
	struct site *s = bpf_map_lookup_elem(&sites, &key);
	if (s) {
		s->executions += 1;
		s->bytes += ctx->bytes;
		s->thrice += 3;
		__sync_fetch_and_add(&s->lanes, 1);
	}
	return 0;
}
