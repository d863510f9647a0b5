/* SPDX-License-Identifier: Apache-2.0 */
/* record.bpf.c - 16 bytes for each lane of each access to global memory. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct access {
	__u64 address;
	__u32 site, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 << 20);
} accesses SEC(".maps");

SEC("gpu/mem")
int record(struct egpu_mem *ctx)
{
	struct access a = { ctx->address, ctx->site, ctx->bytes };
	if (ctx->space == EGPU_SPACE_GLOBAL)
		bpf_ringbuf_output(&accesses, &a, sizeof(a), 0);
	return 0;
}
