/* SPDX-License-Identifier: Apache-2.0 */
/* warprec.bpf.c - a warp record for each access to global memory by a warp: 16 bytes where its lanes lie side by side. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 20);
} accesses SEC(".maps");

SEC("gpu/mem")
int warprec(struct egpu_mem *ctx)
{
	if (ctx->space == EGPU_SPACE_GLOBAL)
		egpu_access_output(&accesses, ctx);
	return 0;
}
