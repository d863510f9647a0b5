// SPDX-License-Identifier: Apache-2.0
/* A record for each thread of each launch, as any libbpf loader can attach it: the section begins with raw_tp/. */
#include <egpu/probe.bpf.h>

struct event {
	__u64 one;
	__u32 thread;
} __attribute__((packed));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

__u64 threads, dropped;

SEC("raw_tp/gpu/entry/fill")
int events_of(struct egpu_entry *ctx)
{
	struct event e = { 1, ctx->thread.x };
	__sync_fetch_and_add(&threads, 1);
	if (bpf_ringbuf_output(&events, &e, sizeof(e), 0))
		__sync_fetch_and_add(&dropped, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Apache-2.0";
