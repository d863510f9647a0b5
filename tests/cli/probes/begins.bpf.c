/* How programs for the kernel count by key: what is not there yet is made with its first count. Every lane of a warp finds nothing, and all count.
 * tests/cli/begins.t knows the sums. */
#include <egpu/probe.bpf.h>

struct sums {
	__u64 runs, bytes;
};

#define MAP(name_, type_, value_)                             \
	struct {                                              \
		__uint(type, BPF_MAP_TYPE_##type_);           \
		__uint(max_entries, 256);                     \
		__type(key, __u32);                           \
		__type(value, value_);                        \
	} name_ SEC(".maps")

MAP(by_kernel, HASH, __u64);
MAP(by_site, HASH, __u64);
MAP(by_lane, PERCPU_HASH, __u64);
MAP(by_block, LRU_HASH, __u32);
MAP(sums, HASH, struct sums);
MAP(noexist, HASH, __u64);
MAP(zeroed, HASH, __u64);
MAP(one_to_one, HASH, __u64);
MAP(by_warp, HASH, __u64);
MAP(both, HASH, __u64);
MAP(spilled, HASH, __u64);
MAP(by_caller, HASH, __u64);
MAP(made, HASH, __u64);

SEC("gpu/entry")
int entered(struct egpu_entry *ctx)
{
	__u32 key = ctx->kernel;
	__u64 one = 1, *count = bpf_map_lookup_elem(&by_kernel, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&by_kernel, &key, &one, BPF_ANY);
	return 0;
}

SEC("gpu/load")
int loaded(struct egpu_mem *ctx)
{
	__u32 key = ctx->site, lane = ctx->lane, first = 1;
	__u32 block = ctx->block.x;
	__u64 one = 1, *count = bpf_map_lookup_elem(&by_site, &key);
	__u32 *short_count;

	if (!count)
		bpf_map_update_elem(&by_site, &key, &one, BPF_ANY);
	else
		*count += 1;
	count = bpf_map_lookup_elem(&by_lane, &lane);
	if (count)
		(*count)++;
	else
		bpf_map_update_elem(&by_lane, &lane, &one, BPF_ANY);
	short_count = bpf_map_lookup_elem(&by_block, &block);
	if (short_count)
		__sync_fetch_and_add(short_count, 1);
	else
		bpf_map_update_elem(&by_block, &block, &first, BPF_ANY);
	return 0;
}

SEC("gpu/store")
int stored(struct egpu_mem *ctx)
{
	__u32 key = ctx->site;
	struct sums *s = bpf_map_lookup_elem(&sums, &key);

	if (s) {
		s->runs++;
		s->bytes += ctx->bytes;
	} else {
		struct sums first = { 1, ctx->bytes };
		bpf_map_update_elem(&sums, &key, &first, BPF_ANY);
	}
	return 0;
}

SEC("gpu/store")
int once_more(struct egpu_mem *ctx)
{
	__u32 key = ctx->site;
	__u64 one = 1, *count = bpf_map_lookup_elem(&noexist, &key);

	if (count) {
		__sync_fetch_and_add(count, 1);
		return 0;
	}
	bpf_map_update_elem(&noexist, &key, &one, BPF_NOEXIST);
	return 0;
}

static __attribute__((always_inline)) void count_in_both(__u32 key)
{
	__u64 one = 1, *count = bpf_map_lookup_elem(&both, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&both, &key, &one, BPF_NOEXIST);
}

SEC("gpu/entry")
int two_keys(struct egpu_entry *ctx)
{
	count_in_both(1000 + ctx->lane / 16);
	count_in_both(ctx->kernel);
	return 0;
}

SEC("gpu/load")
int zero_first(struct egpu_mem *ctx)
{
	__u32 key = ctx->op;
	__u64 zero = 0, *count = bpf_map_lookup_elem(&zeroed, &key);

	if (!count) {
		bpf_map_update_elem(&zeroed, &key, &zero, BPF_ANY);
		count = bpf_map_lookup_elem(&zeroed, &key);
		if (!count)
			return 0;
	}
	__sync_fetch_and_add(count, 1);
	return 0;
}

/* What the look-up found is kept on the stack, as where registers do not suffice. */
SEC("gpu/load")
int spills(struct egpu_mem *ctx)
{
	__u32 key = ctx->op;
	__u64 one = 1, *count = bpf_map_lookup_elem(&spilled, &key);
	__u64 *volatile kept = count;

	if (count)
		__sync_fetch_and_add(kept, 1);
	else
		bpf_map_update_elem(&spilled, &key, &one, BPF_ANY);
	return 0;
}

/* Whoever made the key, or overwrote it, says so to its caller: runs are those that counted and those that did. */
struct state {
	__u64 one, made;
	__u32 key;
};

static __attribute__((noinline)) int count_for(struct state *s)
{
	__u64 *count = bpf_map_lookup_elem(&by_caller, &s->key);

	if (count) {
		__sync_fetch_and_add(count, 1);
		return 0;
	}
	s->made = 1;
	bpf_map_update_elem(&by_caller, &s->key, &s->one, BPF_NOEXIST);
	return 0;
}

SEC("gpu/store")
int for_caller(struct egpu_mem *ctx)
{
	struct state s = { 0, 0, ctx->op };
	__u64 zero = 0, *count;

	count_for(&s);
	if (!s.made)
		return 0;
	bpf_map_update_elem(&made, &s.key, &zero, BPF_NOEXIST);
	count = bpf_map_lookup_elem(&made, &s.key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}

/* What is set without a look-up is set. */
SEC("gpu/exit")
int left(struct egpu_exit *ctx)
{
	__u32 key = ctx->lane;
	__u64 seven = 7;

	bpf_map_update_elem(&one_to_one, &key, &seven, BPF_ANY);
	return 0;
}

SEC("gpu.warp/exit")
int left_warp(struct egpu_warp *ctx)
{
	__u32 key = 0;
	__u64 lanes = ctx->lanes, *count = bpf_map_lookup_elem(&by_warp, &key);

	if (count)
		__sync_fetch_and_add(count, lanes);
	else
		bpf_map_update_elem(&by_warp, &key, &lanes, BPF_ANY);
	return 0;
}

char LICENSE[] SEC("license") = "Apache-2.0";
