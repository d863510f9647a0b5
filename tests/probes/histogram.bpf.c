// SPDX-License-Identifier: Apache-2.0
/* A log2 histogram in a per-CPU array. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} hist SEC(".maps");

static __always_inline __u32 log2(__u32 v)
{
	__u32 r = 0;
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

SEC("gpu/store")
int histogram(struct egpu_mem *ctx)
{
	__u32 key = log2(ctx->thread.x + 1);
	__u64 *v = bpf_map_lookup_elem(&hist, &key);
	if (v)
		*v += 1;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
