// SPDX-License-Identifier: Apache-2.0
/* Random numbers: how often each byte value occurs, and how many of the numbers are different. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, __u32);
	__type(value, __u64);
} bytes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u32);
} seen SEC(".maps");

static __always_inline void count(__u32 at)
{
	__u64 *v = bpf_map_lookup_elem(&bytes, &at);
	if (v)
		(*v)++;
}

SEC("gpu/entry")
int chance(struct egpu_entry *ctx)
{
	for (int k = 0; k < 4; k++) {
		__u32 r = bpf_get_prandom_u32(), one = 1;
		count(r & 255);
		count(256 + (r >> 24));
		bpf_map_update_elem(&seen, &r, &one, BPF_ANY);
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
