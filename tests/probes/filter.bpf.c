// SPDX-License-Identifier: Apache-2.0
/* Parameters, narrow context fields, constants of .rodata, and an early way out. */
#include <egpu/probe.bpf.h>

const volatile __u32 wanted = 3;
const volatile __s16 weights[4] = { -1, 2, -300, 4 };

__u64 seen, sum_param, low_bytes;
__s64 weighed;

SEC("gpu/entry")
int filter(struct egpu_entry *ctx)
{
	if (egpu_param(ctx, 1, __u32) != wanted)
		return 0;
	seen++;
	sum_param += egpu_param(ctx, 0, __u64);
	low_bytes += *((__u8 *)&ctx->thread.x) + *((__u16 *)&ctx->block.x);
	weighed += weights[ctx->lane & 3];
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
