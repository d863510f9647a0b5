// SPDX-License-Identifier: Apache-2.0
/* Records in every way a program can send them: reserved and submitted by lanes that part, two at a time and the later first,
 * from the stack, of a size that varies, in a loop, too large for the ring. Every record says who sent it and how. */
#include <egpu/probe.bpf.h>

struct event {
	__u64 who;
	__u32 way, n;
};

struct large {
	struct event e;
	__u64 rest[40];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} tiny SEC(".maps");

__u64 sent, dropped, impossible;
__u64 source[64];

static void reserved(__u64 who, __u32 way)
{
	struct event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		dropped++;
		return;
	}
	e->who = who;
	e->way = way;
	e->n = 0;
	bpf_ringbuf_submit(e, 0);
	sent++;
}

static void two(__u64 who)
{
	struct event *a = bpf_ringbuf_reserve(&ring, sizeof(*a), 0);
	struct large *b = bpf_ringbuf_reserve(&tiny, sizeof(*b), 0);
	if (b) {
		b->e.who = who;
		b->e.way = 4;
		b->e.n = 0;
		for (int k = 0; k < 40; k++)
			b->rest[k] = who + k;
		bpf_ringbuf_submit(b, 0);
		sent++;
	} else {
		dropped++;
	}
	if (a) {
		a->who = who;
		a->way = 3;
		a->n = 0;
		bpf_ringbuf_submit(a, 0);
		sent++;
	} else {
		dropped++;
	}
}

SEC("gpu/entry")
int shapes(struct egpu_entry *ctx)
{
	__u64 who = ((__u64)ctx->block.x << 32) | ctx->thread.x;
	if (ctx->lane & 1)
		reserved(who, 1);
	else if (ctx->lane % 3)
		reserved(who, 2);
	else
		two(who);
	for (__u32 k = 0; k < 3; k++) {
		struct event e = { who, 5, k };
		if (ctx->lane % 4 == k)
			continue;
		if (bpf_ringbuf_output(&tiny, &e, sizeof(e), 0))
			dropped++;
		else
			sent++;
	}
	__u32 bytes = sizeof(struct event) + 8 * (ctx->thread.x & 31);
	if (bytes > sizeof(source))
		return 0;
	source[0] = 0xabcd;
	if (bpf_ringbuf_output(&ring, source, bytes, 0))
		dropped++;
	else
		sent++;
	if (ctx->lane == 7) {
		void *never = bpf_ringbuf_reserve(&tiny, 8192, 0);
		if (never) {
			bpf_ringbuf_submit(never, 0);
			sent++;
		} else {
			impossible++;
		}
	}
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
