/* SPDX-License-Identifier: Apache-2.0 */
/* lost.bpf.c - insertions into maps that are too small: what comes in and what is lost are all together. By thread in the program's own text, by
 * thread in a function, and once for a block. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct wide {
	__u64 n, pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 300);
	__type(key, __u32);
	__type(value, __u64);
} narrow SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10);
	__type(key, __u32);
	__type(value, __u64);
} blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 300);
	__type(key, __u32);
	__type(value, struct wide);
} called SEC(".maps");

__u64 threads, entered;

SEC("gpu/entry")
int by_thread(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x << 10 | ctx->thread.x;
	__u64 one = 1, *v = bpf_map_lookup_elem(&narrow, &key);
	threads += 1;
	if (v)
		*v += 1;
	else
		bpf_map_update_elem(&narrow, &key, &one, BPF_NOEXIST);
	return 0;
}

SEC("gpu/entry")
int by_function(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x << 10 | ctx->thread.x;
	struct wide first = { 1 }, *v = bpf_map_lookup_elem(&called, &key);
	if (v)
		v->n += 1;
	else
		bpf_map_update_elem(&called, &key, &first, BPF_NOEXIST);
	return 0;
}

SEC("gpu/entry")
int by_block(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x;
	__u64 zero = 0, *v = bpf_map_lookup_elem(&blocks, &key);
	entered += 1;
	if (!v) {
		bpf_map_update_elem(&blocks, &key, &zero, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&blocks, &key);
	}
	if (v)
		*v += 1;
	return 0;
}
