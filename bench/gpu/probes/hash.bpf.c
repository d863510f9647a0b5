/* SPDX-License-Identifier: Apache-2.0 */
/* hash.bpf.c - threads by a value of their block, 1,000 keys. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

SEC("gpu/entry")
int hash(struct egpu_entry *ctx)
{
	__u32 key = ctx->block.x % 1000;
	__u64 zero = 0, *v = bpf_map_lookup_elem(&threads, &key);
	if (!v) {
		bpf_map_update_elem(&threads, &key, &zero, BPF_NOEXIST);
		v = bpf_map_lookup_elem(&threads, &key);
	}
	if (v)
		*v += 1;
	return 0;
}
