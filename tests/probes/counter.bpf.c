// SPDX-License-Identifier: Apache-2.0
/* Counters by every spelling of an addition: one lane, one add each, whatever clang makes of it. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64[8]);
} counts SEC(".maps");

__u64 total;
__u32 small = 7;
__s64 balance;

SEC("gpu/load")
int counter(struct egpu_mem *ctx)
{
	__u32 key = ctx->site & 7;
	__u64 *v = bpf_map_lookup_elem(&counts, &key);
	if (!v)
		return 0;
	v[0]++;
	v[1] += ctx->bytes;
	v[2] -= ctx->lane;
	v[3] += ctx->lane > 5 ? 3 : 1; /* control flow between load and store */
	__u64 old = v[4]++;	       /* the old value is used */
	if (old & 1)
		v[5] += 2;
	if (ctx->lane == 3 || ctx->lane == 17)
		v[6] += ctx->lane;
	__sync_fetch_and_add(&v[7], 1);
	total++;
	small += ctx->lane;
	balance -= ctx->lane;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
