// SPDX-License-Identifier: Apache-2.0
/* A ring of records of two sizes, some discarded, some copied from the stack; more than fits. */
#include <egpu/probe.bpf.h>

struct event {
	__u64 who;
	__u64 twice;
	__u64 thrice; /* 40 bytes with the header: no multiple fills the ring */
	__u32 lane;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} ring SEC(".maps");

__u64 sent, dropped, discarded, copied;

SEC("gpu/entry")
int stream(struct egpu_entry *ctx)
{
	__u64 who = ((__u64)ctx->block.x << 32) | ctx->thread.x;
	if (ctx->lane == 9) {
		struct event e;
		__builtin_memset(&e, 0, sizeof(e)); /* its padding goes out too */
		e.who = who;
		e.twice = who * 2;
		e.thrice = who * 3;
		e.lane = ctx->lane;
		if (bpf_ringbuf_output(&ring, &e, sizeof(e), 0))
			dropped++;
		else
			copied++;
		return 0;
	}
	struct event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		dropped++;
		return 0;
	}
	e->who = who;
	e->twice = who * 2;
	e->thrice = who * 3;
	e->lane = ctx->lane;
	if (ctx->lane == 4) {
		bpf_ringbuf_discard(e, 0);
		discarded++;
		return 0;
	}
	bpf_ringbuf_submit(e, 0);
	sent++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
