// SPDX-License-Identifier: Apache-2.0
/* Functions that are not inlined: frames of their own, a buffer of the caller, a varying offset. */
#include <egpu/probe.bpf.h>

__u64 results[4];

struct pair {
	__u64 a, b;
};

static __noinline __u64 mix(__u64 a, __u64 b)
{
	volatile __u64 local[2] = { a * 3, b };
	return local[0] + local[1];
}

static __noinline int fill(struct pair *p, __u32 x)
{
	p->a = mix(x, 5);
	p->b = mix(p->a, x) ^ 0x55;
	return 0;
}

static __noinline __u64 pick(__u32 at)
{
	__u8 bytes[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 3, 6, 9, 12, 15, 18, 21, 24 };
	return *(volatile __u8 *)&bytes[at & 15];
}

SEC("gpu/entry")
int subprograms(struct egpu_entry *ctx)
{
	struct pair p = {};
	fill(&p, ctx->lane);
	results[0] += p.a;
	results[1] += p.b;
	results[2] += mix(ctx->lane, ctx->thread.x);
	results[3] += pick(ctx->lane);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
