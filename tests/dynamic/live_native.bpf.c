/* What tests/dynamic/live_native.c attaches. */
#include <egpu/probe.bpf.h>

enum { SMS = 256, BLOCKS = 4096, GAPS = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SMS);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps");

/* The blocks' numbers of passes as they store them: how many were seen, the last and when, and between which times some were missed. */
struct seen {
	__u64 count, last, when, gaps;
	struct {
		__u64 from, to;
	} gap[GAPS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BLOCKS);
	__type(key, __u32);
	__type(value, struct seen);
} stores SEC(".maps");

static __attribute__((always_inline)) void add(__u32 which, __u64 n)
{
	__u64 *v = bpf_map_lookup_elem(&counts, &which);
	if (v)
		__sync_fetch_and_add(v, n);
}

SEC("gpu.warp/block")
int count(struct egpu_warp *ctx)
{
	__u32 sm = ctx->sm;
	__u64 *f = bpf_map_lookup_elem(&first, &sm);
	add(0, ctx->lanes);
	if (f && !*f)
		*f = bpf_ktime_get_ns();
	return 0;
}

SEC("gpu.warp/mem")
int touch(struct egpu_warp_mem *ctx)
{
	add(1, (__u64)ctx->lanes * ctx->bytes);
	return 0;
}

/* More machine code than there is room for in one function. */
SEC("gpu.warp/block")
int odd(struct egpu_warp *ctx)
{
	__u64 x = bpf_ktime_get_ns();
#pragma clang loop unroll(full)
	for (int i = 0; i < 450; i++)
		x = (x ^ x >> 13) * 6364136223846793005 + i;
	add(2, x / (ctx->sm + 1) | 1);
	return 0;
}

/* The stores of 8 bytes to global memory are those of `passes`, by one thread of each block. */
SEC("gpu/store")
int pass(struct egpu_mem *ctx)
{
	__u32 block = ctx->block.x;
	__u64 now = bpf_ktime_get_ns();
	struct seen *s = bpf_map_lookup_elem(&stores, &block);
	if (!s || ctx->bytes != 8 || ctx->space != EGPU_SPACE_GLOBAL)
		return 0;
	if (s->count && ctx->value[0] != s->last + 1) {
		__u64 at = s->gaps % GAPS;
		s->gap[at].from = s->when;
		s->gap[at].to = now;
		s->gaps = s->gaps + 1;
	}
	s->count = s->count + 1;
	s->last = ctx->value[0];
	s->when = now;
	return 0;
}

char _license[] SEC("license") = "GPL";
