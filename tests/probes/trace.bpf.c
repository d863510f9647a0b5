// SPDX-License-Identifier: Apache-2.0
/* Text, time, SM. */
#include <egpu/probe.bpf.h>

static long (*const puts)(const char *text) = (void *)501;
__u64 first_ns, bad_time, bad_cpu;

SEC("gpu/entry")
int trace(struct egpu_entry *ctx)
{
	__u64 now = bpf_ktime_get_ns(), later = bpf_ktime_get_ns();
	if (later < now)
		bad_time++;
	if (bpf_get_smp_processor_id() != ctx->sm)
		bad_cpu++;
	if (ctx->lane == 2)
		bpf_printk("lane %d of block %d: 100%%", ctx->lane, ctx->block.x);
	if (ctx->lane == 3 && puts("50% of %d") != 10)
		bad_cpu++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
