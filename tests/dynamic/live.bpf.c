/* What the live test attaches to a kernel that runs: when each multiprocessor first and last ran it, and whether any store was missed. */
#include <egpu/probe.bpf.h>

enum { SMS = 256, BLOCKS = 4096, GAPS = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SMS);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps"), last SEC(".maps");

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

__u64 exits;

/* Runs with more than this between them are of different attaches. */
enum { PAUSE_NS = 15000000 };

static __attribute__((always_inline)) void mark(__u32 sm)
{
	__u64 now = bpf_ktime_get_ns(), *f = bpf_map_lookup_elem(&first, &sm), *l = bpf_map_lookup_elem(&last, &sm);
	if (!f || !l)
		return;
	if ((__s64)(now - *l) > PAUSE_NS)
		*f = now;
	*l = now;
}

SEC("gpu.warp/block")
int loop(struct egpu_warp *ctx)
{
	mark(ctx->sm);
	return 0;
}

/* What takes the place of `loop`. */
SEC("gpu.warp/block")
int other(struct egpu_warp *ctx)
{
	mark(ctx->sm);
	return 0;
}

SEC("gpu.warp/block")
int nothing(struct egpu_warp *ctx)
{
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} passes SEC(".maps");

SEC("gpu.warp/block")
int count(struct egpu_warp *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&passes, &zero);
	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

SEC("gpu.warp/block")
int clock(struct egpu_warp *ctx)
{
	return bpf_ktime_get_ns() == 1;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} lanes SEC(".maps");

/* How many lanes come together, and how often. */
SEC("gpu.warp/block")
int together(struct egpu_warp *ctx)
{
	__u32 zero = 0, one = 1;
	__u64 *n = bpf_map_lookup_elem(&lanes, &zero), *runs = bpf_map_lookup_elem(&lanes, &one);
	if (!n || !runs)
		return 0;
	__sync_fetch_and_add(n, ctx->lanes);
	__sync_fetch_and_add(runs, 1);
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SMS);
	__type(key, __u32);
	__type(value, __u64);
} took SEC(".maps");

/* The longest time that a run took. */
SEC("gpu.warp/block")
int longest(struct egpu_warp *ctx)
{
	__u32 sm = ctx->sm;
	__u64 from = bpf_ktime_get_ns(), *most = bpf_map_lookup_elem(&took, &sm);
	if (!most)
		return 0;
	__u64 known = *(volatile __u64 *)most, n = bpf_ktime_get_ns() - from;
	if (n > known)
		*most = n;
	return 0;
}

/* The stores of 8 bytes to global memory are those of `passes`, by one thread of each block. */
SEC("gpu/store")
int store(struct egpu_mem *ctx)
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

SEC("gpu/exit")
int leave(struct egpu_exit *ctx)
{
	__sync_fetch_and_add(&exits, 1);
	return 0;
}

char _license[] SEC("license") = "GPL";
