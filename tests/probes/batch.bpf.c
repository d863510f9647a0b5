/* SPDX-License-Identifier: Apache-2.0 */
/* batch.bpf.c - programs that send one record at each place, in all the ways that have a reservation for several places; and ring records of
 * different sizes. */
#include <egpu/probe.bpf.h>

char LICENSE[] SEC("license") = "Apache-2.0";

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 10);
} tiny SEC(".maps");

struct place {
	__u64 address;
	__u32 site, bytes;
};

struct wide {
	__u64 address;
	__u32 site, thread, block, op, space;
};

SEC("gpu/mem")
int output_global(struct egpu_mem *ctx)
{
	struct place p = { ctx->address, ctx->site, ctx->bytes };
	if (ctx->space == EGPU_SPACE_GLOBAL)
		bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	return 0;
}

SEC("gpu/mem")
int reserve_global(struct egpu_mem *ctx)
{
	struct wide *w;
	if (ctx->space != EGPU_SPACE_GLOBAL)
		return 0;
	w = bpf_ringbuf_reserve(&ring, sizeof(*w), 0);
	if (!w)
		return 0;
	w->address = ctx->address;
	w->site = ctx->site;
	w->thread = ctx->thread.x;
	w->block = ctx->block.x;
	w->op = ctx->op;
	w->space = ctx->space;
	bpf_ringbuf_submit(w, 0);
	return 0;
}

SEC("gpu/mem")
int access_global(struct egpu_mem *ctx)
{
	if (ctx->space == EGPU_SPACE_GLOBAL)
		egpu_access_output(&ring, ctx);
	return 0;
}

SEC("gpu/mem")
int access_all(struct egpu_mem *ctx)
{
	egpu_access_output(&ring, ctx);
	return 0;
}

SEC("gpu/store")
int output_stores(struct egpu_mem *ctx)
{
	struct place p = { ctx->address, ctx->site, ctx->bytes };
	if (ctx->bytes >= 4)
		bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	return 0;
}

SEC("gpu/load")
int output_tiny(struct egpu_mem *ctx)
{
	__u64 address = ctx->address;
	bpf_ringbuf_output(&tiny, &address, sizeof(address), 0);
	return 0;
}

SEC("gpu/mem")
int access_tiny(struct egpu_mem *ctx)
{
	egpu_access_output(&tiny, ctx);
	return 0;
}

__u64 seen;

/* These have none: something else happens, or more than one record, or none that a place alone decides about. */
SEC("gpu/mem")
int counts_too(struct egpu_mem *ctx)
{
	struct place p = { ctx->address, ctx->site, ctx->bytes };
	__sync_fetch_and_add(&seen, 1);
	bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	return 0;
}

SEC("gpu/mem")
int some_lanes(struct egpu_mem *ctx)
{
	struct place p = { ctx->address, ctx->site, ctx->bytes };
	if (ctx->lane & 1)
		bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	return 0;
}

SEC("gpu/mem")
int twice(struct egpu_mem *ctx)
{
	struct place p = { ctx->address, ctx->site, ctx->bytes };
	bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	p.bytes = 0;
	bpf_ringbuf_output(&ring, &p, sizeof(p), 0);
	return 0;
}

SEC("gpu/mem")
int changes_its_mind(struct egpu_mem *ctx)
{
	struct place *p = bpf_ringbuf_reserve(&ring, sizeof(*p), 0);
	if (!p)
		return 0;
	p->address = ctx->address;
	p->site = ctx->site;
	p->bytes = ctx->bytes;
	if (ctx->lane & 1)
		bpf_ringbuf_discard(p, 0);
	else
		bpf_ringbuf_submit(p, 0);
	return 0;
}
