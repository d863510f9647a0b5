/* SPDX-License-Identifier: Apache-2.0 */
/* entry.bpf.c - every thread that enters a kernel. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} threads SEC(".maps");

SEC("gpu/entry")
int entry(struct egpu_entry *ctx)
{
	__u32 key = 0;
	__u64 *v = bpf_map_lookup_elem(&threads, &key);
	if (v)
		*v += 1;
	return 0;
}
