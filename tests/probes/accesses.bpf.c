// SPDX-License-Identifier: Apache-2.0
/* Warp records of addresses in every pattern; what the address was is known from who sent it. */
#include <egpu/probe.bpf.h>

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

__u64 sent, dropped;

static __u64 address(__u32 way, __u32 lane)
{
	__u64 base = 0x00ff123456789a00ull - way * 0x1000;
	__u32 hash = (lane + way) * 2654435761u;
	switch (way) {
	case 0: /* side by side */
		return base + 4 * lane;
	case 1: /* the same */
		return base;
	case 2: /* backwards */
		return base - 12 * lane;
	case 3: /* rows of 16 */
		return base + 4 * (lane % 16) + 5000 * (lane / 16);
	case 4: /* rows of 8, some backwards */
		return base + 8 * (lane % 8) - 100000 * (lane / 8 % 3);
	case 5: /* anywhere near */
		return base + (hash >> 4);
	case 6: /* anywhere */
		return base - ((__u64)hash << 20);
	default: /* far apart, evenly */
		return base - ((__u64)lane << 33);
	}
}

SEC("gpu/entry")
int accesses(struct egpu_entry *ctx)
{
	__u32 lane = ctx->lane;
	for (__u32 way = 0; way < 8; way++) {
		__u32 bytes = way == 1 ? 12 : 4;
		/* some lanes stay away, others take another path */
		if (((ctx->block.x + way) >> (lane & 3) & 1) && ctx->block.x & 1)
			continue;
		__u64 a = address(way, lane);
		long err;
		if (ctx->block.x & 2 && lane & 1) {
			err = bpf_egpu_access(&ring, ctx->block.x * 16 + way, a, bytes, 2);
			asm volatile("" : "+r"(err)); /* two calls, not one */
		} else {
			err = bpf_egpu_access(&ring, ctx->block.x * 16 + way, a, bytes, 1);
		}
		if (err)
			dropped++;
		else
			sent++;
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
