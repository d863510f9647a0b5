/* SPDX-License-Identifier: Apache-2.0 */
/* Probes in the style of common tracing tools: they count, make histograms, filter on a pattern, keep state by key and stream
 * records. Each is its own program; results do not depend on the order in which threads run, so every executor agrees.
 * tests/unit/translate_tools.c compiles this file with each clang at each level of optimisation. */
#include <egpu/probe.bpf.h>

#define ARRAY(name_, n_, type_)                                                                    \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, n_);                                                           \
		__type(key, __u32);                                                                \
		__type(value, type_);                                                              \
	} name_ SEC(".maps")

static __always_inline __u32 log2_of(__u64 v)
{
	__u32 r, shift;
	r = (v > 0xffffffff) << 5;
	v >>= r;
	shift = (v > 0xffff) << 4;
	v >>= shift;
	r |= shift;
	shift = (v > 0xff) << 3;
	v >>= shift;
	r |= shift;
	shift = (v > 0xf) << 2;
	v >>= shift;
	r |= shift;
	shift = (v > 0x3) << 1;
	v >>= shift;
	r |= shift;
	return r | (__u32)(v >> 1);
}

/* A number that looks like data, the same for a thread wherever it runs. */
static __always_inline __u64 sample_of(const struct egpu_entry *ctx)
{
	__u64 x = (__u64)ctx->block.x * ctx->block_dim.x + ctx->thread.x + 1;
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

/* funccount: how often, by who. */
ARRAY(calls_by_warp, 8, __u64);
SEC("gpu/entry")
int funccount(struct egpu_entry *ctx)
{
	__u32 warp = ctx->thread.x / 32;
	__u64 *n = bpf_map_lookup_elem(&calls_by_warp, &warp);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

/* biolatency: a histogram by powers of two. */
struct hist {
	__u32 slots[64];
};
ARRAY(latency, 4, struct hist);
SEC("gpu/entry")
int biolatency(struct egpu_entry *ctx)
{
	__u64 v = sample_of(ctx) >> (ctx->thread.x & 63);
	__u32 key = ctx->block.x & 3, slot = log2_of(v);
	struct hist *h = bpf_map_lookup_elem(&latency, &key);
	if (!h)
		return 0;
	if (slot >= 64)
		slot = 63;
	__sync_fetch_and_add(&h->slots[slot], 1);
	return 0;
}

/* A linear histogram in a per-CPU array, the bucket computed with division. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u64);
} sizes SEC(".maps");
const volatile __u32 bucket_size = 13;
SEC("gpu/entry")
int bitesize(struct egpu_entry *ctx)
{
	__u32 size = (__u32)(sample_of(ctx) % 400), bucket = size / bucket_size;
	__u64 *n = bpf_map_lookup_elem(&sizes, &bucket);
	if (n)
		(*n)++;
	return 0;
}

/* opensnoop: only what a pattern with a wildcard matches. */
const volatile char wanted[8] = "a?c";
__u64 matched, tried;
static __always_inline void text_of(__u64 v, char text[8])
{
	for (int i = 0; i < 7; i++)
		text[i] = 'a' + (v >> (3 * i) & 3);
	text[7] = 0;
}
SEC("gpu/entry")
int opensnoop(struct egpu_entry *ctx)
{
	char name[8];
	text_of(sample_of(ctx) >> 11, name);
	tried++;
	for (int i = 0; i < 8; i++) {
		char w = wanted[i];
		if (!w)
			break;
		if (w != '?' && w != name[i])
			return 0;
	}
	matched++;
	return 0;
}

/* Substring search: two loops. */
__u64 found_at[8];
SEC("gpu/entry")
int strstr_snoop(struct egpu_entry *ctx)
{
	char name[8];
	text_of(sample_of(ctx) >> 7, name);
	for (__u32 at = 0; at < 6; at++)
		if (name[at] == 'b' && name[at + 1] == 'a') {
			__sync_fetch_and_add(&found_at[at & 7], 1);
			return 0;
		}
	__sync_fetch_and_add(&found_at[7], 1);
	return 0;
}

/* tcptop: sums by a key of several parts. */
struct flow {
	__u32 block;
	__u16 port;
	__u8 kind;
	__u8 zero;
};
struct traffic {
	__u64 bytes;
	__u64 packets;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct flow);
	__type(value, struct traffic);
} flows SEC(".maps");
SEC("gpu/entry")
int tcptop(struct egpu_entry *ctx)
{
	__u64 v = sample_of(ctx);
	struct flow key = { .block = ctx->block.x, .port = (__u16)(v & 3) + 440, .kind = v >> 8 & 1 };
	struct traffic zero = { 0 }, *t = bpf_map_lookup_elem(&flows, &key);
	if (!t) {
		bpf_map_update_elem(&flows, &key, &zero, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&flows, &key);
		if (!t)
			return 0;
	}
	__sync_fetch_and_add(&t->bytes, v >> 50);
	__sync_fetch_and_add(&t->packets, 1);
	return 0;
}

/* offcputime: state of a thread kept under its key, taken out again. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} started SEC(".maps");
__u64 spans, elapsed;
SEC("gpu/entry")
int offcputime(struct egpu_entry *ctx)
{
	__u64 who = (__u64)ctx->block.x << 32 | ctx->thread.x, at = sample_of(ctx) >> 40, *from;
	if (bpf_map_update_elem(&started, &who, &at, BPF_ANY))
		return 0;
	from = bpf_map_lookup_elem(&started, &who);
	if (!from)
		return 0;
	__u64 delta = at + 17 - *from;
	bpf_map_delete_elem(&started, &who);
	__sync_fetch_and_add(&spans, 1);
	__sync_fetch_and_add(&elapsed, delta);
	return 0;
}

/* execsnoop: a record for each event, filled in place. */
struct event {
	__u64 value;
	__u32 block, thread;
	char text[8];
};
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");
SEC("gpu/entry")
int execsnoop(struct egpu_entry *ctx)
{
	__u64 v = sample_of(ctx);
	if (v & 1)
		return 0;
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return 0;
	e->value = v;
	e->block = ctx->block.x;
	e->thread = ctx->thread.x;
	text_of(v, e->text);
	if (e->text[0] == 'd')
		bpf_ringbuf_discard(e, 0);
	else
		bpf_ringbuf_submit(e, 0);
	return 0;
}

/* profile: samples one in n, from the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} samples SEC(".maps");
SEC("gpu/entry")
int profile(struct egpu_entry *ctx)
{
	struct {
		__u64 value;
		__u32 words[3];
		__u32 n;
	} s = { .value = sample_of(ctx) };
	if (s.value % 5)
		return 0;
	for (int i = 0; i < 3; i++) {
		s.words[i] = (__u32)(s.value >> (8 * i));
		s.n += s.words[i] & 1;
	}
	bpf_ringbuf_output(&samples, &s, sizeof(s), 0);
	return 0;
}

/* llcstat: largest and smallest by compare-and-swap. */
__u64 largest, smallest = ~0ull;
SEC("gpu/entry")
int extremes(struct egpu_entry *ctx)
{
	__u64 v = sample_of(ctx);
	for (int i = 0; i < 8; i++) {
		__u64 old = *(volatile __u64 *)&largest;
		if (v <= old || __sync_val_compare_and_swap(&largest, old, v) == old)
			break;
	}
	__u64 old = *(volatile __u64 *)&smallest;
	if (v < old)
		__sync_val_compare_and_swap(&smallest, old, v);
	return 0;
}

/* A state machine, in a function that is not inlined. */
ARRAY(states, 16, __u64);
static __noinline __u32 next_state(__u32 state, __u64 input)
{
	switch ((state << 1 | (input & 1)) & 7) {
	case 0:
		return 1;
	case 1:
		return 2;
	case 2:
		return 0;
	case 3:
		return 3;
	case 5:
		return 1;
	case 6:
		return 4;
	default:
		return state ^ 1;
	}
}
SEC("gpu/entry")
int tcpstates(struct egpu_entry *ctx)
{
	__u64 v = sample_of(ctx);
	__u32 state = 0;
	for (int i = 0; i < 20; i++)
		state = next_state(state, v >> i);
	state &= 15;
	__u64 *n = bpf_map_lookup_elem(&states, &state);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

/* A checksum over a number's bytes, by bpf_loop and a callback. */
struct crc {
	__u64 data;
	__u32 crc;
};
ARRAY(checksums, 16, __u64);
static long crc_step(__u64 i, struct crc *c)
{
	c->crc ^= (__u32)(c->data & 0xff);
	c->data >>= 8;
	for (int bit = 0; bit < 8; bit++)
		c->crc = c->crc >> 1 ^ (0xedb88320 & -(c->crc & 1));
	return !c->data;
}
SEC("gpu/entry")
int checksum(struct egpu_entry *ctx)
{
	struct crc c = { .data = sample_of(ctx) >> (ctx->thread.x & 31), .crc = ~0u };
	long rounds = bpf_loop(8, crc_step, &c, 0);
	__u32 bin = (c.crc ^ (__u32)rounds) & 15;
	__u64 *n = bpf_map_lookup_elem(&checksums, &bin);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

/* A look at every element of a map, its sum taken by a callback. */
ARRAY(weights, 6, __u64);
__u64 weighed;
struct weigh {
	__u64 sum, factor;
};
static long weigh_one(void *map, __u32 *key, __u64 *value, struct weigh *w)
{
	w->sum += (*key + 1) * w->factor + (*value & 0);
	return 0;
}
SEC("gpu/entry")
int weighing(struct egpu_entry *ctx)
{
	struct weigh w = { .factor = ctx->lane + 1 };
	__u64 elements = bpf_for_each_map_elem(&weights, weigh_one, &w, 0);
	__sync_fetch_and_add(&weighed, w.sum + elements);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
